//! Architecture and machine type.

use super::report::{Report, unsupported};
use super::subject::{Subject, text};
use crate::arch::Arch;
use crate::suggest::{listed, one_of};

/// Judges the machine type. For an unknown architecture there are none to compare with.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let machine = subject.spec.domain.machine.as_ref().map_or("", |machine| text(&machine.r#type));
    let Some(arch) = subject.arch() else { return };
    let known = subject.config.machine_type_prefixes(arch);
    if !machine.is_empty() && !known.iter().any(|prefix| machine.starts_with(prefix)) {
        report.push(
            unsupported(subject.path("domain.machine.type"), format!("there is no machine type `{machine}` on {arch}"))
                .instead(format!("write {}, alone or with a version", listed(known))),
        );
    }
}

/// Judges the architecture, and what a machine of it lacks, as an instance must fulfil it.
pub(crate) fn arch(subject: &Subject<'_>, report: &mut Report) {
    match subject.arch() {
        Some(Arch::Arm64) => arm64(subject, report),
        Some(Arch::Amd64 | Arch::S390x) => {}
        None => {
            let (name, known) = (subject.architecture(), Arch::ALL.map(Arch::name));
            report.push(
                unsupported(subject.path("architecture"), format!("there is no architecture `{name}`"))
                    .instead(one_of(name, &known)),
            );
        }
    }
}

fn arm64(subject: &Subject<'_>, report: &mut Report) {
    let domain = &subject.spec.domain;
    let loader = domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    let at = subject.path("domain.firmware.bootloader");
    if loader.is_some_and(|loader| loader.bios.is_some()) {
        report.push(unsupported(at.child("bios"), "an arm64 machine boots by EFI").instead("write `efi`"));
    }
    if super::firmware::secure_boot(domain.firmware.as_ref()) {
        report.push(
            unsupported(at.child("efi").child("secureBoot"), "an arm64 machine has no Secure Boot")
                .instead("write `secureBoot: false`")
                .field(at.child("efi").child("secureboot").to_string()),
        );
    }
    let model = domain.cpu.as_ref().map_or("", |cpu| text(&cpu.model));
    if !model.is_empty() && model != "host-passthrough" {
        report.push(
            unsupported(
                subject.path("domain.cpu.model"),
                format!("an arm64 guest cannot have the CPU model `{model}`"),
            )
            .instead("write `host-passthrough`"),
        );
    }
    let list = subject.path("domain.devices.disks");
    for (index, disk) in domain.devices.disks.iter().enumerate() {
        let targets = [
            ("disk", disk.disk.as_ref().map(|target| text(&target.bus))),
            ("cdrom", disk.cdrom.as_ref().map(|target| text(&target.bus))),
            ("lun", disk.lun.as_ref().map(|target| text(&target.bus))),
        ];
        for (kind, bus) in targets {
            if !matches!(bus, None | Some("" | "virtio" | "scsi")) {
                report.push(
                    unsupported(list.index(index).child(kind).child("bus"), "an arm64 machine has no such bus")
                        .instead("write `virtio` or `scsi`"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, refused};

    #[test]
    fn machine_types_belong_to_an_architecture() {
        accepted(&[
            &[("spec.domain.machine", json!({"type": "q35"}))],
            &[("spec.domain.machine", json!({"type": "pc-q35-7.2"}))],
            &[("spec.domain.machine", json!({"type": ""}))],
        ]);
        refused(&[
            (&[("spec.domain.machine", json!({"type": "pc"}))], "spec.domain.machine.type", "`pc-q35`"),
            (&[("spec.domain.machine", json!({"type": "virt"}))], "spec.domain.machine.type", "amd64"),
            (&[("spec.architecture", json!("amd46"))], "spec.architecture", "did you mean `amd64`?"),
            (&[("spec.architecture", json!("ppc64le"))], "spec.architecture", "`s390x`"),
        ]);
    }

    #[test]
    fn an_arm64_machine_boots_by_efi_without_secure_boot() {
        let arm = ("spec.architecture", json!("arm64"));
        refused(&[
            (
                &[arm.clone(), ("spec.domain.firmware", json!({"bootloader": {"bios": {}}}))],
                "spec.domain.firmware.bootloader.bios",
                "boots by EFI",
            ),
            (
                &[arm, ("spec.domain.firmware", json!({"bootloader": {"efi": {}}}))],
                "spec.domain.firmware.bootloader.efi.secureBoot",
                "no Secure Boot",
            ),
        ]);
    }
}
