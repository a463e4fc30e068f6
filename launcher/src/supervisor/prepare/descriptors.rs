//! From the plan's list of purposes to open descriptors. A match without a wildcard: a new purpose cannot be
//! forgotten here.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use garboard_agent::client::Plumbed;
use garboard_plan::{Descriptor, DescriptorPurpose, Layer};
use garboard_protocol::paths;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

use super::PrepareError;
use super::sockets::listen;

/// Everything that was opened before, by name; taken out as it is used.
#[derive(Default)]
pub(crate) struct OpenedDescriptors {
    /// Layers of disks, by volume.
    pub(crate) layers: BTreeMap<(String, LayerKey), OwnedFd>,
    /// What the agent made, by interface.
    pub(crate) interfaces: BTreeMap<String, Plumbed>,
    /// Connected sockets of user-mode networks, by interface.
    pub(crate) user_sockets: BTreeMap<String, OwnedFd>,
    /// Passwords of disks on iSCSI, by volume.
    pub(crate) passwords: BTreeMap<String, OwnedFd>,
    /// UEFI code.
    pub(crate) firmware_code: Option<OwnedFd>,
    /// UEFI variables.
    pub(crate) firmware_vars: Option<OwnedFd>,
    /// Kernel of `kernelBoot`.
    pub(crate) kernel: Option<OwnedFd>,
    /// Initrd of `kernelBoot`.
    pub(crate) initrd: Option<OwnedFd>,
}

/// [`Layer`] as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LayerKey {
    /// What the guest writes to.
    Top,
    /// The layer below.
    Base,
}

impl From<Layer> for LayerKey {
    fn from(layer: Layer) -> Self {
        match layer {
            Layer::Top => Self::Top,
            Layer::Base => Self::Base,
        }
    }
}

/// Opens or takes one descriptor.
pub(crate) fn obtain(
    descriptor: &Descriptor,
    directory: &Path,
    stock: &mut OpenedDescriptors,
) -> Result<OwnedFd, PrepareError> {
    let missing = || PrepareError::Unprepared { purpose: format!("{:?}", descriptor.purpose) };
    match &descriptor.purpose {
        DescriptorPurpose::MonitorListener => Ok(listen(directory, paths::MONITOR_SOCKET)?.into()),
        DescriptorPurpose::LastResortMonitorListener => {
            Ok(listen(directory, paths::LAST_RESORT_MONITOR_SOCKET)?.into())
        }
        DescriptorPurpose::AgentListener => Ok(listen(directory, paths::GUEST_AGENT_SOCKET)?.into()),
        DescriptorPurpose::SerialListener { index } => Ok(listen(directory, &paths::serial_socket(*index))?.into()),
        DescriptorPurpose::UsbRedirListener { slot } => {
            Ok(listen(directory, &paths::usb_redirection_slot_socket(*slot))?.into())
        }
        DescriptorPurpose::SerialLog { index } => append(directory, &paths::serial_log(*index)),
        DescriptorPurpose::DiskLayer { volume, layer, .. } => {
            stock.layers.remove(&(volume.clone(), LayerKey::from(*layer))).ok_or_else(missing)
        }
        DescriptorPurpose::Tap { interface, .. } => {
            let taps = stock.interfaces.get_mut(interface).map(|plumbed| &mut plumbed.taps);
            taps.filter(|taps| !taps.is_empty()).map(|taps| taps.remove(0)).ok_or_else(missing)
        }
        DescriptorPurpose::VhostNet { interface, .. } => {
            let vhosts = stock.interfaces.get_mut(interface).map(|plumbed| &mut plumbed.vhosts);
            vhosts.filter(|vhosts| !vhosts.is_empty()).map(|vhosts| vhosts.remove(0)).ok_or_else(missing)
        }
        DescriptorPurpose::IscsiPassword { volume } => stock.passwords.remove(volume).ok_or_else(missing),
        DescriptorPurpose::UserNetSocket { interface } => stock.user_sockets.remove(interface).ok_or_else(missing),
        DescriptorPurpose::FirmwareCode => stock.firmware_code.take().ok_or_else(missing),
        DescriptorPurpose::FirmwareVars => stock.firmware_vars.take().ok_or_else(missing),
        DescriptorPurpose::Kernel => stock.kernel.take().ok_or_else(missing),
        DescriptorPurpose::Initrd => stock.initrd.take().ok_or_else(missing),
        DescriptorPurpose::Unknown => Err(missing()),
    }
}

/// The guest's memory: nothing of it is taken before it is written to. No process that maps it can change its size
/// under the others.
pub(crate) fn guest_memory(bytes: u64) -> Result<OwnedFd, PrepareError> {
    let made = || {
        let memory = memfd_create(c"guest-memory", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&memory, i64::try_from(bytes).map_err(|_| Errno::EFBIG)?)?;
        let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(memory)
    };
    made().map_err(|source| PrepareError::GuestMemory { bytes, source })
}

/// A log file that only grows at its end, so that it can be cut while QEMU holds it. A link at its name is refused.
pub(crate) fn append(directory: &Path, name: &str) -> Result<OwnedFd, PrepareError> {
    let path = directory.join(name);
    let opened =
        OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW).open(&path);
    opened.map(OwnedFd::from).map_err(|source| PrepareError::Open { path, source })
}
