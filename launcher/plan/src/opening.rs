//! How the bytes under a disk are opened. The supervisor opens them before there is a plan, and the planner decides
//! how QEMU uses them: both ask here, because QEMU takes a descriptor only in exactly the mode that its node has.

use garboard_api::v1::{Disk, VirtualMachineInstanceSpec, Volume, VolumeSource};

/// Whether a claim, a DataVolume or a host disk is opened without the right to write: its claim is read-only, an overlay
/// takes the writes, or its disk cannot be written.
#[must_use]
pub fn is_opened_read_only(spec: &VirtualMachineInstanceSpec, volume: &Volume) -> bool {
    let disk = spec.domain.devices.disks.iter().find(|disk| disk.name == volume.name);
    Base::of(volume).is_only_read || disk.is_some_and(is_read_only)
}

/// Whether a fresh layer takes what the guest writes to this volume: over an image or a claim that others read, unless
/// its disk cannot be written anyway.
#[must_use]
pub fn has_overlay(spec: &VirtualMachineInstanceSpec, volume: &Volume) -> bool {
    let disk = spec.domain.devices.disks.iter().find(|disk| disk.name == volume.name);
    Base::of(volume).has_layer && !disk.is_some_and(is_read_only)
}

/// What the source of a volume says of writing, whatever its disk says.
struct Base {
    /// A claim of which the guest changes nothing.
    is_only_read: bool,
    /// A fresh layer takes what the guest writes.
    has_layer: bool,
}

impl Base {
    fn of(volume: &Volume) -> Self {
        match volume.source() {
            Some(VolumeSource::PersistentVolumeClaim(claim)) => {
                Self { is_only_read: claim.read_only == Some(true), has_layer: false }
            }
            Some(VolumeSource::Ephemeral(_)) => Self { is_only_read: true, has_layer: true },
            Some(VolumeSource::ContainerDisk(_)) => Self { is_only_read: false, has_layer: true },
            // Written where it is, made at each start, or no disk.
            Some(
                VolumeSource::DataVolume(_)
                | VolumeSource::HostDisk(_)
                | VolumeSource::Iscsi(_)
                | VolumeSource::EmptyDisk(_)
                | VolumeSource::CloudInitConfigDrive(_)
                | VolumeSource::CloudInitNoCloud(_)
                | VolumeSource::ConfigMap(_)
                | VolumeSource::Secret(_)
                | VolumeSource::DownwardApi(_)
                | VolumeSource::ServiceAccount(_)
                | VolumeSource::Sysprep(_)
                | VolumeSource::ContainerPath(_)
                | VolumeSource::DownwardMetrics(_)
                | VolumeSource::MemoryDump(_),
            )
            | None => Self { is_only_read: false, has_layer: false },
        }
    }
}

/// Whether the manifest makes this disk read-only. No cdrom drive of QEMU can write, also with `readonly: false`.
pub(super) fn is_read_only(disk: &Disk) -> bool {
    let lun = disk.lun.as_ref().is_some_and(|lun| lun.readonly == Some(true));
    let plain = disk.disk.as_ref().is_some_and(|disk| disk.readonly == Some(true));
    disk.cdrom.is_some() || lun || plain
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_read(target: Value, source: &Value) -> bool {
        let mut disk = target;
        disk["name"] = json!("d");
        let mut volume = source.clone();
        volume["name"] = json!("d");
        let spec = json!({ "domain": { "devices": { "disks": [disk] } }, "volumes": [volume] });
        let spec: VirtualMachineInstanceSpec = serde_json::from_value(spec).unwrap();
        is_opened_read_only(&spec, &spec.volumes[0])
    }

    #[test]
    fn what_the_guest_cannot_write_is_opened_for_reading() {
        let sources = [
            json!({ "persistentVolumeClaim": { "claimName": "c" } }),
            json!({ "dataVolume": { "name": "c" } }),
            json!({ "hostDisk": { "path": "/data/disk.img", "type": "Disk" } }),
        ];
        for source in &sources {
            assert!(is_read(json!({ "cdrom": { "bus": "sata" } }), source), "{source}");
            assert!(is_read(json!({ "cdrom": { "bus": "sata", "readonly": false } }), source), "{source}");
            assert!(is_read(json!({ "disk": { "bus": "virtio", "readonly": true } }), source), "{source}");
            assert!(is_read(json!({ "lun": { "bus": "scsi", "readonly": true } }), source), "{source}");
            assert!(!is_read(json!({ "disk": { "bus": "virtio" } }), source), "{source}");
            assert!(!is_read(json!({ "lun": { "bus": "scsi" } }), source), "{source}");
        }
    }

    #[test]
    fn only_what_a_guest_can_write_has_an_overlay() {
        let over = |target: Value, source: Value| {
            let (mut disk, mut volume) = (target, source);
            disk["name"] = json!("d");
            volume["name"] = json!("d");
            let spec = json!({ "domain": { "devices": { "disks": [disk] } }, "volumes": [volume] });
            let spec: VirtualMachineInstanceSpec = serde_json::from_value(spec).unwrap();
            has_overlay(&spec, &spec.volumes[0])
        };
        let image = || json!({ "containerDisk": { "image": "i" } });
        let claim = || json!({ "ephemeral": { "persistentVolumeClaim": { "claimName": "c" } } });
        for source in [image, claim] {
            assert!(over(json!({ "disk": { "bus": "virtio" } }), source()));
            assert!(!over(json!({ "cdrom": { "bus": "sata" } }), source()));
            assert!(!over(json!({ "disk": { "bus": "virtio", "readonly": true } }), source()));
        }
        assert!(!over(json!({ "disk": { "bus": "virtio" } }), json!({ "emptyDisk": { "capacity": "1Gi" } })));
    }

    #[test]
    fn a_volume_can_forbid_writing_itself() {
        let disk = || json!({ "disk": { "bus": "virtio" } });
        assert!(is_read(disk(), &json!({ "persistentVolumeClaim": { "claimName": "c", "readOnly": true } })));
        assert!(!is_read(disk(), &json!({ "persistentVolumeClaim": { "claimName": "c", "readOnly": false } })));
        assert!(is_read(disk(), &json!({ "ephemeral": { "persistentVolumeClaim": { "claimName": "c" } } })));
    }
}
