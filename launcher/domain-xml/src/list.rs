//! Disks and interfaces as rows, with the columns of `virsh domblklist` and `virsh domiflist`.

use garboard_machine::process::fdset_path;
use garboard_plan::{DiskSource, LaunchPlan};

use crate::arguments::Arguments;
use crate::devices::{bus, device_kind, medium, model, network};

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// `file`, `block` or `network`.
    pub kind: &'static str,
    /// `disk`, `cdrom` or `lun`.
    pub device: &'static str,
    /// `vda`
    pub target: String,
    /// What it hangs on: `virtio`, `scsi`, `sata` or `usb`.
    pub bus: &'static str,
    /// What QEMU opened; `None`: a drive without a medium.
    pub source: Option<String>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRow {
    /// The name of its tap; `None`: it has none.
    pub interface: Option<String>,
    /// `ethernet` or `user`.
    pub kind: &'static str,
    /// What the guest sees.
    pub model: &'static str,
    /// Six hexadecimal pairs with colons.
    pub mac: String,
}

/// The disks of a plan, in the order of the manifest.
#[must_use]
pub fn block_rows(plan: &LaunchPlan) -> Vec<BlockRow> {
    let row = |disk: &garboard_plan::DiskPlan| BlockRow {
        kind: medium(disk),
        device: device_kind(disk.frontend),
        target: disk.target.clone(),
        bus: bus(disk.frontend),
        source: match &disk.source {
            DiskSource::Iscsi { target, lun, .. } => Some(format!("{target}/{lun}")),
            DiskSource::ContainerDisk { .. }
            | DiskSource::PersistentVolumeClaim { .. }
            | DiskSource::EphemeralClaim { .. }
            | DiskSource::EmptyDisk { .. }
            | DiskSource::HostDisk { .. }
            | DiskSource::CloudInit { .. }
            | DiskSource::FileTree { .. }
            | DiskSource::EmptyDrive => disk.descriptor_sets.first().map(|set| fdset_path(*set)),
        },
    };
    plan.disks.iter().map(row).collect()
}

/// The interfaces of a plan, in the order of the manifest.
#[must_use]
pub fn interface_rows(plan: &LaunchPlan) -> Vec<InterfaceRow> {
    let arguments = Arguments::of(&plan.argv);
    let row = |interface: &garboard_plan::InterfacePlan| {
        let (kind, tap) = network(interface);
        let device = arguments.find("-device", "id", &interface.device);
        let driver = device.map(|device| device.driver()).unwrap_or_default();
        InterfaceRow {
            interface: tap.map(str::to_owned),
            kind,
            model: model(interface, &driver),
            mac: interface.mac.clone(),
        }
    };
    plan.interfaces.iter().map(row).collect()
}
