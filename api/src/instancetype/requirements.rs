//! What a preference requires of a machine.

use super::topology::{Across, Spread, Topology};
use super::{PreferenceRequirements, Sizing, VirtualMachinePreferenceSpec};
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::v1::{CPU, VirtualMachineInstanceSpec, non_empty};

/// What a machine lacks; `spec` has the instancetype, the preference and every default in it.
pub(super) fn unmet(sizing: &Sizing, spec: &VirtualMachineInstanceSpec, at: &FieldPath) -> Vec<Fault> {
    let Some(preference) = &sizing.preference else { return Vec::new() };
    let Some(required) = &preference.requirements else { return Vec::new() };
    let faults =
        [cpu(required, sizing, preference, spec), memory(required, sizing, spec), architecture(required, spec)];
    faults.into_iter().flatten().map(|lack| lack.fault(at)).collect()
}

/// KubeVirt's text, by which its clients recognise the refusal.
const FAILURE: &str = "failure checking preference requirements";

/// What is missing, and where.
struct Lack {
    /// Below `spec` of the machine's template; empty: it is the instancetype that has too little.
    places: Vec<&'static str>,
    /// KubeVirt's text for it, which ends in `: `; empty for what it has none for.
    what: &'static str,
    message: String,
    instead: String,
}

impl Lack {
    fn fault(self, at: &FieldPath) -> Fault {
        let of_instancetype = FieldPath::from("spec.instancetype");
        let spellings: Vec<String> = self.places.iter().map(|place| at.child(place).to_string()).collect();
        let path = self.places.first().map_or(of_instancetype, |place| at.child(place));
        let message = format!("{FAILURE}: {}the preference requires {}", self.what, self.message);
        let fault = Fault::new(path, FaultCode::NotFound, message).instead(self.instead);
        if spellings.len() > 1 { fault.field(spellings.join(", ")) } else { fault }
    }
}

fn cpu(
    required: &PreferenceRequirements,
    sizing: &Sizing,
    preference: &VirtualMachinePreferenceSpec,
    spec: &VirtualMachineInstanceSpec,
) -> Option<Lack> {
    let (least, what) = (required.cpu.as_ref()?.guest, "insufficient CPU resources: ");
    if let Some(size) = &sizing.instancetype {
        let message = format!("{least} vCPUs, and the instancetype has {}", size.cpu.guest);
        let instead = "name a larger instancetype, or another preference".to_owned();
        return (size.cpu.guest < least).then_some(Lack { places: Vec::new(), what, message, instead });
    }
    let nothing = CPU::default();
    let cpu = spec.domain.cpu.as_ref().unwrap_or(&nothing);
    let counted = counted(cpu, preference);
    let (count, places) = (counted.count, counted.places);
    let instead = format!("write {least} or more as {}, or name an instancetype", places.join(" × "));
    let message = format!("{least} vCPUs, and the machine has {count}");
    (count < least).then_some(Lack { places, what, message, instead })
}

/// vCPUs as far as the topology of a preference counts them.
struct Counted {
    count: u32,
    places: Vec<&'static str>,
}

fn counted(cpu: &CPU, preference: &VirtualMachinePreferenceSpec) -> Counted {
    const SOCKETS: &str = "domain.cpu.sockets";
    const CORES: &str = "domain.cpu.cores";
    const THREADS: &str = "domain.cpu.threads";
    // As in the guest: what is not set is 1.
    let number = |part: Option<u32>| part.filter(|part| *part > 0).unwrap_or(1);
    let (sockets, cores, threads) = (number(cpu.sockets), number(cpu.cores), number(cpu.threads));
    let all = sockets.saturating_mul(cores).saturating_mul(threads);
    let (count, places) = match Topology::of(Some(preference)) {
        Topology::Sockets => (sockets, vec![SOCKETS]),
        Topology::Cores => (cores, vec![CORES]),
        Topology::Threads => (threads, vec![THREADS]),
        Topology::Any => (all, vec![CORES, SOCKETS, THREADS]),
        Topology::Spread => match Spread::of(preference).across {
            Across::SocketsCores => (sockets.saturating_mul(cores), vec![SOCKETS, CORES]),
            Across::CoresThreads => (cores.saturating_mul(threads), vec![CORES, THREADS]),
            Across::SocketsCoresThreads => (all, vec![SOCKETS, CORES, THREADS]),
        },
    };
    Counted { count, places }
}

fn memory(required: &PreferenceRequirements, sizing: &Sizing, spec: &VirtualMachineInstanceSpec) -> Option<Lack> {
    let least = &required.memory.as_ref()?.guest;
    let guest = spec.domain.memory.as_ref().and_then(|memory| memory.guest.clone()).unwrap_or_default();
    if guest >= *least {
        return None;
    }
    let (places, who) = match &sizing.instancetype {
        Some(_) => (Vec::new(), "the instancetype"),
        None => (vec!["domain.memory"], "the machine"),
    };
    let message = format!("{least} of memory, and {who} has {guest}");
    let instead = "name a larger instancetype, or another preference".to_owned();
    Some(Lack { places, what: "insufficient Memory resources: ", message, instead })
}

fn architecture(required: &PreferenceRequirements, spec: &VirtualMachineInstanceSpec) -> Option<Lack> {
    let wanted = non_empty(&required.architecture)?;
    let own = non_empty(&spec.architecture).unwrap_or_default();
    let message = format!("the architecture {wanted}, and the machine has `{own}`");
    let instead = format!("write `{wanted}`, or name another preference");
    (own != wanted).then(|| Lack { places: vec!["architecture"], what: "", message, instead })
}
