//! The QEMU of each pod, as the node's kernel counts it (proc(5)). A guest that has taken its QEMU over changes nothing of it but the
//! names of its threads.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use crate::identity::{KubeletRoot, PodUid};

/// What the names of QEMU's programs begin with.
const QEMU: &str = "qemu";
/// Units of times in `/proc`: USER_HZ, which the kernel's interface to programs fixes at 100 on amd64.
const TICKS_PER_SECOND: f64 = 100.0;
/// Threads of one process that are read: more than the vCPUs of any machine.
const MOST_THREADS: usize = 2048;
/// Numbers of vCPUs are below it. A guest that has taken its QEMU over names threads as it likes: each number is a label of its own.
const MOST_VCPUS: u32 = 2048;

/// One QEMU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// Seconds of processor time in user mode, and in the kernel.
    pub(super) user_seconds: f64,
    pub(super) system_seconds: f64,
    /// Resident memory.
    pub(super) resident_bytes: Option<u64>,
    /// Its vCPUs, by number.
    pub(super) vcpus: Vec<Vcpu>,
    /// The links of its network namespace, by name.
    pub(super) links: HashMap<String, Link>,
}

/// One thread of a vCPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Vcpu {
    /// Its number.
    pub(super) id: u32,
    /// Seconds of processor time.
    pub(super) run_seconds: f64,
    /// Seconds in which it was ready and did not run; nothing where the kernel does not count them.
    pub(super) delay_seconds: Option<f64>,
    /// Seconds in which it waited for I/O.
    pub(super) wait_seconds: f64,
    /// Processors that it may run on.
    pub(super) processors: u32,
}

/// One link, as the host sees it: what it receives, its guest has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) received: Direction,
    pub(super) sent: Direction,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Direction {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) errors: u64,
    pub(super) dropped: u64,
}

/// The QEMUs of these pods of this kubelet. A process that has ended meanwhile is left out.
///
/// # Errors
/// The kernel's error about the list of processes.
pub(super) fn of_pods(
    root: &Path,
    kubelet: &KubeletRoot,
    launchers: &HashSet<PodUid>,
) -> io::Result<HashMap<PodUid, Process>> {
    let mut found: HashMap<PodUid, Process> = HashMap::new();
    for entry in std::fs::read_dir(root)? {
        let directory = entry?.path();
        let is_process =
            directory.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if !is_process || !text(&directory, "comm").is_some_and(|name| name.starts_with(QEMU)) {
            continue;
        }
        // A pod of anyone may have thousands of processes of that name, with as many threads as it likes: these are not looked at.
        let pod = text(&directory, "cgroup").and_then(|groups| kubelet.pod_of(&groups).ok());
        let Some(pod) = pod.filter(|pod| launchers.contains(pod)) else { continue };
        if let Some(process) = process(&directory) {
            // The one with vCPUs, if there are others of the name.
            let known = found.entry(pod).or_default();
            if known.vcpus.len() <= process.vcpus.len() {
                *known = process;
            }
        }
    }
    Ok(found)
}

fn process(directory: &Path) -> Option<Process> {
    let Times { user_seconds, system_seconds, .. } = times(&text(directory, "stat")?)?;
    let resident_bytes = text(directory, "status").as_deref().and_then(resident);
    let links = text(directory, "net/dev").as_deref().map(links).unwrap_or_default();
    let threads = std::fs::read_dir(directory.join("task")).ok()?.take(MOST_THREADS);
    let mut vcpus: Vec<Vcpu> = threads.filter_map(|thread| vcpu(&thread.ok()?.path())).collect();
    vcpus.sort_by_key(|vcpu| vcpu.id);
    // Threads have the names that they give themselves.
    vcpus.dedup_by_key(|vcpu| vcpu.id);
    Some(Process { user_seconds, system_seconds, resident_bytes, vcpus, links })
}

fn vcpu(directory: &Path) -> Option<Vcpu> {
    let id = vcpu_number(&text(directory, "comm")?)?;
    let Times { user_seconds, system_seconds, wait_seconds } = times(&text(directory, "stat")?)?;
    let scheduled = text(directory, "schedstat").as_deref().and_then(scheduled);
    let processors = text(directory, "status").as_deref().and_then(processors).unwrap_or_default();
    Some(Vcpu {
        id,
        run_seconds: scheduled.map_or(user_seconds + system_seconds, |it| it.run_seconds),
        delay_seconds: scheduled.map(|it| it.delay_seconds),
        wait_seconds,
        processors,
    })
}

/// Nothing of what has ended.
fn text(directory: &Path, name: &str) -> Option<String> {
    let bytes = std::fs::read(directory.join(name)).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number in the name of a vCPU's thread, `CPU 3/KVM` (`debug-threads=on`).
fn vcpu_number(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split('/').next()?.parse().ok().filter(|number: &u32| *number < MOST_VCPUS)
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    user_seconds: f64,
    system_seconds: f64,
    wait_seconds: f64,
}

/// Of `/proc/PID/stat`: the fields 14, 15 and 42. The second one, the name, may have blanks and parentheses.
fn times(stat: &str) -> Option<Times> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let seconds = |number: usize| fields.get(number - 3)?.parse::<f64>().ok().map(|ticks| ticks / TICKS_PER_SECOND);
    Some(Times { user_seconds: seconds(14)?, system_seconds: seconds(15)?, wait_seconds: seconds(42)? })
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Scheduled {
    run_seconds: f64,
    delay_seconds: f64,
}

/// Of `/proc/PID/task/TID/schedstat`: nanoseconds on a processor and waiting for one.
fn scheduled(schedstat: &str) -> Option<Scheduled> {
    let mut fields = schedstat.split_whitespace().map(|field| field.parse::<f64>().ok().map(|nanos| nanos / 1e9));
    Some(Scheduled { run_seconds: fields.next()??, delay_seconds: fields.next()?? })
}

/// Of `/proc/PID/status`.
fn resident(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// How many processors `Cpus_allowed_list` has: `0-3,8`.
fn processors(status: &str) -> Option<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let count = |range: &str| -> Option<u32> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    list.split(',').map(count).sum()
}

/// Of `/proc/PID/net/dev`: eight numbers of what was received, then eight of what was sent.
fn links(dev: &str) -> HashMap<String, Link> {
    let link = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let direction = |at: usize| {
            let [bytes, packets, errors, dropped] = *numbers.get(at..at + 4)?.first_chunk::<4>()?;
            Some(Direction { bytes, packets, errors, dropped })
        };
        Some((name.trim().to_owned(), Link { received: direction(0)?, sent: direction(8)? }))
    };
    dev.lines().filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::tests::POD;

    const STAT: &str = "7 (CPU 0) (KVM) S 1 7 7 0 -1 4210944 1 2 3 4 150 50 0 0 20 0 9 0 99 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 25 0";
    const OWN: &str = "0::/kubepods/burstable/pod11111111-7c1f-4d57-9c5e-6f0c7d6a1b2c/agent\n";
    const DEV: &str = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  tap0: 100 10 1 2 0 0 0 0 200 20 3 4 0 0 0 0\n";

    fn write(root: &Path, name: &str, text: &str) {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    #[test]
    fn the_qemu_of_a_pod_is_found_with_its_vcpus_and_links() {
        let room = tempfile::tempdir().unwrap();
        let root = room.path();
        let group = format!("0::/kubepods/burstable/pod{POD}/compute\n");
        for (pid, name) in [("7", "qemu-system-x86\n"), ("8", "garboard-init\n"), ("9", "qemu-img\n")] {
            write(root, &format!("{pid}/comm"), name);
            write(root, &format!("{pid}/cgroup"), &group);
            write(root, &format!("{pid}/stat"), STAT);
            write(root, &format!("{pid}/status"), "VmRSS:\t    2048 kB\nCpus_allowed_list:\t0-3,8\n");
            write(root, &format!("{pid}/net/dev"), DEV);
            write(root, &format!("{pid}/task/{pid}/comm"), name);
        }
        for (thread, name) in [("71", "CPU 1/KVM\n"), ("70", "CPU 0/KVM\n"), ("72", "CPU 1/KVM\n"), ("73", "worker\n")]
        {
            write(root, &format!("7/task/{thread}/comm"), name);
            write(root, &format!("7/task/{thread}/stat"), STAT);
            write(root, &format!("7/task/{thread}/status"), "Cpus_allowed_list:\t0-3,8\n");
        }
        write(root, "7/task/70/schedstat", "3000000000 500000000 12\n");
        // No pod's.
        write(root, "10/comm", "qemu-system-x86\n");
        write(root, "10/cgroup", "0::/user.slice\n");
        let launcher = PodUid::parse(POD).unwrap();
        let found = of_pods(root, &KubeletRoot::of(OWN).unwrap(), &HashSet::from([launcher.clone()])).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        let qemu = &found[&launcher];
        assert_eq!((qemu.user_seconds, qemu.system_seconds, qemu.resident_bytes), (1.5, 0.5, Some(2 << 20)));
        let [first, second] = qemu.vcpus.as_slice() else { panic!("{qemu:?}") };
        let expected = Vcpu { id: 0, run_seconds: 3.0, delay_seconds: Some(0.5), wait_seconds: 0.25, processors: 5 };
        assert_eq!(*first, expected);
        assert_eq!((second.id, second.run_seconds, second.delay_seconds), (1, 2.0, None));
        let received = Direction { bytes: 100, packets: 10, errors: 1, dropped: 2 };
        let sent = Direction { bytes: 200, packets: 20, errors: 3, dropped: 4 };
        assert_eq!(qemu.links["tap0"], Link { received, sent });
        let others = HashSet::from([PodUid::parse("22222222-7c1f-4d57-9c5e-6f0c7d6a1b2c").unwrap()]);
        let found = of_pods(root, &KubeletRoot::of(OWN).unwrap(), &others).unwrap();
        assert!(found.is_empty(), "it is in no launcher pod: {found:?}");
    }

    #[test]
    fn what_the_kernel_would_not_write_is_nothing() {
        assert_eq!(vcpu_number("CPU x/KVM"), None);
        assert_eq!(vcpu_number("CPU 12/TCG"), Some(12));
        assert_eq!((vcpu_number("CPU 2047/KVM"), vcpu_number("CPU 2048/KVM")), (Some(2047), None));
        assert!(times("7 (x) S 1").is_none() && scheduled("1").is_none() && resident("VmRSS: x kB").is_none());
        assert_eq!(processors("Cpus_allowed_list:\t3-1"), None);
        assert!(links("tap0: 1 2 3").is_empty());
    }
}
