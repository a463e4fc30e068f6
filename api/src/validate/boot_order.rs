//! Disks and their volumes, and the order in which disks and interfaces are tried at boot.

use std::collections::BTreeSet;

use super::report::{Report, duplicate, invalid, not_found, required};
use super::subject::{Subject, text};
use crate::cluster::Gate;
use crate::fault::{FieldPath, SentText};
use crate::v1::{Disk, Volume};

/// Judges each disk together with the volume of its name, then boot orders across all devices.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("domain.devices.disks");
    let mut taken = BTreeSet::new();
    for (index, disk) in subject.spec.domain.devices.disks.iter().enumerate() {
        let at = list.index(index);
        // The last volume of a name counts, as where KubeVirt indexes volumes by name.
        match subject.spec.volumes.iter().rev().find(|volume| volume.name == disk.name) {
            Some(volume) => volume_fits(disk, volume, &at, report),
            None => volume_missing(subject, disk, &at, report),
        }
        if let Some(order) = disk.boot_order {
            if order == 0 {
                report.push(positive(at.child("bootOrder")));
            }
            if !taken.insert(order) {
                report.push(taken_already(at.child("bootOrder"), order));
            }
        }
    }
    let list = subject.path("domain.devices.interfaces");
    for (index, interface) in subject.spec.domain.devices.interfaces.iter().enumerate() {
        let Some(order) = interface.boot_order else { continue };
        let at = list.index(index).child("bootOrder");
        if order == 0 {
            report.push(positive(at).field(format!("{}[{index}].bootOrder", subject.at)));
        } else if !taken.insert(order) {
            report.push(taken_already(at, order));
        }
    }
}

/// Every volume needs a disk or a filesystem of its name, apart from the target of a memory dump.
pub(crate) fn every_volume_is_used(subject: &Subject<'_>, report: &mut Report) {
    let devices = &subject.spec.domain.devices;
    for (index, volume) in subject.spec.volumes.iter().enumerate() {
        let used = devices.disks.iter().any(|disk| disk.name == volume.name)
            || devices.filesystems.iter().any(|filesystem| filesystem.name == volume.name);
        if !used && volume.memory_dump.is_none() {
            report.push(
                invalid(
                    subject.path("volumes").index(index).child("name"),
                    format!("no disk and no filesystem is named `{}`", volume.name),
                )
                .instead("add an entry of that name to `domain.devices.disks`")
                .field(format!("{}.domain.volumes[{index}].name", subject.at)),
            );
        }
    }
}

fn positive(at: FieldPath) -> crate::fault::Fault {
    invalid(at, "the boot order begins at 1").instead("write 1 or more, or remove it")
}

fn taken_already(at: FieldPath, order: u32) -> crate::fault::Fault {
    duplicate(at, format!("another device is number {order} in the boot order already"))
        .instead("give every device a number of its own")
}

fn volume_missing(subject: &Subject<'_>, disk: &Disk, at: &FieldPath, report: &mut Report) {
    let names: Vec<&str> = subject.spec.volumes.iter().map(|volume| volume.name.as_str()).collect();
    if disk.cdrom.is_none() {
        let guess = crate::suggest::closest(&disk.name, &names)
            .map(|name| format!(" (did you mean `{name}`?)"))
            .unwrap_or_default();
        report.push(
            not_found(at.child("name"), format!("no volume is named `{}`", disk.name))
                .instead(format!("add a volume of that name to `volumes`, or correct the name{guess}"))
                .sent(SentText::NoVolume { name: disk.name.clone() }),
        );
    } else if !subject.config.has(Gate::DeclarativeHotplugVolumes) {
        report.push(
            invalid(
                at.child("name"),
                "a CD-ROM drive without a volume needs the feature gate DeclarativeHotplugVolumes",
            )
            .instead(format!("add a volume named `{}` to `volumes`, or switch the gate on", disk.name)),
        );
    }
}

fn volume_fits(disk: &Disk, volume: &Volume, at: &FieldPath, report: &mut Report) {
    if disk.lun.is_some() && volume.persistent_volume_claim.is_none() && volume.data_volume.is_none() {
        report.push(
            invalid(
                at.child("lun"),
                format!("the volume `{}` is not a block device that can be passed on", volume.name),
            )
            .instead("use a `persistentVolumeClaim` or `dataVolume`, or write `disk` for `lun`"),
        );
    }
    if volume.container_path.is_some() {
        report.push(
            invalid(at.child("name"), format!("the volume `{}` is a container path, which is no disk", volume.name))
                .instead("list it under `domain.devices.filesystems`"),
        );
    }
    if volume.downward_metrics.is_none() {
        return;
    }
    match &disk.disk {
        None => report.push(
            required(at.child("disk"), "downward metrics are a plain disk").instead("write `disk: {bus: virtio}`"),
        ),
        Some(target) if !matches!(text(&target.bus), "" | "virtio") => report.push(
            invalid(at.child("disk").child("bus"), "downward metrics sit on the virtio bus").instead("write `virtio`"),
        ),
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults, faults_in, refused};

    #[test]
    fn each_device_has_a_number_of_its_own() {
        accepted(&[&[
            ("spec.domain.devices.disks[0].bootOrder", json!(2)),
            ("spec.domain.devices.interfaces[0].bootOrder", json!(1)),
        ]]);
        refused(&[
            (
                &[
                    ("spec.domain.devices.disks[0].bootOrder", json!(1)),
                    ("spec.domain.devices.disks[1].bootOrder", json!(1)),
                ],
                "spec.domain.devices.disks[1].bootOrder",
                "number 1",
            ),
            (
                &[
                    ("spec.domain.devices.disks[0].bootOrder", json!(1)),
                    ("spec.domain.devices.interfaces[0].bootOrder", json!(1)),
                ],
                "spec.domain.devices.interfaces[0].bootOrder",
                "number 1",
            ),
            (
                &[("spec.domain.devices.disks[0].bootOrder", json!(0))],
                "spec.domain.devices.disks[0].bootOrder",
                "begins at 1",
            ),
        ]);
        let faults = faults(&[("spec.domain.devices.interfaces[0].bootOrder", json!(0))]);
        assert_eq!(faults[0].path.as_str(), "spec.domain.devices.interfaces[0].bootOrder");
        assert_eq!(faults[0].field, "spec[0].bootOrder");
    }

    #[test]
    fn a_disk_needs_a_volume_that_fits() {
        refused(&[
            (
                &[("spec.domain.devices.disks[0].name", json!("rot"))],
                "spec.domain.devices.disks[0].name",
                "did you mean `root`?",
            ),
            (
                &[("spec.domain.devices.disks[0]", json!({"name": "root", "lun": {"bus": "scsi"}}))],
                "spec.domain.devices.disks[0].lun",
                "persistentVolumeClaim",
            ),
            (
                &[("spec.volumes[2]", json!({"name": "x", "emptyDisk": {"capacity": "1Gi"}}))],
                "spec.volumes[2].name",
                "no disk",
            ),
            (
                &[
                    ("spec.domain.devices.disks[0].disk.bus", json!("sata")),
                    ("spec.volumes[0]", json!({"name": "root", "downwardMetrics": {}})),
                ],
                "spec.domain.devices.disks[0].disk.bus",
                "virtio",
            ),
        ]);
    }

    #[test]
    fn an_empty_drive_needs_its_gate() {
        let changes = [("spec.domain.devices.disks[2]", json!({"name": "drive", "cdrom": {"bus": "sata"}}))];
        accepted(&[&changes]);
        let faults = faults_in(&changes, &ClusterConfig::offline().without(Gate::DeclarativeHotplugVolumes));
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].field, "spec.domain.devices.disks[2].name");
    }
}
