//! The files that the agent may use, by Landlock. As root it would own most files: a line written to
//! `/proc/sys/kernel/core_pattern` is code run as root on the node, and takes no capability.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};

use super::devices::{HARMLESS, OF_THE_NODE};

/// The newest interface of Landlock whose rights are known here; an older kernel enforces what it has.
const KNOWN: ABI = ABI::V6;
/// Read, and the programs of the image executed: libraries, `nft` and its tables, certificates, callers, what the node offers.
const READ: [&str; 14] = [
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc",
    "/proc",
    "/var/run/secrets",
    "/run/secrets",
    "/run/garboard-facts",
    "/sys/kernel/mm",
    "/sys/module",
    "/sys/devices/system",
    "/sys/fs/cgroup",
];
/// Whether a device has come: [`crate::device::health::newcomer`].
const MISC: &str = "/sys/class/misc";
/// Settings of the network namespace that a thread is in.
const NETWORK_SETTINGS: &str = "/proc/sys/net";

/// Directories of the node in which the agent makes sockets and files.
#[derive(Clone, Copy, Debug)]
pub struct Directories<'a> {
    /// What launcher pods get mounted.
    pub agent: &'a Path,
    /// The kubelet's, for device plugins.
    pub kubelet: &'a Path,
    /// The file that the init container wrote about QEMU.
    pub offer: &'a Path,
}

/// How far the kernel enforces it.
pub type Enforced = RulesetStatus;

/// Descriptors of what is allowed. `/proc` creates the files below it again when it has forgotten them, and a rule is for the
/// one that was there: held open, it is not forgotten.
pub struct HeldPaths(#[expect(dead_code, reason = "only held")] Vec<PathFd>);

/// Restricts this thread, and all that it starts.
///
/// # Errors
/// The kernel's error about the rules; a kernel without Landlock is no error, but a value of [`Enforced`].
pub(super) fn restrict(directories: Directories<'_>) -> Result<(Enforced, HeldPaths), RulesetError> {
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let make =
        AccessFs::ReadDir | AccessFs::MakeReg | AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::Refer | write;
    let mut rules: Vec<(&Path, BitFlags<AccessFs>)> = READ.iter().map(|path| (Path::new(*path), read)).collect();
    rules.push((directories.offer, AccessFs::ReadFile.into()));
    rules.push((Path::new(MISC), AccessFs::ReadDir.into()));
    rules.push((Path::new(NETWORK_SETTINGS), write | AccessFs::ReadDir));
    rules.extend(OF_THE_NODE.iter().chain(&HARMLESS).map(|path| (Path::new(*path), device)));
    rules.extend([directories.agent, directories.kubelet].map(|path| (path, make)));
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        // The agent listens at no port.
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    let mut held = Vec::new();
    for (path, access) in rules {
        // What is not there needs no right.
        let Ok(file) = PathFd::new(path) else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(&file, fitting(path, access)))?;
        held.push(file);
    }
    Ok((ruleset.restrict_self()?.ruleset, HeldPaths(held)))
}

/// Rights of directories mean nothing for a file.
fn fitting(path: &Path, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::ErrorKind;

    /// What is tried where it holds: in a child, because it would hold for this whole program.
    #[test]
    fn what_the_agent_needs_is_there_and_what_makes_it_root_is_not() {
        const INSIDE: &str = "GARBOARD_TEST_INSIDE_LANDLOCK";
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let Some(place) = std::env::var_os(INSIDE) else {
            let program = std::env::current_exe().unwrap();
            let place = tempfile::tempdir().unwrap();
            for name in ["agent", "kubelet"] {
                std::fs::create_dir(place.path().join(name)).unwrap();
            }
            std::fs::write(place.path().join("offer.json"), "{}").unwrap();
            let name = "confine::files::tests::what_the_agent_needs_is_there_and_what_makes_it_root_is_not";
            let ended = std::process::Command::new(program).args(["--exact", name]).env(INSIDE, place.path()).status();
            assert!(ended.unwrap().success());
            return;
        };
        let place = Path::new(&place);
        let (agent, kubelet, offer) = (place.join("agent"), place.join("kubelet"), place.join("offer.json"));
        super::super::devices::keep().unwrap();
        let (enforced, _held) = restrict(Directories { agent: &agent, kubelet: &kubelet, offer: &offer }).unwrap();
        if enforced == RulesetStatus::NotEnforced {
            eprintln!("skipped: this kernel has no Landlock");
            return;
        }
        let refused = |path: &str| {
            let error = OpenOptions::new().write(true).open(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{path}");
        };
        // What this kernel does not have could not be opened anyway.
        let dangerous = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger"];
        dangerous.into_iter().filter(|path| Path::new(path).exists()).for_each(refused);
        assert_eq!(File::open("/root").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(std::fs::write(place.join("elsewhere"), "").is_err());
        let devices: Vec<_> =
            std::fs::read_dir("/dev").map(|all| all.flatten().map(|one| one.file_name()).collect()).unwrap_or_default();
        let expected =
            |name: &std::ffi::OsString| ["kvm", "net", "vhost-net", "null", "urandom"].iter().any(|one| name == one);
        assert!(devices.iter().all(expected), "{devices:?}");
        // Of a namespace that is entered later, too.
        let other = garboard_net::NetNs::create().unwrap();
        let forward = || OpenOptions::new().write(true).open("/proc/sys/net/ipv4/ip_forward").map(drop);
        forward().unwrap();
        other.run(forward).unwrap().unwrap();
        File::open("/proc/self/cgroup").unwrap();
        std::fs::read_dir("/proc/1").unwrap();
        std::fs::read_to_string(&offer).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        crate::socket::AgentSocket::listen(&agent.join("agent.sock")).unwrap();
        std::os::unix::net::UnixListener::bind(kubelet.join("x.sock")).unwrap();
        std::fs::write("/dev/null", "x").unwrap();
        for path in OF_THE_NODE.iter().filter(|path| Path::new(**path).exists()) {
            OpenOptions::new().read(true).write(true).open(path).unwrap();
        }
        assert!(std::process::Command::new("true").status().unwrap().success());
        // Init is not ours to signal, although its user is.
        let signalled = nix::sys::signal::kill(nix::unistd::Pid::from_raw(1), None);
        assert!(
            enforced != RulesetStatus::FullyEnforced || signalled == Err(nix::errno::Errno::EPERM),
            "{signalled:?}"
        );
        assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err(), "nothing listens");
    }
}
