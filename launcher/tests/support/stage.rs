//! Sets a plan up for real: a fresh process opens everything the plan lists, under exactly the planned numbers, in a
//! network namespace of its own, and then becomes QEMU.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use garboard_plan::{
    BindingPlan, DescriptorPurpose, DiskPlan, DiskSource, FirmwarePlan, ImageFormat, LaunchPlan, Layer, Medium,
    OpenAccess,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::sys::open_tap;

/// Names the QEMU to become instead of the plan's.
pub(crate) const QEMU_VARIABLE: &str = "GARBOARD_STAGE_QEMU";

/// Size of the disks.
const DISK_BYTES: u64 = 1 << 20;

/// More than any plan gives away.
const FILLERS: usize = 400;

/// Becomes QEMU as in `plan`. Returns only if that fails.
pub(crate) fn become_qemu(plan: &LaunchPlan, dir: &Path) -> String {
    // The test runner may have left descriptors open; this process needs none but the standard ones.
    for inherited in 3..i32::try_from(FILLERS).unwrap_or(i32::MAX) {
        let _ = nix::unistd::close(inherited);
    }
    // Everything is opened above the numbers that the plan gives away.
    let fillers: Vec<_> = (0..FILLERS).map_while(|_| File::open("/dev/null").ok()).collect();
    let mut open = Vec::new();
    let has_tap = plan.descriptors.iter().any(|one| matches!(one.purpose, DescriptorPurpose::Tap { .. }));
    if has_tap && let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
        return format!("unshare: {error}");
    }
    for descriptor in &plan.descriptors {
        match open_one(plan, &descriptor.purpose, dir) {
            Ok(fd) => open.push((descriptor.number, fd)),
            Err(error) => return format!("{:?}: {error}", descriptor.purpose),
        }
    }
    if let Some(memory) = plan.guest_memory {
        match guest_memory(memory.bytes) {
            Ok(fd) => open.push((memory.descriptor, fd)),
            Err(error) => return format!("guest memory: {error}"),
        }
    }
    drop(fillers);
    for (number, fd) in &open {
        match fcntl(fd.as_fd(), FcntlArg::F_DUPFD(*number)) {
            Ok(got) if got == *number => {}
            Ok(got) => return format!("descriptor {number} was in use, got {got}"),
            Err(error) => return format!("dup to {number}: {error}"),
        }
    }
    let binary = std::env::var(QEMU_VARIABLE).unwrap_or_else(|_| plan.argv[0].clone());
    let environment = plan.environment.iter().cloned();
    Command::new(binary).args(&plan.argv[1..]).envs(environment).exec().to_string()
}

fn guest_memory(bytes: u64) -> std::io::Result<OwnedFd> {
    let memory = nix::sys::memfd::memfd_create(c"guest-memory", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)?;
    File::from(memory.try_clone()?).set_len(bytes)?;
    Ok(memory)
}

/// Opens one descriptor.
fn open_one(plan: &LaunchPlan, purpose: &DescriptorPurpose, dir: &Path) -> std::io::Result<OwnedFd> {
    let listen = |name: &str| UnixListener::bind(dir.join(name)).map(OwnedFd::from);
    let append = |name: &str| OpenOptions::new().append(true).create(true).open(dir.join(name)).map(OwnedFd::from);
    let fd = match purpose {
        DescriptorPurpose::MonitorListener => listen("monitor.sock")?,
        DescriptorPurpose::LastResortMonitorListener => listen("monitor-init.sock")?,
        DescriptorPurpose::AgentListener => listen("agent.sock")?,
        DescriptorPurpose::SerialListener { index } => listen(&format!("serial{index}.sock"))?,
        DescriptorPurpose::UsbRedirListener { slot } => listen(&format!("usbredir{slot}.sock"))?,
        DescriptorPurpose::SerialLog { index } => append(&format!("serial{index}.log"))?,
        DescriptorPurpose::DiskLayer { volume, layer, access, direct } => {
            let disk = plan.disks.iter().find(|disk| disk.volume == *volume).expect("a planned disk");
            let flags = if *direct { OFlag::O_DIRECT.bits() } else { 0 };
            let path = make_layer(disk, *layer, dir)?;
            let writes = *access == OpenAccess::ReadWrite;
            OpenOptions::new().read(true).write(writes).custom_flags(flags).open(path)?.into()
        }
        DescriptorPurpose::Tap { interface, .. } => {
            let one = plan.interfaces.iter().find(|one| one.name == *interface).expect("a planned interface");
            match &one.binding {
                BindingPlan::Masquerade { tap, .. } | BindingPlan::Bridge { tap } => open_tap(tap, one.queues)?.into(),
                BindingPlan::User { .. } | BindingPlan::Passt { .. } => panic!("a tap for {:?}", one.binding),
            }
        }
        DescriptorPurpose::VhostNet { .. } => OpenOptions::new().read(true).write(true).open("/dev/vhost-net")?.into(),
        DescriptorPurpose::UserNetSocket { .. } => {
            let (ours, theirs) = UnixStream::pair()?;
            // The other end stays open as long as QEMU: it is inherited, and no process reads it.
            fcntl(theirs.as_fd(), FcntlArg::F_DUPFD(600))?;
            ours.into()
        }
        DescriptorPurpose::FirmwareCode | DescriptorPurpose::FirmwareVars => open_firmware(plan, purpose, dir)?,
        DescriptorPurpose::IscsiPassword { .. } => {
            let path = dir.join("password");
            std::fs::write(&path, "a password of twelve")?;
            File::open(path)?.into()
        }
        DescriptorPurpose::Kernel => kernel(dir)?.into(),
        DescriptorPurpose::Initrd => {
            let path = dir.join("initrd");
            std::fs::write(&path, [0_u8; 512])?;
            File::open(path)?.into()
        }
        DescriptorPurpose::Unknown => panic!("a plan of a later version"),
    };
    Ok(fd)
}

/// A file for one layer of a disk, in the format the plan expects; returns its path.
fn make_layer(disk: &DiskPlan, layer: Layer, dir: &Path) -> std::io::Result<PathBuf> {
    let (is_top, path) = match layer {
        Layer::Top => (true, dir.join(format!("{}.top", disk.volume))),
        Layer::Base => (false, dir.join(format!("{}.base", disk.volume))),
    };
    let medium = match &disk.source {
        DiskSource::PersistentVolumeClaim { medium, .. } | DiskSource::EphemeralClaim { medium, .. } => *medium,
        DiskSource::ContainerDisk { .. }
        | DiskSource::EmptyDisk { .. }
        | DiskSource::HostDisk { .. }
        | DiskSource::Iscsi { .. }
        | DiskSource::CloudInit { .. }
        | DiskSource::FileTree { .. }
        | DiskSource::EmptyDrive => Medium::File,
    };
    let format = if is_top && disk.overlay { ImageFormat::Qcow2 } else { disk.format };
    let size = DISK_BYTES.to_string();
    let status =
        Command::new("qemu-img").args(["create", "-q", "-f", format.as_str()]).arg(&path).arg(size).status()?;
    assert!(status.success(), "qemu-img: {status}");
    if let Some(bytes) = disk.room_bytes.filter(|_| is_top) {
        OpenOptions::new().write(true).open(&path)?.set_len(bytes)?;
    }
    if medium == Medium::BlockDevice && !(is_top && disk.overlay) {
        return loop_device(&path);
    }
    Ok(path)
}

fn loop_device(path: &Path) -> std::io::Result<PathBuf> {
    let output = Command::new("losetup").args(["--find", "--show"]).arg(path).output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(std::io::Error::other(format!("no loop device: {text}")));
    }
    let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let mut list = OpenOptions::new().append(true).create(true).open(path.with_file_name("loops"))?;
    writeln!(list, "{}", device.display())?;
    Ok(device)
}

fn open_firmware(plan: &LaunchPlan, purpose: &DescriptorPurpose, dir: &Path) -> std::io::Result<OwnedFd> {
    let FirmwarePlan::Uefi { code, vars_template, .. } = &plan.firmware else { panic!("UEFI files without UEFI") };
    if *purpose == DescriptorPurpose::FirmwareCode {
        return Ok(File::open(code)?.into());
    }
    let vars = dir.join("vars.fd");
    std::fs::copy(vars_template, &vars)?;
    Ok(OpenOptions::new().read(true).write(true).open(vars)?.into())
}

/// The least that QEMU takes for a Linux kernel (`Documentation/arch/x86/boot.rst`): magic, protocol 2.06, four setup
/// sectors, highest address of an initrd. It is never run.
fn kernel(dir: &Path) -> std::io::Result<File> {
    let mut image = vec![0_u8; 64 << 10];
    image[0x1f1] = 4;
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x0206_u16.to_le_bytes());
    image[0x22c..0x230].copy_from_slice(&0x37ff_ffff_u32.to_le_bytes());
    let path = dir.join("kernel");
    std::fs::write(&path, image)?;
    File::open(path)
}
