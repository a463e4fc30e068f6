//! A monitor to test against: the fake, or a QEMU of our own.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use garboard_qmp::testing::{DescriptorIdentity, FakeMonitor, GuestUnplug};
use garboard_qmp::{ConnectOptions, Monitor};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// What the QEMU of the tests has: a USB bus (devices there go without the guest's help), a PCIe port (devices there
/// need it), and a VNC server that listens nowhere.
const ARGUMENTS: &[&str] = &[
    "-S",
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-vnc",
    "none",
    "-machine",
    "q35,accel=tcg",
    "-m",
    "64",
    "-device",
    "pcie-root-port,id=port0,chassis=1,slot=1",
    "-device",
    "qemu-xhci,id=usb",
];

pub(crate) struct Backend {
    pub(crate) monitor: Monitor,
    pub(crate) directory: TempDir,
    kind: Kind,
}

enum Kind {
    Fake(FakeMonitor),
    Qemu(Qemu),
}

pub(crate) struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The QEMU to test with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// `qemu-system-x86_64` of the path, or what `GARBOARD_TEST_QEMU` names.
    Installed,
    /// That of the images, which `scripts/fetch-qemu10` puts beside it.
    OfImages,
}

/// Its program; prints why there is none.
fn qemu_binary(which: Which) -> Option<PathBuf> {
    let binary = match which {
        Which::Installed => std::env::var_os("GARBOARD_TEST_QEMU").unwrap_or_else(|| "qemu-system-x86_64".into()),
        Which::OfImages => crate::qemu_of_images::directory().join("qemu-system-x86_64").into(),
    };
    match Command::new(&binary).arg("--version").stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Some(PathBuf::from(binary)),
        other => {
            let remedy = match which {
                Which::Installed => "install qemu-system-x86",
                Which::OfImages => "run scripts/fetch-qemu10",
            };
            eprintln!("skipped: {} does not run ({other:?}); {remedy}", binary.display());
            None
        }
    }
}

/// Starts a QEMU whose monitor listens on `path`. The socket is ours and reaches QEMU as a descriptor, so that
/// connecting never comes too early.
pub(crate) fn start_qemu(which: Which, path: &Path, more_arguments: &[&str]) -> Option<Qemu> {
    let binary = qemu_binary(which)?;
    let listener = UnixListener::bind(path).unwrap();
    fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let chardev = format!("socket,id=monitor,fd={},server=on,wait=off", listener.as_raw_fd());
    let mut command = Command::new(binary);
    command.args(ARGUMENTS).args(["-chardev", &chardev, "-mon", "chardev=monitor,mode=control"]).args(more_arguments);
    Some(Qemu(command.stdin(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap()))
}

impl Backend {
    pub(crate) async fn fake() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fake = FakeMonitor::listen(&directory.path().join("qmp.sock")).unwrap();
        Self::connected(directory, Kind::Fake(fake)).await
    }

    pub(crate) async fn qemu(which: Which) -> Option<Self> {
        Self::qemu_with(which, &[]).await
    }

    /// The same with more arguments.
    pub(crate) async fn qemu_with(which: Which, more_arguments: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let qemu = start_qemu(which, &directory.path().join("qmp.sock"), more_arguments)?;
        Some(Self::connected(directory, Kind::Qemu(qemu)).await)
    }

    async fn connected(directory: TempDir, kind: Kind) -> Self {
        let path = directory.path().join("qmp.sock");
        let (monitor, _) = Monitor::connect(path, ConnectOptions::named("contract")).await.unwrap();
        Self { monitor, directory, kind }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("qmp.sock")
    }

    pub(crate) fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Qemu(_))
    }

    /// From now on the guest does not answer unplug requests. A guest that does not run never does.
    pub(crate) fn guest_ignores_unplug(&self) {
        if let Kind::Fake(fake) = &self.kind {
            fake.machine(|machine| machine.guest_unplug = GuestUnplug::Ignores);
        }
    }

    /// Which file the descriptor of this set, or this number inside of QEMU, refers to.
    pub(crate) fn descriptor_identity(&self, set: i64, number: i64) -> DescriptorIdentity {
        use std::os::unix::fs::MetadataExt as _;
        match &self.kind {
            Kind::Fake(fake) => fake.machine(|machine| machine.descriptor_set(set)[0]),
            Kind::Qemu(_) => {
                let metadata = std::fs::metadata(format!("/proc/{}/fd/{number}", self.pid())).unwrap();
                DescriptorIdentity { device: metadata.dev(), inode: metadata.ino() }
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        match &self.kind {
            Kind::Fake(_) => panic!("the fake has no process"),
            Kind::Qemu(qemu) => Pid::from_raw(qemu.0.id().try_into().unwrap()),
        }
    }
}
