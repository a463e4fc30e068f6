//! What keeps a machine's processes apart from the host and from each other. Pure.

use garboard_machine::facts::CgroupVersion;
use nix::errno::Errno;

use super::{Check, HostConditions};
use crate::cgroup_hierarchy::{CgroupHierarchy, Controller, Obstacle};
use crate::landlock::Landlock;
use crate::survey::Survey;

/// The version with which Landlock also covers TCP (Linux 6.7).
const LANDLOCK_NETWORK: u32 = 4;

pub(super) fn checks(survey: &Survey, conditions: &HostConditions) -> Vec<Check> {
    let root = survey.privileges.is_root();
    vec![
        user(root, conditions),
        cgroup(&survey.cgroup),
        namespaces(conditions, root),
        landlock(conditions.landlock),
        seccomp(conditions.seccomp),
    ]
}

fn user(root: bool, conditions: &HostConditions) -> Check {
    let check = |detail| Check::new("user", "Running as", detail);
    if root {
        return check("root: every machine has a user and namespaces of its own");
    }
    let check = match conditions.namespaces.user {
        Ok(()) => {
            check("a user: machines run as this user, each in a user namespace of its own, on the host's network")
        }
        Err(_) => check("a user: machines run as this user, without namespaces of their own"),
    };
    check
        .degraded("run as root for bridges, for limits that need no delegation, and for machines that are another user")
}

fn cgroup(found: &CgroupHierarchy) -> Check {
    let check = |detail: String| Check::new("cgroup", "Limits", detail);
    let why = match found.obstacle {
        None => "",
        Some(Obstacle::NotMounted) => "no cgroup file system is mounted",
        Some(Obstacle::NotDelegated) => "no control group was delegated to this user",
        Some(Obstacle::ReadOnly) => "control groups are mounted read-only",
        Some(Obstacle::InternalProcesses) => "processes in this control group keep controllers from being enabled",
    };
    let remedy = match found.obstacle {
        None => "boot with cgroup_enable=memory, or mount the missing controllers",
        Some(Obstacle::NotMounted) => "mount -t cgroup2 none /sys/fs/cgroup",
        Some(Obstacle::NotDelegated) => "systemd-run --user --scope -p Delegate=yes garboard run …, or run as root",
        Some(Obstacle::ReadOnly) => "run on the host, or give the container a writable cgroup (--cgroupns=host)",
        Some(Obstacle::InternalProcesses) => "start it in a scope of its own: systemd-run --scope -p Delegate=yes …",
    };
    let version = match found.version {
        CgroupVersion::V1 => "version 1",
        CgroupVersion::V2 => "version 2",
        CgroupVersion::Unavailable => {
            return check(format!("none can be set: {why}")).missing(remedy);
        }
    };
    let list =
        |controllers: Vec<Controller>| controllers.into_iter().map(Controller::as_str).collect::<Vec<_>>().join(", ");
    let usable = list(found.controllers.iter().copied().collect());
    if found.missing().is_empty() {
        return check(format!("cgroup {version}: {usable}"));
    }
    let reason = if why.is_empty() { String::new() } else { format!(" ({why})") };
    check(format!("cgroup {version}: {usable}; not {}{reason}", list(found.missing()))).degraded(remedy)
}

fn namespaces(conditions: &HostConditions, root: bool) -> Check {
    let check = |detail: String| Check::new("namespaces", "Namespaces", detail);
    let found = &conditions.namespaces;
    match (&found.machine, root) {
        (Ok(()), true) => check("mount, pid, ipc, uts, network".into()),
        (Ok(()), false) => check("user, mount, pid, ipc, uts".into()),
        (Err(refused), true) => check(format!(
            "the kernel refuses a new {} namespace: {}",
            refused.kind,
            refused.errno.desc()
        ))
        .missing(
            "run on the host itself, or in a container with --privileged; machines cannot be started as root without",
        )
        .essential(),
        (Err(_), false) => {
            let detail = "user namespaces may not be made: machines of this user have none";
            let remedy = match (found.max_user, &found.user) {
                (Some(0), _) => "sysctl user.max_user_namespaces=10000",
                (_, Err(Errno::EPERM | Errno::EACCES)) => {
                    "sysctl kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
                }
                _ => "use a kernel with CONFIG_USER_NS",
            };
            check(detail.into()).degraded(remedy)
        }
    }
}

fn landlock(landlock: Landlock) -> Check {
    let check = |detail: String| Check::new("landlock", "Landlock", detail);
    let without = "QEMU's files are guarded by user and namespaces only";
    match landlock {
        Landlock::Version(version @ LANDLOCK_NETWORK..) => check(format!("version {version}")),
        Landlock::Version(version) => check(format!("version {version}: files, not TCP"))
            .degraded("a kernel from 6.7 on also keeps QEMU from opening connections"),
        Landlock::Off => check(format!("built in and off: {without}")).degraded("boot with lsm=landlock,… in front"),
        Landlock::Absent => check(format!("not in this kernel: {without}"))
            .degraded("use a kernel from 5.13 on with CONFIG_SECURITY_LANDLOCK"),
    }
}

fn seccomp(present: bool) -> Check {
    if present {
        return Check::new("seccomp", "System call filter", "QEMU runs with -sandbox on");
    }
    Check::new("seccomp", "System call filter", "the kernel has none: QEMU's system calls are not filtered")
        .degraded("use a kernel with CONFIG_SECCOMP_FILTER")
}
