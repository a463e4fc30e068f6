//! QEMU, its abilities, firmware and qemu-img. Pure.

use garboard_machine::facts::{KvmState, UefiKind};
use garboard_machine::features::{Accelerator, Feature};
use garboard_protocol::causes::ErrorChain;

use super::Check;
use crate::qemu::{LocateError, QemuError, QemuReport};
use crate::survey::Survey;

/// Devices machines are made of; without one, what uses it is refused.
const DEVICES: [&str; 12] = [
    "virtio-blk-pci",
    "virtio-net-pci",
    "virtio-scsi-pci",
    "virtio-serial-pci",
    "virtio-rng-pci",
    "virtio-balloon-pci",
    "virtio-vga",
    "pcie-root-port",
    "e1000e",
    "ich9-ahci",
    "i6300esb",
    "pvpanic-pci",
];

pub(super) fn checks(survey: &Survey) -> Vec<Check> {
    let mut checks = match &survey.qemu {
        Ok(report) => vec![found(report), accelerator(report, survey.kvm.state()), abilities(report)],
        Err(error) => vec![absent(error)],
    };
    checks.push(firmware(survey));
    checks.push(match &survey.tools.qemu_img {
        Some(path) => Check::new("qemu-img", "Disk images", format!("{}", path.display())),
        None => Check::new("qemu-img", "Disk images", "no qemu-img: only raw disks that exist already can be used")
            .missing("apt install qemu-utils"),
    });
    checks
}

fn absent(error: &QemuError) -> Check {
    let detail = ErrorChain(error).to_string();
    let remedy = match error {
        QemuError::Locate(LocateError::NotFound { .. }) => "apt install qemu-system-x86, or name one with --qemu",
        QemuError::Locate(LocateError::NotExecutable { .. }) => {
            "name another one with --qemu, or leave the option away"
        }
        QemuError::Identify(_) | QemuError::Ask { .. } => "reinstall it (apt install --reinstall qemu-system-x86)",
    };
    Check::new("qemu", "QEMU", detail).missing(remedy).essential()
}

fn found(report: &QemuReport) -> Check {
    let features = &report.facts.features;
    let check = |detail: String| Check::new("qemu", "QEMU", detail).essential();
    let name = format!("{} {}", report.facts.binary, features.version);
    match features.machine("q35") {
        Some(machine) => check(format!("{name}, q35 is {}", machine.name)),
        None => check(format!("{name} has no q35 machine"))
            .missing("install a QEMU with x86-64 PC machines (apt install qemu-system-x86)"),
    }
}

fn accelerator(report: &QemuReport, kvm: KvmState) -> Check {
    let has = |accelerator| report.facts.features.accelerators.contains(&accelerator);
    let check = |detail: String| Check::new("accelerator", "Machines run under", detail).essential();
    let refusal = report.kvm_refusal.as_ref().map(|error| format!(" (KVM: {error})")).unwrap_or_default();
    match (kvm, has(Accelerator::Kvm), has(Accelerator::Tcg)) {
        (KvmState::Native, true, _) if report.kvm_refusal.is_none() => check("KVM".into()),
        (KvmState::Emulated, true, false) => {
            check("an emulated KVM, very slowly: this QEMU has no TCG".into()).degraded("apt install qemu-system-x86")
        }
        (_, _, true) => check(format!("TCG, QEMU's translator{refusal}"))
            .degraded("see KVM above; until then give guests more time to start"),
        (_, _, false) => check(format!("nothing: KVM cannot be used and this QEMU has no TCG{refusal}"))
            .missing("apt install qemu-system-x86, or repair KVM"),
    }
}

fn abilities(report: &QemuReport) -> Check {
    let features = &report.facts.features;
    let absent: Vec<&str> = DEVICES.into_iter().filter(|device| !features.has_device(device)).collect();
    let mut losses: Vec<String> = Vec::new();
    if !absent.is_empty() {
        losses.push(format!("no {}", absent.join(", ")));
    }
    let lost = [
        (Feature::Sandbox, "no -sandbox: QEMU's system calls are not filtered"),
        (Feature::JsonCliHotplug, "devices of the command line cannot be unplugged"),
        (Feature::NetdevJson, "no JSON for -netdev"),
        (Feature::IothreadVqMapping, "one iothread per disk, not several"),
    ];
    losses.extend(lost.into_iter().filter(|(feature, _)| !features.has(*feature)).map(|(_, loss)| loss.to_owned()));
    let count = features.devices.len();
    let check = Check::new("qemu-features", "QEMU's abilities", format!("{count} devices, everything used is there"));
    if losses.is_empty() {
        return check;
    }
    let serious = !absent.is_empty() || !features.has(Feature::Sandbox) || !features.has(Feature::NetdevJson);
    let check = Check { detail: format!("{count} devices; {}", losses.join("; ")), ..check };
    if serious { check.degraded("use QEMU 7.2 or newer with its usual packages") } else { check }
}

fn firmware(survey: &Survey) -> Check {
    let kinds = [
        (UefiKind::Plain, "EFI"),
        (UefiKind::SecureBoot, "secure boot"),
        (UefiKind::SecureBootEnrolled, "secure boot with keys"),
    ];
    let has = |kind| survey.uefi.iter().any(|pair| pair.kind == kind);
    let names = |present: bool| {
        kinds.iter().filter(|(kind, _)| has(*kind) == present).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    };
    let check = |detail: String| Check::new("firmware", "UEFI firmware", detail);
    let remedy = "apt install ovmf";
    if survey.uefi.is_empty() {
        check("none: machines start with SeaBIOS only".into()).missing(remedy)
    } else if names(false).is_empty() {
        check(names(true))
    } else {
        check(format!("{}; not {}", names(true), names(false))).degraded(remedy)
    }
}
