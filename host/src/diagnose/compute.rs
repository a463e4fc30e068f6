//! Processor and KVM. Pure.

use super::{Check, HostConditions};
use crate::cpu::Virtualization;
use crate::devices::DeviceAccess;
use crate::kvm::{Execution, KvmInterface};
use crate::survey::Survey;

pub(super) fn checks(survey: &Survey, conditions: &HostConditions) -> Vec<Check> {
    let mut checks = vec![cpu(survey), kvm(survey)];
    if let Some(interface) = &survey.kvm.interface {
        checks.push(speed(interface));
        checks.push(nested(conditions.nested));
    }
    checks
}

fn cpu(survey: &Survey) -> Check {
    let cpu = &survey.cpu;
    let ability = match cpu.virtualization() {
        Virtualization::Vmx => "VT-x",
        Virtualization::Svm => "AMD-V",
        Virtualization::None => "no virtualization extension visible",
    };
    let place = if cpu.is_virtual() { ", itself in a virtual machine" } else { "" };
    let detail = format!("{}, {} logical, {ability}{place}", cpu.model_name, cpu.logical_cpus);
    let check = Check::new("cpu", "Processor", detail);
    match (cpu.virtualization(), cpu.is_virtual()) {
        (Virtualization::None, true) => {
            check.degraded("enable nested virtualization for this virtual machine, on the host that runs it")
        }
        (Virtualization::None, false) => check.degraded("switch VT-x or AMD-V (SVM) on in the firmware setup"),
        _ => check,
    }
}

fn kvm(survey: &Survey) -> Check {
    let node = &survey.kvm.node;
    let slow = "machines run under TCG, ten to forty times slower";
    match (&node.access, &survey.kvm.interface) {
        (DeviceAccess::Missing, _) => {
            let module = match survey.cpu.virtualization() {
                Virtualization::Svm => "modprobe kvm_amd",
                Virtualization::Vmx => "modprobe kvm_intel",
                Virtualization::None => "the processor must offer it first, then modprobe kvm_intel or kvm_amd",
            };
            Check::new("kvm", "KVM", format!("no /dev/kvm: {slow}")).missing(module)
        }
        (DeviceAccess::NotPermitted, _) => Check::new("kvm", "KVM", format!("/dev/kvm may not be opened: {slow}"))
            .missing(if node.permissions.is_some_and(|permissions| permissions.mode & 0o060 == 0o060) {
                "usermod -aG kvm $USER, then log in again; or run as root"
            } else {
                "as root: chgrp kvm /dev/kvm && chmod 0660 /dev/kvm && usermod -aG kvm <user>; or run as root"
            }),
        (DeviceAccess::Refused(why), _) => Check::new("kvm", "KVM", format!("/dev/kvm does not open ({why}): {slow}"))
            .missing("another hypervisor may hold the processor; see the kernel's log (dmesg | grep -i kvm)"),
        (DeviceAccess::Open, None) => Check::new("kvm", "KVM", "/dev/kvm exists and was not probed"),
        (DeviceAccess::Open, Some(interface)) => interface_check(interface),
    }
}

fn interface_check(interface: &KvmInterface) -> Check {
    let detail = format!("version {}, up to {} vCPUs", interface.api_version, interface.max_vcpus);
    let check = Check::new("kvm", "KVM", detail.clone());
    let upgrade = "run a newer host kernel";
    if !interface.missing.is_empty() {
        let missing = interface.missing.join(", ");
        return Check { detail: format!("{detail}; QEMU cannot use it without {missing}"), ..check }.missing(upgrade);
    }
    if !interface.lacking.is_empty() {
        let lacking = interface.lacking.join(", ");
        return Check { detail: format!("{detail}; slower without {lacking}"), ..check }.degraded(upgrade);
    }
    check
}

fn speed(interface: &KvmInterface) -> Check {
    let check = |detail: String| Check::new("kvm-speed", "KVM runs 64-bit code", detail);
    match &interface.execution {
        Execution::Native { slowdown } => check(format!("on the processor, in {slowdown} times the time outside")),
        Execution::Emulated { slowdown, user_slowdown } => {
            let programs = user_slowdown.map_or_else(String::new, |times| format!(", its programs {times}"));
            check(format!(
                "emulated: a guest's kernel is interpreted and takes {slowdown} times the time outside{programs}; \
                 machines run under TCG, which is faster"
            ))
            .degraded("use a host with hardware virtualization, or switch nested virtualization on for this one")
        }
        Execution::Failed { reason } => check(format!("no: {reason}; machines run under TCG"))
            .missing("update the host kernel, and that of the host below if this is a virtual machine"),
    }
}

fn nested(nested: Option<bool>) -> Check {
    let check = |detail: &str| Check::new("nested", "Guests with guests", detail);
    match nested {
        Some(true) => check("nested virtualization is on"),
        Some(false) => check("nested virtualization is off")
            .degraded("only if guests run machines themselves: kvm_intel or kvm_amd with nested=1"),
        None => check("unknown for the KVM in use; guests get no virtualization extension")
            .degraded("only if guests run machines themselves: needs kvm_intel or kvm_amd on this host"),
    }
}
