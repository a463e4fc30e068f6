//! The tests of the module above on a host with version 2: a guest whose only content is this test program.
//!
//! They run twice there: as root, and as a user to whom a group was delegated the way systemd does it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tests of the module above that need control groups or a name; all of them must run in the guest.
const EXPECTED: &str = "test result: ok. 7 passed; 0 failed";

const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd /sys/fs/cgroup
echo "== root =="
/tests cgroup::tests:: --skip guest:: --test-threads=1 --nocapture 2>&1
mkdir -p user/session
echo "+cpu +memory +pids" > cgroup.subtree_control
for group in user user/session; do
    chown user $group $group/cgroup.procs $group/cgroup.subtree_control
done
echo $$ > user/session/cgroup.procs
chmod 1777 /tmp
echo "== user =="
su user -c '/tests cgroup::tests:: --skip guest:: --test-threads=1 --nocapture 2>&1'
echo "== end =="
poweroff -f
"#;

#[test]
fn the_same_tests_pass_in_a_guest_with_version_2() {
    let cache = std::env::var_os("GARBOARD_CACHE").map_or_else(|| "/var/cache/garboard-test".into(), PathBuf::from);
    let kernel = cache.join("kernel-cloud/vmlinux");
    if !kernel.exists() {
        eprintln!("skipped: {} is not there (scripts/guest-kernel gets it)", kernel.display());
        return;
    }
    for tool in ["qemu-system-x86_64", "busybox", "cpio", "ldd", "timeout"] {
        if !Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap().status.success() {
            eprintln!("skipped: {tool} is not installed");
            return;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let archive = pack(directory.path());
    let output = Command::new("timeout")
        .args(["900", "qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", "max", "-m", "768"])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot"])
        .arg("-kernel")
        .arg(&kernel)
        .arg("-initrd")
        .arg(&archive)
        .args(["-append", "console=ttyS0 loglevel=1 cryptomgr.notests panic=-1"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("== end =="), "the guest did not come to its end: {printed}");
    let (_, runs) = printed.split_once("== root ==").unwrap();
    let (root, user) = runs.split_once("== user ==").unwrap();
    for (who, run) in [("root", root), ("user", user)] {
        assert!(run.contains(EXPECTED), "as {who}: {run}");
        assert!(!run.contains("skipped"), "as {who}: {run}");
    }
}

/// Packs this program, what it is linked with, and busybox.
fn pack(directory: &Path) -> PathBuf {
    let tree = directory.join("tree");
    for name in ["bin", "etc", "proc", "sys", "dev", "tmp"] {
        std::fs::create_dir_all(tree.join(name)).unwrap();
    }
    let program = std::env::current_exe().unwrap();
    let linked = Command::new("ldd").arg(&program).output().unwrap();
    let libraries = String::from_utf8(linked.stdout).unwrap();
    for library in libraries.split_whitespace().filter(|path| path.starts_with('/')) {
        let into = tree.join(&library[1..]);
        std::fs::create_dir_all(into.parent().unwrap()).unwrap();
        std::fs::copy(library, into).unwrap();
    }
    std::fs::copy(&program, tree.join("tests")).unwrap();
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists()).unwrap();
    std::fs::copy(busybox, tree.join("bin/busybox")).unwrap();
    std::fs::write(tree.join("etc/passwd"), "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n").unwrap();
    std::fs::write(tree.join("init"), INIT).unwrap();
    std::fs::set_permissions(tree.join("init"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let archive = directory.join("initramfs");
    let script = format!("find . | cpio --quiet -o -H newc > {}", archive.display());
    assert!(Command::new("sh").args(["-c", &script]).current_dir(&tree).status().unwrap().success());
    archive
}
