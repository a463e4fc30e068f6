//! System calls that the agent never makes. Its container, being privileged, has no filter of the runtime's.
//!
//! They are those by which what is kept of its capabilities could become more: mounting, other namespaces than networks,
//! looking into other processes, programs and modules for the kernel, raw devices. All others are let through, so that a
//! later version of a library works.

use std::collections::BTreeMap;

use nix::libc::{self, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::ConfineError;

/// open_tree_attr(2), since Linux 6.15; the number is the same on all architectures.
const OPEN_TREE_ATTR: c_long = 467;

/// Refused whatever their arguments are.
const NEVER: [c_long; 57] = [
    // Mounts.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    // Files without a path, devices.
    libc::SYS_open_by_handle_at,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    // Namespaces; `setns` and `clone` are below.
    libc::SYS_unshare,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_lookup_dcookie,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_vhangup,
    // Keys, clocks, names.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
];

/// Flags of `clone` that make a namespace.
const NEW_NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Set in the number of a call by programs of the x32 interface, which a kernel may have beside the usual one.
const X32: c_long = 0x4000_0000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Applies the filters to all threads. Also sets `no_new_privs`, without which a thread with fewer capabilities could not
/// have one.
pub(super) fn apply() -> Result<(), ConfineError> {
    // What is in the structure that `clone3` points to cannot be seen; "there is none" makes libraries use `clone`.
    let clone3 = Rules::from([(libc::SYS_clone3, Vec::new())]);
    for (rules, errno) in [(refused()?, libc::EPERM), (clone3, libc::ENOSYS)] {
        seccompiler::apply_filter_all_threads(&program(rules, errno)?)?;
    }
    Ok(())
}

fn program(rules: Rules, errno: libc::c_int) -> Result<BpfProgram, ConfineError> {
    let answer = SeccompAction::Errno(errno.unsigned_abs());
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, answer, TargetArch::x86_64)?.try_into()?)
}

fn refused() -> Result<Rules, ConfineError> {
    let condition = |argument, operator, value: libc::c_int| {
        let value = u64::from(value.unsigned_abs());
        SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?])
    };
    let mut rules: Rules = NEVER.into_iter().map(|number| (number, Vec::new())).collect();
    rules.insert(libc::SYS_setns, vec![condition(1, SeccompCmpOp::Ne, libc::CLONE_NEWNET)?]);
    let makes = |flag: libc::c_int| condition(0, SeccompCmpOp::MaskedEq(u64::from(flag.unsigned_abs())), flag);
    rules.insert(libc::SYS_clone, NEW_NAMESPACES.into_iter().map(makes).collect::<Result<_, _>>()?);
    let x32 = rules.keys().map(|number| (number | X32, Vec::new())).collect::<Vec<_>>();
    rules.extend(x32);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use garboard_net::NetNs;

    /// What is tried where the filter holds: in a child, because it would hold for this whole program.
    #[test]
    fn networks_are_entered_and_nothing_else() {
        const INSIDE: &str = "GARBOARD_TEST_INSIDE_THE_FILTER";
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        if std::env::var_os(INSIDE).is_none() {
            let program = std::env::current_exe().unwrap();
            let name = "confine::filter::tests::networks_are_entered_and_nothing_else";
            let ended = std::process::Command::new(program).args(["--exact", name]).env(INSIDE, "1").status();
            assert!(ended.unwrap().success());
            return;
        }
        let other = NetNs::create().unwrap();
        let mounts = std::fs::File::open("/proc/self/ns/mnt").unwrap();
        apply().unwrap();
        other.run(|| ()).unwrap();
        let refused = Err(nix::errno::Errno::EPERM);
        assert_eq!(nix::sched::setns(&mounts, nix::sched::CloneFlags::empty()), refused);
        assert_eq!(nix::sched::setns(&mounts, nix::sched::CloneFlags::CLONE_NEWNS), refused);
        assert_eq!(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET), refused);
        assert_eq!(nix::unistd::chroot("/"), refused);
        let nothing: Option<&str> = None;
        assert_eq!(nix::mount::mount(nothing, "/", nothing, nix::mount::MsFlags::MS_REMOUNT, nothing), refused);
        // Threads and programs are started all the same.
        std::thread::spawn(|| ()).join().unwrap();
        assert!(std::process::Command::new("true").status().unwrap().success());
        let namespaces = std::process::Command::new("unshare").args(["--net", "true"]).status().unwrap();
        assert!(!namespaces.success(), "programs have the filter too");
        // A directory that is not there: without the filter the answer is another.
        let call = "import ctypes, errno, sys; libc = ctypes.CDLL(None, use_errno=True); \
                    libc.syscall(467, -100, b'/none', 0, None, 0); sys.exit(ctypes.get_errno() != errno.EPERM)";
        let cloned = std::process::Command::new("python3").args(["-c", call]).status().unwrap();
        assert!(cloned.success(), "open_tree_attr");
    }
}
