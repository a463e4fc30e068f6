//! On the host's own hierarchy, whatever its version.

mod guest;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use super::*;

/// An unused name; the test's own, so that tests run side by side.
fn name(test: &str) -> String {
    format!("test-{test}-{}", std::process::id())
}

/// Prints why a test cannot run here.
fn usable() -> bool {
    let hierarchy = CgroupHierarchy::probe(&HostRoot::real());
    if hierarchy.missing().is_empty() {
        return true;
    }
    eprintln!("skipped: control groups cannot be used here: {hierarchy:?}");
    false
}

/// A shell that does `then` when it reads a line, by then in the group; prints `ready` first.
fn waiting_shell(then: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new("sh")
        .args(["-c", &format!("echo ready; read line; {then}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, output)
}

fn go(child: &mut Child) {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
}

/// Removes the group also if the test fails.
struct Removed(String);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

#[test]
fn a_process_beyond_its_memory_is_killed_and_counted() {
    if !usable() {
        return;
    }
    let name = Removed(name("memory"));
    let limits = CgroupLimits { memory_bytes: Some(32 << 20), pids: Some(50), ..CgroupLimits::default() };
    let group = Cgroup::create(&name.0, &limits).unwrap();
    assert_eq!(group.usage().unwrap().oom_kills, 0);
    // Two hundred megabytes in one variable of one process.
    let (mut child, _output) = waiting_shell("exec awk 'BEGIN { s = \"x\"; while (length(s) < 200000000) s = s s }'");
    group.add(child.id()).unwrap();
    assert_eq!(group.processes(), [child.id()]);
    go(&mut child);
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(nix::libc::SIGKILL), "{status}");
    let usage = group.usage().unwrap();
    assert_eq!(usage.oom_kills, 1, "{usage:?}");
    assert!(usage.memory_peak_bytes.is_none_or(|peak| (16 << 20..=32 << 20).contains(&peak)), "{usage:?}");
    group.remove().unwrap();
}

#[test]
fn a_process_within_its_memory_is_not_touched() {
    if !usable() {
        return;
    }
    let name = Removed(name("enough"));
    let group =
        Cgroup::create(&name.0, &CgroupLimits { memory_bytes: Some(64 << 20), ..CgroupLimits::default() }).unwrap();
    let (mut child, _output) = waiting_shell("true");
    group.add(child.id()).unwrap();
    go(&mut child);
    assert!(child.wait().unwrap().success());
    assert_eq!(group.usage().unwrap().oom_kills, 0);
    group.remove().unwrap();
}

#[test]
fn too_many_processes_are_refused_and_counted() {
    if !usable() {
        return;
    }
    let name = Removed(name("pids"));
    let group = Cgroup::create(&name.0, &CgroupLimits { pids: Some(3), ..CgroupLimits::default() }).unwrap();
    let (mut child, _output) = waiting_shell("for i in 1 2 3 4 5; do sleep 100 & done; wait");
    group.add(child.id()).unwrap();
    go(&mut child);
    assert!(!child.wait().unwrap().success(), "the shell reports that it could not fork");
    assert!(group.usage().unwrap().pids_refused >= 1);
    // Its sleeping children are leftovers.
    assert_eq!(group.processes().len(), 2);
    group.remove().unwrap();
    assert!(Cgroup::find(&name.0).unwrap().is_none());
}

#[test]
fn limits_reach_the_kernel_and_can_be_set_again() {
    if !usable() {
        return;
    }
    let name = Removed(name("limits"));
    let read = |group: &Cgroup, controller, files: [&str; 2]| {
        let directory = group.directory(controller).unwrap();
        files.iter().find_map(|file| fs::read_to_string(directory.join(file)).ok()).unwrap().trim().to_owned()
    };
    for (mebibytes, millicpu) in [(512_u64, 1500_u64), (1024, 250)] {
        let limits = CgroupLimits {
            memory_bytes: Some(mebibytes << 20),
            cpu_quota: Some(CpuQuota::of_millicpu(millicpu)),
            cpu_shares: Some(2048),
            pids: Some(321),
        };
        let group = Cgroup::create(&name.0, &limits).unwrap();
        assert_eq!(group.not_enforced(), []);
        let memory = read(&group, Controller::Memory, ["memory.max", "memory.limit_in_bytes"]);
        assert_eq!(memory, (mebibytes << 20).to_string());
        assert_eq!(read(&group, Controller::Pids, ["pids.max", "pids.max"]), "321");
        let quota = read(&group, Controller::Cpu, ["cpu.max", "cpu.cfs_quota_us"]);
        assert_eq!(quota.split(' ').next(), Some((millicpu * 100).to_string().as_str()));
        let shares = read(&group, Controller::Cpu, ["cpu.weight", "cpu.shares"]);
        assert_eq!(shares, if group.group.v2() { "79" } else { "2048" });
    }
    remove(&name.0).unwrap();
}

#[test]
fn leftovers_are_killed_and_removing_twice_is_fine() {
    if !usable() {
        return;
    }
    let name = Removed(name("leftover"));
    let group = Cgroup::create(&name.0, &CgroupLimits::default()).unwrap();
    // Deaf to SIGTERM, with children of its own.
    let (mut child, mut output) = waiting_shell("trap '' TERM; sleep 100 & sleep 100 & echo started; wait");
    group.add(child.id()).unwrap();
    go(&mut child);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    assert_eq!(group.processes().len(), 3);
    drop(group);

    let found = Cgroup::find(&name.0).unwrap().expect("found by name after its maker is gone");
    assert!(Cgroup::list().contains(&name.0));
    found.remove().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(nix::libc::SIGKILL));
    assert!(!Cgroup::list().contains(&name.0));
    remove(&name.0).unwrap();
}

#[test]
fn a_process_that_is_gone_cannot_be_added() {
    if !usable() {
        return;
    }
    let name = Removed(name("gone"));
    let group = Cgroup::create(&name.0, &CgroupLimits::default()).unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let error = group.add(child.id()).unwrap_err();
    assert!(matches!(error, CgroupError::Step { step: "move a process into", .. }), "{error:?}");
    group.remove().unwrap();
}

#[test]
fn names_that_could_leave_our_directory_are_refused() {
    for bad in ["", ".", "..", "a/b", "../x", "UPPER", ".hidden", "a b", "a\n"] {
        assert!(matches!(Cgroup::find(bad), Err(CgroupError::Name { .. })), "{bad:?}");
        assert!(matches!(Cgroup::create(bad, &CgroupLimits::default()), Err(CgroupError::Name { .. })), "{bad:?}");
    }
}
