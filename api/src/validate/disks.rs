//! The disks of a guest: names, device kinds, buses and tuning, one disk at a time.
//!
//! What a disk has to do with its volume or with other devices is in `boot_order`; block sizes are in `block_size`.

use super::addresses::is_pci_address;
use super::block_size;
use super::names::label_problem;
use super::report::{Report, duplicate, invalid, unsupported};
use super::subject::{Subject, text};
use crate::fault::FieldPath;
use crate::names::{DISK_SERIAL_MAX, is_of_disk_serials};
use crate::suggest::one_of;
use crate::v1::Disk;

const BUSES: &[&str] = &["virtio", "scsi", "sata", "usb"];
const CACHE_MODES: &[&str] = &["none", "writethrough", "writeback"];
const IO_MODES: &[&str] = &["native", "threads"];
const ERROR_POLICIES: &[&str] = &["stop", "ignore", "report", "enospace"];
const TRAY_STATES: &[&str] = &["open", "closed"];

/// How the guest sees a disk. The order is the one in which KubeVirt looks when several are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Disk,
    Lun,
    Cdrom,
}

impl Kind {
    fn field(self) -> &'static str {
        match self {
            Kind::Disk => "disk",
            Kind::Lun => "lun",
            Kind::Cdrom => "cdrom",
        }
    }
}

/// The device kind of a disk and the bus it names; an empty bus is chosen by the defaults.
pub(crate) fn target(disk: &Disk) -> Option<(Kind, &str)> {
    if let Some(target) = &disk.disk {
        return Some((Kind::Disk, text(&target.bus)));
    }
    if let Some(target) = &disk.lun {
        return Some((Kind::Lun, text(&target.bus)));
    }
    disk.cdrom.as_ref().map(|target| (Kind::Cdrom, text(&target.bus)))
}

/// One disk under judgement.
pub(crate) struct Place<'a> {
    /// The disk.
    pub(crate) disk: &'a Disk,
    /// Where it stands.
    pub(crate) at: FieldPath,
    /// Where the list stands that it is in.
    list: FieldPath,
    index: usize,
}

impl Place<'_> {
    /// The spelling in which KubeVirt reports some rules about disks: the list's path twice.
    fn doubled(&self, field: &str) -> String {
        format!("{}.domain.devices.disks[{}]{field}", self.list, self.index)
    }
}

/// Judges every disk by itself.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("domain.devices.disks");
    let disks = &subject.spec.domain.devices.disks;
    for (index, disk) in disks.iter().enumerate() {
        let place = Place { disk, at: list.index(index), list: list.clone(), index };
        if let Some(first) = disks.iter().take(index).position(|other| other.name == disk.name) {
            report.push(
                duplicate(place.at.child("name"), format!("another disk is named `{}` too: number {first}", disk.name))
                    .instead("give every disk a name of its own"),
            );
        }
        name(&place, report);
        device_kind(&place, report);
        bus(&place, report);
        pci_address(&place, report);
        serial(&place, report);
        tuning(&place, report);
        block_size::check(&place, report);
    }
}

fn name(place: &Place<'_>, report: &mut Report) {
    if let Some(problem) = label_problem(&place.disk.name) {
        report.push(
            invalid(place.at.child("name"), format!("the name `{}` {problem}", place.disk.name))
                .instead("write a DNS label, such as `root`, for the disk and for its volume")
                .field(place.doubled(".name")),
        );
    }
}

fn device_kind(place: &Place<'_>, report: &mut Report) {
    let disk = place.disk;
    let kinds = [disk.disk.is_some(), disk.lun.is_some(), disk.cdrom.is_some()];
    if kinds.into_iter().filter(|set| *set).count() > 1 {
        report.push(
            invalid(place.at.clone(), "is more than one kind of device")
                .instead("keep one of `disk`, `lun` and `cdrom`"),
        );
    }
    if let Some(tray) = disk.cdrom.as_ref().and_then(|cdrom| cdrom.tray.as_deref())
        && !tray.is_empty()
        && !TRAY_STATES.contains(&tray)
    {
        report.push(
            unsupported(place.at.child("cdrom").child("tray"), format!("a tray cannot be `{tray}`"))
                .instead(one_of(tray, TRAY_STATES)),
        );
    }
}

fn bus(place: &Place<'_>, report: &mut Report) {
    let Some((kind, bus)) = target(place.disk) else { return };
    let at = place.at.child(kind.field()).child("bus");
    if place.disk.lun.as_ref().is_some_and(|lun| lun.reservation == Some(true)) && bus != "scsi" {
        report.push(
            invalid(place.at.child("lun").child("bus"), "persistent reservations exist on the SCSI bus only")
                .instead("write `scsi`, or remove `reservation`"),
        );
    }
    if bus.is_empty() {
        return;
    }
    if bus == "ide" {
        report.push(unsupported(at, "the machine has no IDE bus").instead("write `sata` or `virtio`"));
    } else if !BUSES.contains(&bus) {
        report.push(unsupported(at, format!("there is no disk bus `{bus}`")).instead(one_of(bus, BUSES)));
    } else if bus == "virtio" && kind == Kind::Cdrom {
        report
            .push(invalid(at, "a CD-ROM drive cannot sit on the virtio bus").instead("write `sata`, `scsi` or `usb`"));
    } else if bus == "sata" && place.disk.disk.as_ref().is_some_and(|disk| disk.readonly == Some(true)) {
        report.push(
            invalid(place.at.child("disk").child("readonly"), "a SATA disk cannot be read-only")
                .instead("remove `readonly`, or write the bus `virtio` or `scsi`")
                .field(at.to_string()),
        );
    }
    if place.disk.dedicated_io_thread == Some(true) && bus != "virtio" {
        report.push(
            unsupported(
                place.at.child("dedicatedIOThread"),
                format!("a disk on the {bus} bus cannot have an I/O thread of its own"),
            )
            .instead("write the bus `virtio`, or remove `dedicatedIOThread`")
            .field(place.doubled("")),
        );
    }
}

fn pci_address(place: &Place<'_>, report: &mut Report) {
    let Some(target) = &place.disk.disk else { return };
    let address = text(&target.pci_address);
    if address.is_empty() {
        return;
    }
    let at = place.at.child("disk").child("pciAddress");
    let sent = format!("{}.domain.devices.disks.disk[{}].pciAddress", place.list, place.index);
    if text(&target.bus) != "virtio" {
        report.push(
            invalid(at.clone(), "only a disk on the virtio bus has a PCI address of its own")
                .instead("write the bus `virtio`, or remove `pciAddress`")
                .field(sent.clone()),
        );
    }
    if !is_pci_address(address) {
        report.push(
            invalid(at, format!("`{address}` is not a PCI address"))
                .instead("write it as domain:bus:slot.function in hexadecimal, such as `0000:04:10.0`")
                .field(sent),
        );
    }
}

fn serial(place: &Place<'_>, report: &mut Report) {
    let serial = text(&place.disk.serial);
    if serial.is_empty() {
        return;
    }
    let at = place.at.child("serial");
    if !serial.chars().all(is_of_disk_serials) {
        report.push(
            invalid(
                at.clone(),
                format!("the serial number `{}` has a character a disk cannot show", serial.escape_debug()),
            )
            .instead("write letters, digits, `_`, `.`, `+` and `-` only"),
        );
    }
    let length = serial.chars().count();
    if length > DISK_SERIAL_MAX {
        report.push(
            invalid(at, format!("the serial number is {length} characters long"))
                .instead(format!("write at most {DISK_SERIAL_MAX}")),
        );
    }
}

fn tuning(place: &Place<'_>, report: &mut Report) {
    let disk = place.disk;
    let cache = text(&disk.cache);
    if !cache.is_empty() && !CACHE_MODES.contains(&cache) {
        report.push(
            unsupported(place.at.child("cache"), format!("there is no cache mode `{cache}`"))
                .instead(one_of(cache, CACHE_MODES)),
        );
    } else if disk.shareable == Some(true) && !cache.is_empty() && cache != "none" {
        report.push(
            invalid(place.at.child("cache"), format!("a shareable disk cannot be cached, and `{cache}` caches it"))
                .instead("write `none`, or remove `shareable`"),
        );
    }
    let io = text(&disk.io);
    if !io.is_empty() && !IO_MODES.contains(&io) {
        report.push(
            unsupported(place.at.child("io"), format!("there is no I/O mode `{io}`"))
                .instead(one_of(io, IO_MODES))
                .field(place.doubled(".io")),
        );
    }
    if let Some(policy) = &disk.error_policy
        && !ERROR_POLICIES.contains(&policy.as_str())
    {
        report.push(
            unsupported(place.at.child("errorPolicy"), format!("there is no error policy `{policy}`"))
                .instead(one_of(policy, ERROR_POLICIES)),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, faults, refused};

    const FIRST: &str = "spec.domain.devices.disks[0]";

    #[test]
    fn what_a_disk_may_be() {
        accepted(&[
            &[("spec.domain.devices.disks[0].disk.bus", json!("usb"))],
            &[("spec.domain.devices.disks[0].disk.pciAddress", json!("0000:81:01.0"))],
            &[("spec.domain.devices.disks[0].serial", json!("SN-0001_a.b+c"))],
            &[("spec.domain.devices.disks[0].serial", json!("x".repeat(256)))],
            &[("spec.domain.devices.disks[0].dedicatedIOThread", json!(true))],
            &[
                ("spec.domain.devices.disks[0].disk", json!(null)),
                ("spec.domain.devices.disks[0].cdrom.bus", json!("sata")),
            ],
            &[
                ("spec.domain.devices.disks[0].shareable", json!(true)),
                ("spec.domain.devices.disks[0].cache", json!("none")),
            ],
        ]);
    }

    #[test]
    fn what_a_disk_may_not_be() {
        refused(&[
            (
                &[("spec.domain.devices.disks[1].name", json!("root"))],
                "spec.domain.devices.disks[1].name",
                "named `root`",
            ),
            (
                &[("spec.domain.devices.disks[0].name", json!("with.dot"))],
                "spec.domain.devices.disks[0].name",
                "has `.`",
            ),
            (&[("spec.domain.devices.disks[0].lun", json!({}))], FIRST, "more than one kind"),
            (
                &[("spec.domain.devices.disks[0].disk.bus", json!("ide"))],
                "spec.domain.devices.disks[0].disk.bus",
                "IDE",
            ),
            (
                &[("spec.domain.devices.disks[0].disk.bus", json!("virito"))],
                "spec.domain.devices.disks[0].disk.bus",
                "did you mean `virtio`?",
            ),
            (
                &[
                    ("spec.domain.devices.disks[0].disk", json!(null)),
                    ("spec.domain.devices.disks[0].cdrom", json!({"bus": "virtio"})),
                ],
                "spec.domain.devices.disks[0].cdrom.bus",
                "CD-ROM",
            ),
            (
                &[
                    ("spec.domain.devices.disks[0].disk", json!(null)),
                    ("spec.domain.devices.disks[0].cdrom", json!({"tray": "ajar"})),
                ],
                "spec.domain.devices.disks[0].cdrom.tray",
                "`ajar`",
            ),
            (
                &[("spec.domain.devices.disks[0].disk", json!({"bus": "sata", "readonly": true}))],
                "spec.domain.devices.disks[0].disk.readonly",
                "read-only",
            ),
            (
                &[("spec.domain.devices.disks[0].disk", json!({"bus": "virtio", "pciAddress": "junk"}))],
                "spec.domain.devices.disks[0].disk.pciAddress",
                "0000:04:10.0",
            ),
            (
                &[("spec.domain.devices.disks[0].serial", json!("$(id)"))],
                "spec.domain.devices.disks[0].serial",
                "character",
            ),
            (
                &[("spec.domain.devices.disks[0].serial", json!("x".repeat(257)))],
                "spec.domain.devices.disks[0].serial",
                "257 characters",
            ),
            (
                &[("spec.domain.devices.disks[0].cache", json!("writetrough"))],
                "spec.domain.devices.disks[0].cache",
                "did you mean `writethrough`?",
            ),
            (
                &[
                    ("spec.domain.devices.disks[0].cache", json!("writeback")),
                    ("spec.domain.devices.disks[0].shareable", json!(true)),
                ],
                "spec.domain.devices.disks[0].cache",
                "cannot be cached",
            ),
            (&[("spec.domain.devices.disks[0].io", json!("io_uring"))], "spec.domain.devices.disks[0].io", "`native`"),
            (
                &[("spec.domain.devices.disks[0].errorPolicy", json!(""))],
                "spec.domain.devices.disks[0].errorPolicy",
                "`enospace`",
            ),
        ]);
    }

    #[test]
    fn kubevirt_s_odd_spellings_are_kept() {
        let field =
            |path: &str, value| faults(&[(path, value)]).into_iter().map(|fault| fault.field).collect::<Vec<_>>();
        assert_eq!(
            field("spec.domain.devices.disks[0].io", json!("io_uring")),
            ["spec.domain.devices.disks.domain.devices.disks[0].io"]
        );
        assert_eq!(
            field("spec.domain.devices.disks[0].disk", json!({"bus": "sata", "pciAddress": "0000:04:10.0"})),
            ["spec.domain.devices.disks.domain.devices.disks.disk[0].pciAddress"]
        );
        assert_eq!(
            field(
                "spec.domain.devices.disks[0]",
                json!({"name": "root", "disk": {"bus": "sata"}, "dedicatedIOThread": true})
            ),
            ["spec.domain.devices.disks.domain.devices.disks[0]"]
        );
    }
}
