//! The launch plan: everything about one start of a virtual machine, decided. The supervisor and PID 1 open, make and
//! pass exactly what is listed here; no decision is left to them.

#[cfg(doc)]
use garboard_machine::facts::KvmState;
use garboard_machine::features::Accelerator;
use garboard_machine::overhead::Overhead;
use garboard_machine::tolerant;
use serde::{Deserialize, Deserializer, Serialize};

use super::disk::DiskPlan;
use super::interface::InterfacePlan;
use super::stored::StoredMachine;

/// Version of [`LaunchPlan`]. A plan of another version is not executed but made anew. The plan of a later build is read for its
/// guest, which runs already: what this build does not support of it is left out.
pub const PLAN_VERSION: u32 = 1;

/// The first descriptor number a plan gives away. Below it are the standard streams and what PID 1 may need itself.
pub const FIRST_DESCRIPTOR: i32 = 10;

/// One start of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchPlan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// Whose plan it is.
    pub identity: Identity,
    /// What runs the guest's instructions.
    #[serde(deserialize_with = "accelerator")]
    pub accelerator: Accelerator,
    /// KVM of this host interprets guest code instead of having the processor run it ([`KvmState::Emulated`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interpreted_by_kvm: bool,
    /// QEMU's absolute path, then its arguments.
    pub argv: Vec<String>,
    /// QEMU's whole environment.
    pub environment: Vec<(String, String)>,
    /// What must be open in QEMU, by number, ascending from [`FIRST_DESCRIPTOR`].
    #[serde(deserialize_with = "tolerant::each")]
    pub descriptors: Vec<Descriptor>,
    /// The guest's memory, where it is a memfd that is made before QEMU runs. It comes after [`LaunchPlan::descriptors`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_memory: Option<GuestMemoryPlan>,
    /// Programs that run beside QEMU and end with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "tolerant::each")]
    pub helpers: Vec<HelperPlan>,
    /// Firmware files, if the guest has UEFI or a kernel of its own.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub firmware: FirmwarePlan,
    /// In the order of the manifest.
    #[serde(deserialize_with = "tolerant::each")]
    pub disks: Vec<DiskPlan>,
    /// In the order of the manifest, without those whose state is `absent`.
    #[serde(deserialize_with = "tolerant::each")]
    pub interfaces: Vec<InterfacePlan>,
    /// Serial ports of the guest; today none or one.
    #[serde(deserialize_with = "tolerant::each")]
    pub serials: Vec<SerialPlan>,
    /// Whether there is a screen: [`LaunchPlan`] never lets QEMU listen, clients are handed over (`add_client`).
    pub display: ScreenPlan,
    /// Start and stop.
    pub lifecycle: Lifecycle,
    /// cgroup and limits.
    pub resources: Resources,
    /// What a restart must find again.
    pub stored: StoredMachine,
    /// Notes for the user that are no errors, in order of weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "tolerant::each")]
    pub notes: Vec<Note>,
}

/// A value of a later build is read as the hardware's, as KVM is.
fn accelerator<'de, D: Deserializer<'de>>(input: D) -> Result<Accelerator, D::Error> {
    let known: Option<Accelerator> = tolerant::or_default(input)?;
    Ok(known.unwrap_or(Accelerator::Kvm))
}

/// Whose plan it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Namespace of the VirtualMachineInstance.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, if it has one already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// UUID the guest sees in its SMBIOS table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware_uuid: Option<String>,
}

/// One open descriptor of QEMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its number in QEMU.
    pub number: i32,
    /// What has to be behind it.
    pub purpose: DescriptorPurpose,
}

/// The guest's memory: a memfd. QEMU opens `/proc/self/fd/N` again, which no rule of Landlock's forbids: a memfd has no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestMemoryPlan {
    /// Its number in QEMU.
    pub descriptor: i32,
    /// Its size.
    pub bytes: u64,
}

impl LaunchPlan {
    /// The numbers of all descriptors of QEMU, in the order in which they are handed over.
    pub fn descriptor_numbers(&self) -> impl Iterator<Item = i32> {
        let listed = self.descriptors.iter().map(|descriptor| descriptor.number);
        listed.chain(self.guest_memory.map(|memory| memory.descriptor))
    }
}

/// A program beside QEMU: today passt, one for each interface it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelperPlan {
    /// Name of the interface it serves; QEMU has the other end of its socket ([`DescriptorPurpose::UserNetSocket`]).
    pub interface: String,
    /// The program's absolute path, then its arguments.
    pub argv: Vec<String>,
    /// The number of its socket.
    pub descriptor: i32,
}

/// What a descriptor is. The code that opens them matches without a wildcard, so a new kind cannot be forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename_all_fields = "camelCase")]
pub enum DescriptorPurpose {
    /// Listening unix socket: the supervisor's own QMP monitor.
    MonitorListener,
    /// Listening unix socket: PID 1's monitor, used only when no supervisor is there.
    LastResortMonitorListener,
    /// Listening unix socket: the guest agent's channel.
    AgentListener,
    /// Listening unix socket: serial port `index`.
    SerialListener {
        /// Number of the port, from 0.
        index: u32,
    },
    /// File opened write-only with `O_APPEND`: everything serial port `index` prints.
    SerialLog {
        /// Number of the port, from 0.
        index: u32,
    },
    /// Listening unix socket: slot `slot` of USB redirection.
    UsbRedirListener {
        /// Number of the slot, from 0.
        slot: u32,
    },
    /// One layer of a disk.
    DiskLayer {
        /// Name of the disk and of its volume.
        volume: String,
        /// Which layer.
        layer: Layer,
        /// How it must be opened.
        access: OpenAccess,
        /// Open with `O_DIRECT`.
        direct: bool,
    },
    /// One queue of a tap: `/dev/net/tun` after `TUNSETIFF`.
    Tap {
        /// Name of the interface.
        interface: String,
        /// Number of the queue, from 0.
        queue: u32,
    },
    /// `/dev/vhost-net`, opened once for each queue.
    VhostNet {
        /// Name of the interface.
        interface: String,
        /// Number of the queue, from 0.
        queue: u32,
    },
    /// CHAP's password of a disk on iSCSI, in a memfd.
    IscsiPassword {
        /// Name of the disk and of its volume.
        volume: String,
    },
    /// Connected unix stream socket whose other end is passt.
    UserNetSocket {
        /// Name of the interface.
        interface: String,
    },
    /// UEFI code, opened read-only.
    FirmwareCode,
    /// The VM's own UEFI variables, opened for reading and writing.
    FirmwareVars,
    /// The kernel of `kernelBoot`. QEMU opens `/proc/self/fd/N` again, so the file must be readable for the user QEMU
    /// runs as and allowed by Landlock; a memfd always is.
    Kernel,
    /// The initrd of `kernelBoot`, as [`DescriptorPurpose::Kernel`].
    Initrd,
    /// A kind of a later version. A plan with it can be attached to, but not executed.
    #[serde(other)]
    Unknown,
}

/// Layers of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Layer {
    /// What the guest writes to: the image itself, or the overlay over it.
    Top,
    /// The base of an overlay.
    Base,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OpenAccess {
    /// `O_RDONLY`.
    ReadOnly,
    /// `O_RDWR`.
    ReadWrite,
}

/// What a guest starts from beside its disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename_all_fields = "camelCase")]
pub enum FirmwarePlan {
    /// SeaBIOS, which QEMU finds itself.
    Bios {
        /// A kernel that is loaded instead of a boot sector.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel_boot: Option<KernelBootPlan>,
    },
    /// UEFI in a pair of flash images.
    Uefi {
        /// Path of the code image on the host.
        code: String,
        /// Path of the template of the variables.
        vars_template: String,
        /// Size of the variable store, bytes.
        vars_bytes: u64,
        /// The variables must survive a stop.
        persistent: bool,
        /// A kernel that the firmware is to load.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel_boot: Option<KernelBootPlan>,
    },
}

impl Default for FirmwarePlan {
    fn default() -> Self {
        Self::Bios { kernel_boot: None }
    }
}

/// `firmware.kernelBoot`: files of a container image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelBootPlan {
    /// The container image.
    pub image: String,
    /// Absolute path of the kernel inside of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Absolute path of the initrd inside of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initrd: Option<String>,
}

/// One serial port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SerialPlan {
    /// Number of the port, from 0.
    pub index: u32,
    /// Whether everything it prints is also written to a file.
    pub logged: bool,
}

/// The guest's screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScreenPlan {
    /// A VNC server that accepts only clients handed over with `add_client`.
    Vnc,
    /// No graphics device, or none that this build supports.
    #[serde(other)]
    Absent,
}

/// Start and stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Seconds a guest may take to power down.
    pub grace_period_seconds: u64,
    /// Whether vCPUs run once everything is verified.
    pub start: StartState,
    /// What a reboot of the guest means.
    pub reboot: RebootPolicy,
    /// The guest has ACPI: a power button can be pressed.
    pub acpi: bool,
}

/// State after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StartState {
    /// `startStrategy: Paused`: it is resumed on request.
    Paused,
    /// vCPUs run. Also a value of a later build.
    #[serde(other)]
    Running,
}

/// What a reboot of the guest means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RebootPolicy {
    /// QEMU ends; `SHUTDOWN` comes with reason `guest-reset`.
    Terminate,
    /// The same QEMU starts over. Also a value of a later build.
    #[serde(other)]
    Reboot,
}

/// cgroup and limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// The guest's memory, bytes, as it sees it at boot.
    pub guest_memory_bytes: u64,
    /// vCPUs at boot.
    pub vcpu_count: u32,
    /// What QEMU and our processes need beside the guest's memory.
    pub overhead: Overhead,
    /// Guest memory (or the share of it that is requested) plus overhead, bytes.
    pub memory_request_bytes: u64,
    /// `resources.limits.memory` plus overhead, bytes; `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// `resources.limits.cpu`, thousandths of a CPU; `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit_millis: Option<u64>,
    /// Share under contention, thousandths of a CPU: `resources.requests.cpu` or a tenth of each vCPU.
    pub cpu_request_millis: u64,
    /// The most threads and processes.
    pub pids: u32,
    /// The most bytes that layers and empty disks can take of the machine's scratch directory.
    #[serde(default)]
    pub scratch_bytes: u64,
    /// Most bytes QEMU may lock; `None`: the default of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memlock_bytes: Option<u64>,
}

/// A note for the user that is no error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// Field of the manifest it is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The text.
    pub text: String,
}
