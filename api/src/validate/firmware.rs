//! Firmware: what a guest boots with, and what that firmware gives it.

use super::addresses::image_path_problem;
use super::report::{Report, invalid, not_found, required};
use super::subject::{Subject, text};
use crate::fault::{FieldPath, SentText};
use crate::v1::{Firmware, KernelBoot};

/// Judges the firmware of a guest.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let Some(firmware) = &subject.spec.domain.firmware else { return };
    let at = subject.path("domain.firmware");
    boot_loader(subject, firmware, &at, report);
    if let Some(boot) = &firmware.kernel_boot {
        kernel(boot, &at.child("kernelBoot"), report);
    }
    tables(subject, firmware, &at.child("acpi"), report);
    identity(firmware, &at, report);
}

/// Whether the guest boots by EFI with Secure Boot, which is on unless it is switched off.
pub(crate) fn secure_boot(firmware: Option<&Firmware>) -> bool {
    firmware
        .and_then(|firmware| firmware.bootloader.as_ref())
        .and_then(|loader| loader.efi.as_ref())
        .is_some_and(|efi| efi.secure_boot != Some(false))
}

fn boot_loader(subject: &Subject<'_>, firmware: &Firmware, at: &FieldPath, report: &mut Report) {
    if firmware.bootloader.as_ref().is_some_and(|loader| loader.efi.is_some() && loader.bios.is_some()) {
        report.push(
            invalid(at.child("bootloader"), "a guest boots by BIOS or by EFI, not by both")
                .instead("keep one of `bios` and `efi`"),
        );
    }
    let features = subject.spec.domain.features.as_ref();
    let management_mode =
        features.and_then(|features| features.smm.as_ref()).is_some_and(|smm| smm.enabled != Some(false));
    if secure_boot(Some(firmware)) && !management_mode {
        report.push(
            invalid(
                at.child("bootloader").child("efi").child("secureBoot"),
                "Secure Boot, which `efi` has by default, needs system management mode",
            )
            .instead("write `features: {smm: {}}` under `domain`, or `secureBoot: false` here")
            .field(subject.path("domain").to_string()),
        );
    }
}

fn kernel(boot: &KernelBoot, at: &FieldPath, report: &mut Report) {
    let Some(container) = &boot.container else {
        if !text(&boot.kernel_args).is_empty() {
            report.push(
                invalid(at.child("kernelArgs"), "there is no kernel to give these arguments to")
                    .instead("name an image with a kernel under `container`, or remove the arguments"),
            );
        }
        return;
    };
    let at = at.child("container");
    if container.image.is_empty() {
        report.push(
            required(at.child("image"), "the image with the kernel is not named")
                .instead("write its reference")
                .sent(SentText::NoImage),
        );
    }
    let (kernel, initrd) = (text(&container.kernel_path), text(&container.initrd_path));
    if kernel.is_empty() && initrd.is_empty() {
        report.push(
            required(at.clone(), "neither a kernel nor an initial RAM disk is named")
                .instead("write `kernelPath`, and `initrdPath` if there is one")
                .sent(SentText::NoKernel),
        );
    }
    for (field, path) in [("kernelPath", kernel), ("initrdPath", initrd)] {
        if !path.is_empty()
            && let Some((problem, sent)) = image_path_problem(path)
        {
            report.push(
                invalid(at.child(field), format!("the path `{path}` {problem}"))
                    .instead("write the absolute path of the file in the image, such as `/boot/vmlinuz`")
                    .sent(sent),
            );
        }
    }
}

fn tables(subject: &Subject<'_>, firmware: &Firmware, at: &FieldPath, report: &mut Report) {
    let Some(acpi) = &firmware.acpi else { return };
    // KubeVirt reports these directly under the specification.
    let sent = subject.at.child("acpi");
    let references = [("slicNameRef", text(&acpi.slic_name_ref)), ("msdmNameRef", text(&acpi.msdm_name_ref))];
    if references.iter().all(|(_, name)| name.is_empty()) {
        report.push(
            invalid(at.clone(), "no table is named")
                .instead("name a volume with a Secret as `slicNameRef` or `msdmNameRef`, or remove `acpi`")
                .field(sent.to_string()),
        );
        return;
    }
    for (field, name) in references.into_iter().filter(|(_, name)| !name.is_empty()) {
        let sent = sent.child(field).to_string();
        match subject.spec.volumes.iter().find(|volume| volume.name == name) {
            None => report.push(
                not_found(at.child(field), format!("no volume is named `{name}`"))
                    .instead("add a volume of that name with a Secret")
                    .field(sent),
            ),
            Some(volume) if volume.secret.is_none() => report.push(
                invalid(at.child(field), format!("the volume `{name}` is not a Secret"))
                    .instead("name a volume with the source `secret`")
                    .field(sent),
            ),
            Some(_) => {}
        }
    }
}

fn identity(firmware: &Firmware, at: &FieldPath, report: &mut Report) {
    let uuid = text(&firmware.uuid);
    if !uuid.is_empty() && uuid::Uuid::try_parse(uuid).is_err() {
        report.push(
            invalid(at.child("uuid"), format!("`{}` is not a UUID", uuid.escape_debug()))
                .instead("write one as `uuidgen` prints it, or leave it out"),
        );
    }
    let serial = text(&firmware.serial);
    if !serial.chars().all(|each| matches!(each, ' '..='~')) {
        report.push(
            invalid(
                at.child("serial"),
                format!("the serial number `{}` has a character that firmware cannot show", serial.escape_debug()),
            )
            .instead("write printable characters of ASCII only"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, faults, refused};

    const FIRMWARE: &str = "spec.domain.firmware";

    #[test]
    fn ways_to_boot() {
        accepted(&[
            &[(FIRMWARE, json!({"bootloader": {"bios": {"useSerial": true}}}))],
            &[(FIRMWARE, json!({"bootloader": {"efi": {"secureBoot": false, "persistent": true}}}))],
            &[(FIRMWARE, json!({"bootloader": {"efi": {}}})), ("spec.domain.features", json!({"smm": {}}))],
            &[(FIRMWARE, json!({"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "x".repeat(300)}))],
            &[(FIRMWARE, json!({"kernelBoot": {"container": {"image": "a/b:1", "kernelPath": "/vmlinuz"}}}))],
            &[(FIRMWARE, json!({"serial": "Rack 7, unit 12"}))],
        ]);
    }

    #[test]
    fn ways_not_to_boot() {
        refused(&[
            (
                &[(FIRMWARE, json!({"bootloader": {"bios": {}, "efi": {"secureBoot": false}}}))],
                "spec.domain.firmware.bootloader",
                "not by both",
            ),
            (
                &[(FIRMWARE, json!({"bootloader": {"efi": {}}}))],
                "spec.domain.firmware.bootloader.efi.secureBoot",
                "smm: {}",
            ),
            (
                &[(FIRMWARE, json!({"kernelBoot": {"kernelArgs": "console=ttyS0"}}))],
                "spec.domain.firmware.kernelBoot.kernelArgs",
                "no kernel",
            ),
            (
                &[(FIRMWARE, json!({"kernelBoot": {"container": {"image": "", "kernelPath": "/k"}}}))],
                "spec.domain.firmware.kernelBoot.container.image",
                "not named",
            ),
            (
                &[(FIRMWARE, json!({"kernelBoot": {"container": {"image": "a"}}}))],
                "spec.domain.firmware.kernelBoot.container",
                "kernelPath",
            ),
            (
                &[(FIRMWARE, json!({"kernelBoot": {"container": {"image": "a", "kernelPath": "vmlinuz"}}}))],
                "spec.domain.firmware.kernelBoot.container.kernelPath",
                "not an absolute path",
            ),
            (
                &[(FIRMWARE, json!({"kernelBoot": {"container": {"image": "a", "initrdPath": "/../i"}}}))],
                "spec.domain.firmware.kernelBoot.container.initrdPath",
                "`..`",
            ),
            (&[(FIRMWARE, json!({"uuid": "junk"}))], "spec.domain.firmware.uuid", "uuidgen"),
            (&[(FIRMWARE, json!({"serial": "a\tb"}))], "spec.domain.firmware.serial", "character"),
            (&[(FIRMWARE, json!({"serial": "größer"}))], "spec.domain.firmware.serial", "character"),
        ]);
    }

    #[test]
    fn kernels_are_refused_with_the_text_of_kubevirt() {
        let sent = |container: serde_json::Value| {
            let faults = faults(&[(FIRMWARE, json!({"kernelBoot": {"container": container}}))]);
            assert_eq!(faults.len(), 1);
            faults[0].sent_text().unwrap()
        };
        let container = "spec.domain.firmware.kernelBoot.container";
        let no_image = format!("{container} must be defined with an image");
        assert_eq!(sent(json!({"image": "", "kernelPath": "/k"})), no_image);
        let no_kernel =
            format!("{container} must be defined with at least one of the following: kernelPath, initrdPath");
        assert_eq!(sent(json!({"image": "a"})), no_kernel);
        let relative = format!("{container}.kernelPath must be an absolute path to a file without relative components");
        assert_eq!(sent(json!({"image": "a", "kernelPath": "vmlinuz"})), relative);
        let root = format!("{container}.initrdPath must not point to root");
        assert_eq!(sent(json!({"image": "a", "initrdPath": "/"})), root);
    }

    #[test]
    fn tables_come_from_secrets_and_are_reported_as_kubevirt_does() {
        for (name, part) in [("root", "not a Secret"), ("none", "no volume")] {
            let faults = faults(&[(FIRMWARE, json!({"acpi": {"slicNameRef": name}}))]);
            assert_eq!(faults.len(), 1);
            assert_eq!(faults[0].field, "spec.acpi.slicNameRef");
            assert!(faults[0].message.contains(part), "{}", faults[0]);
        }
        assert_eq!(faults(&[(FIRMWARE, json!({"acpi": {}}))])[0].field, "spec.acpi");
        assert_eq!(faults(&[(FIRMWARE, json!({"bootloader": {"efi": {}}}))])[0].field, "spec.domain");
    }
}
