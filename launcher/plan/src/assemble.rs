//! From decided parts to a machine and a launch plan.

use garboard_api::defaults::GRACE_PERIOD_SECONDS;
use garboard_api::metadata::{DEFAULT_NAMESPACE, annotation};
use std::collections::BTreeMap;

use garboard_machine::board::{Accel, Board};
use garboard_machine::clock::Global;
use garboard_machine::device::{Device, PcieRootPort};
use garboard_machine::machine::{Machine, Vnc};
use garboard_machine::memory::MemoryKind;
use garboard_machine::pci::PciMap;
use garboard_machine::process::{Name, RebootAction};

use super::draft::{Draft, Input, text};
use super::interface::InterfacePlan;
use super::launch::{
    GuestMemoryPlan, Identity, LaunchPlan, Lifecycle, PLAN_VERSION, RebootPolicy, ScreenPlan, StartState,
};
use super::resources::{self, Use};
use super::stored::{RamKind, STORED_VERSION, StoredCpu, StoredMachine};
use super::{Parts, compute, firmware, passt};

fn has_acpi(input: Input<'_>) -> bool {
    let acpi = input.domain().features.as_ref().and_then(|features| features.acpi.as_ref());
    acpi.is_none_or(|acpi| acpi.enabled.unwrap_or(true))
}

/// The machine that the parts and the lists in the draft make.
pub(super) fn machine(draft: &mut Draft<'_>, parts: &Parts, pci: &PciMap) -> Machine {
    let input = draft.input;
    let ports = pci.ports.iter().map(|&port| Device::from(PcieRootPort::new(port)));
    let devices = ports.chain(draft.buses.drain(..)).chain(draft.devices.drain(..)).collect();
    let backend = parts.backend.id.clone();
    if input.is_annotated(annotation::DISABLE_PCI_HOLE_64) {
        let value = "0".to_owned();
        draft.globals.push(Global { driver: "q35-pcihost", property: "pci-hole64-size", value });
    }
    // A guest that sleeps cannot be woken: there is no such request. virt-install leaves both out as well.
    for property in ["disable_s3", "disable_s4"] {
        draft.globals.push(Global { driver: "ICH9-LPC", property, value: "1".to_owned() });
    }
    Machine {
        name: Name { guest: format!("{}_{}", namespace(input), name(input)) },
        firmware_dirs: input.facts.qemu.firmware_dirs.clone(),
        board: Board {
            machine_type: parts.machine_type.clone(),
            // A NUMA node names the backend itself.
            memory_backend: if parts.memory.numa.is_some() { None } else { Some(backend) },
            pflash: parts.firmware.pflash.clone(),
            smm: parts.firmware.smm,
            acpi: has_acpi(input).into(),
            hpet: parts.clock.hpet,
            pit: parts.clock.pit,
            graphics: parts.firmware.graphics,
        },
        accel: Accel { accelerator: draft.accelerator },
        cpu: parts.cpu.cpu.clone(),
        smp: parts.smp,
        memory: parts.memory.memory,
        memory_backend: parts.backend.clone(),
        numa: parts.memory.numa.clone(),
        objects: std::mem::take(&mut draft.objects),
        uuid: firmware::uuid(input),
        smbios: firmware::smbios(input),
        rtc: parts.clock.rtc,
        globals: std::mem::take(&mut draft.globals),
        boot: firmware::boot(input),
        kernel: parts.firmware.kernel.clone(),
        add_fds: std::mem::take(&mut draft.add_fds),
        blockdevs: std::mem::take(&mut draft.blockdevs),
        chardevs: std::mem::take(&mut draft.chardevs),
        monitors: std::mem::take(&mut draft.monitors),
        netdevs: std::mem::take(&mut draft.netdevs),
        audiodev: draft.audiodev.take(),
        devices,
        vnc: match parts.display {
            ScreenPlan::Absent => Vnc::Absent,
            ScreenPlan::Vnc => Vnc::HandedOver,
        },
        action: parts.action,
    }
}

fn namespace(input: Input<'_>) -> &str {
    input.vmi.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
}

fn name(input: Input<'_>) -> &str {
    input.vmi.metadata.name.as_deref().unwrap_or_default()
}

/// The plan for `machine`.
pub(super) fn launch_plan(draft: Draft<'_>, parts: Parts, machine: &Machine, pci: PciMap) -> LaunchPlan {
    let input = draft.input;
    let qemu = &input.facts.qemu;
    let used = Use {
        smp: parts.smp,
        memory: &parts.memory,
        flash_bytes: parts.firmware.flash_bytes,
        display: parts.display,
        interfaces: &parts.interfaces,
        disks: &parts.disks,
        objects: &machine.objects,
    };
    let resources = resources::resources(&draft, &used);
    let mut argv = vec![qemu.binary.clone()];
    argv.extend(machine.argv(&qemu.features));
    let zone = parts.clock.zone.iter().map(|zone| ("TZ".to_owned(), zone.clone()));
    let modules = qemu.module_dir.iter().map(|dir| ("QEMU_MODULE_DIR".to_owned(), dir.clone()));
    let stored = stored(&draft, &parts, pci);
    let guest_memory = match parts.backend.kind {
        MemoryKind::Memfd { fd } => Some(GuestMemoryPlan { descriptor: fd, bytes: parts.backend.size }),
        MemoryKind::MemfdHuge { .. } => None,
    };
    LaunchPlan {
        version: PLAN_VERSION,
        identity: Identity {
            namespace: namespace(input).to_owned(),
            name: name(input).to_owned(),
            uid: input.vmi.metadata.uid.clone(),
            firmware_uuid: firmware::uuid(input),
        },
        accelerator: draft.accelerator,
        interpreted_by_kvm: compute::is_interpreted_by_kvm(draft.accelerator, input.facts),
        argv,
        environment: modules.chain(zone).collect(),
        descriptors: draft.descriptors,
        guest_memory,
        helpers: parts.interfaces.iter().filter_map(|one| passt::helper(one, input.facts)).collect(),
        firmware: parts.firmware.plan,
        disks: parts.disks,
        interfaces: parts.interfaces,
        serials: parts.serials,
        display: parts.display,
        lifecycle: lifecycle(input, machine),
        resources,
        stored,
        notes: draft.notes,
    }
}

/// What the next start is to find again.
fn stored(draft: &Draft<'_>, parts: &Parts, pci: PciMap) -> StoredMachine {
    StoredMachine {
        version: STORED_VERSION,
        rules: draft.input.rules(),
        machine_type: parts.machine_type.clone(),
        accelerator: Some(draft.accelerator),
        cpu: parts.cpu.decided.to_string(),
        cpu_asked: Some(parts.cpu.asked.clone()),
        cpu_features: parts.cpu.features.clone(),
        cpu_lacked: parts.cpu.lacked.clone(),
        other_cpu: other_cpu(draft),
        pci,
        places: parts.kept.places.clone(),
        macs: parts.interfaces.iter().map(|one| (one.name.clone(), one.mac.clone())).collect(),
        mtus: parts.interfaces.iter().filter_map(|one| mtu(draft, one)).collect(),
        disk_serials: serials(&parts.disks),
        disks: parts.kept.disks.clone(),
        firmware: parts.firmware.stored.clone(),
        ram: Some(match parts.backend.kind {
            MemoryKind::Memfd { .. } => RamKind::Memfd,
            MemoryKind::MemfdHuge { .. } => RamKind::MemfdHugepages,
        }),
    }
}

/// The CPU that the machine had under the other accelerator: it has it again when it is back there.
fn other_cpu(draft: &Draft<'_>) -> Option<StoredCpu> {
    let is_other = |cpu: &StoredCpu| cpu.accelerator.is_some_and(|accelerator| accelerator != draft.accelerator);
    draft.input.stored?.cpus().find(is_other)
}

/// The MTU of the first start, which a link that carries less does not change.
fn mtu(draft: &Draft<'_>, interface: &InterfacePlan) -> Option<(String, u16)> {
    let kept = draft.input.stored.and_then(|stored| stored.mtus.get(&interface.name).copied());
    interface.mtu.map(|mtu| (interface.name.clone(), kept.unwrap_or(mtu)))
}

fn serials(disks: &[super::disk::DiskPlan]) -> BTreeMap<String, String> {
    disks.iter().filter_map(|disk| Some((disk.volume.clone(), disk.serial.clone()?))).collect()
}

fn lifecycle(input: Input<'_>, machine: &Machine) -> Lifecycle {
    let grace = input.spec().termination_grace_period_seconds;
    Lifecycle {
        grace_period_seconds: grace
            .and_then(|grace| u64::try_from(grace).ok())
            .unwrap_or(u64::from(GRACE_PERIOD_SECONDS)),
        start: match text(&input.spec().start_strategy) {
            Some("Paused") => StartState::Paused,
            Some(_) | None => StartState::Running,
        },
        reboot: match machine.action.reboot {
            RebootAction::Reset => RebootPolicy::Reboot,
            RebootAction::Shutdown => RebootPolicy::Terminate,
        },
        acpi: has_acpi(input),
    }
}
