//! `-cpu`: model, features, and what KVM and Hyper-V show in CPUID.

use std::collections::BTreeSet;

use garboard_api::v1::CPUFeature;
use garboard_machine::cpu::{Cpu, CpuTokenError, Switch, canonical_feature};
use garboard_machine::features::Accelerator;
use garboard_machine::id::fnv1a_64;
use garboard_machine::memory::Memory;

use super::baseline::{self, Baseline};
use super::compute;
use super::draft::{Draft, invalid, text};
use super::error::PlanError;
use super::hyperv;
use super::stored::StoredCpu;

/// The most memory, bytes, with which every machine type still fits into 40 address bits: TCG has no more, nor has a named
/// model of QEMU. Above the memory lie the hole below 4 GiB and the window of 64-bit PCI devices (QEMU ends with
/// "phys-bits too low (40)" at 992 GiB).
pub(super) const NEAR_MEMORY_BYTES: u64 = 960 << 30;

const MODEL_FIELD: &str = "spec.domain.cpu.model";

/// Features that QEMU takes for the host's own although KVM cannot give them there, and then aborts.
const ABORTING: [&str; 1] = ["arch-capabilities"];

/// The CPU a guest sees: the one it had, while its manifest states the same of it. Where the manifest states something else, but
/// names the same model, only the other values change.
pub(super) fn cpu(draft: &mut Draft<'_>, memory: Memory) -> Result<CpuPlan, PlanError> {
    let asked = asked(draft, memory);
    let exact =
        draft.input.stored.and_then(|stored| stored.cpus().find(|kept| kept.cpu_asked.as_ref() == Some(&asked)));
    let mut had = Had { is_exact: exact.is_some(), kept: exact, lacked: BTreeSet::new() };
    let decided = decide(draft, memory, &mut had)?;
    // The host's own CPU has switches for the sake of this host.
    let is_hosts = decided.model.as_str() == "host";
    let exact = had.kept.as_ref().filter(|_| had.is_exact && !is_hosts);
    let decided = exact.and_then(|kept| stored(draft, kept)).unwrap_or(decided);
    let mut cpu = decided.clone();
    let features = if baseline::is_open(&cpu) {
        // Passing the host's processor through means: whatever it is.
        let before = had.baseline(&decided).filter(|_| !is_passed_through(draft));
        baseline::pin(draft, &mut cpu, before, MODEL_FIELD)?
    } else {
        None
    };
    name_max(draft, &mut cpu)?;
    Ok(CpuPlan { cpu, decided, features, asked, lacked: had.lacked_features() })
}

/// Family, model and stepping of TCG's `max` are QEMU's own, and QEMU 10 has others than the versions before it (both asked). A guest has
/// those of the QEMU that its machine type comes from.
fn name_max(draft: &Draft<'_>, cpu: &mut Cpu) -> Result<(), PlanError> {
    /// The first QEMU with others.
    const CHANGED_IN: u32 = 10;
    if draft.accelerator != Accelerator::Tcg || cpu.model.as_str() != "max" {
        return Ok(());
    }
    let machine = compute::machine_type(draft.input)?;
    let version = machine.name.rsplit('-').next().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    let is_older = version.is_none_or(|major| major < CHANGED_IN);
    if is_older && draft.input.facts.qemu.features.version.major < CHANGED_IN {
        return Ok(());
    }
    let values = if is_older { ["15", "107", "1"] } else { ["6", "6", "3"] };
    for (name, value) in ["family", "model", "stepping"].into_iter().zip(values) {
        cpu.set(name, value).map_err(token_error(MODEL_FIELD))?;
    }
    Ok(())
}

/// The CPU of earlier starts, as far as it is that of this one.
struct Had {
    kept: Option<StoredCpu>,
    /// Whether the manifest has the same values as then.
    is_exact: bool,
    /// Optional features that this guest has not, whatever its host has.
    lacked: BTreeSet<String>,
}

impl Had {
    /// Another manifest than then, which names the same model under the same accelerator.
    fn find(&mut self, draft: &Draft<'_>, model: &Cpu) {
        let is_alike = |kept: &StoredCpu| {
            let is_model = Cpu::parse(&kept.cpu).is_ok_and(|cpu| cpu.model == model.model);
            is_model && kept.accelerator == Some(draft.accelerator)
        };
        self.kept = self.kept.take().or_else(|| draft.input.stored?.cpus().find(is_alike));
    }

    /// Whether it had an optional feature; nothing if that is not known, as of one that is asked for the first time.
    fn has(&self, name: &str) -> Option<bool> {
        let kept = self.kept.as_ref()?;
        let listed = |list: &Option<String>| {
            list.as_ref().map(|list| list.split_whitespace().any(|one| one == canonical_feature(name)))
        };
        if listed(&kept.cpu_lacked) == Some(true) {
            return Some(false);
        }
        let cpu = Cpu::parse(&kept.cpu).ok()?;
        let before = cpu.get(name).map(|state| state == Switch::On.as_str());
        before.or_else(|| self.is_exact.then(|| listed(&kept.cpu_features).unwrap_or(false)))
    }

    /// The features of before, and which of them no longer follow from the manifest.
    fn baseline(&self, decided: &Cpu) -> Option<Baseline> {
        let kept = self.kept.as_ref()?;
        let names = |cpu: &Cpu| -> BTreeSet<String> {
            cpu.properties.iter().map(|(name, _)| canonical_feature(name.as_str())).collect()
        };
        let before = Cpu::parse(&kept.cpu).map(|cpu| names(&cpu)).unwrap_or_default();
        let is_hosts = |name: &String| ABORTING.contains(&name.as_str());
        let now = names(decided);
        let released = before.into_iter().filter(|name| !self.is_exact && !now.contains(name) && !is_hosts(name));
        Some(Baseline { features: kept.cpu_features.clone()?, released: released.collect() })
    }

    fn lacked_features(&self) -> Option<String> {
        let features: Vec<&str> = self.lacked.iter().map(String::as_str).collect();
        Some(features.join(" ")).filter(|features| !features.is_empty())
    }
}

fn is_passed_through(draft: &Draft<'_>) -> bool {
    let cpu = draft.input.domain().cpu.as_ref();
    cpu.and_then(|cpu| text(&cpu.model)) == Some("host-passthrough")
}

/// A CPU, and what it was decided from.
pub(super) struct CpuPlan {
    /// The guest's.
    pub(super) cpu: Cpu,
    /// The same without what this host and this QEMU have more than those of the first start.
    pub(super) decided: Cpu,
    /// For the next start: [`super::stored::StoredMachine::cpu_features`].
    pub(super) features: Option<String>,
    /// For the next start: [`super::stored::StoredMachine::cpu_asked`].
    pub(super) asked: String,
    /// For the next start: [`super::stored::StoredMachine::cpu_lacked`].
    pub(super) lacked: Option<String>,
}

/// A CPU of an earlier start, if this QEMU has its model.
fn stored(draft: &Draft<'_>, kept: &StoredCpu) -> Option<Cpu> {
    let cpu = Cpu::parse(&kept.cpu).ok()?;
    let features = &draft.input.facts.qemu.features;
    let is_there = cpu.model.as_str() == "max" || features.cpu_models.contains(cpu.model.as_str());
    is_there.then_some(cpu)
}

/// Everything that a CPU is decided from, as one short text: the manifest's values and the accelerator.
fn asked(draft: &Draft<'_>, memory: Memory) -> String {
    let domain = draft.input.domain();
    let cpu = domain.cpu.as_ref().map(|cpu| (&cpu.model, &cpu.features));
    let timer = domain.clock.as_ref().and_then(|clock| clock.timer.as_ref());
    let inputs = serde_json::json!([draft.accelerator.as_str(), cpu, domain.features, timer, is_far(memory)]);
    format!("{:016x}", fnv1a_64(inputs.to_string().as_bytes()))
}

/// Whether memory reaches beyond what the 40 address bits of a named model can name.
fn is_far(memory: Memory) -> bool {
    memory.maxmem.unwrap_or(memory.size) > NEAR_MEMORY_BYTES
}

fn decide(draft: &mut Draft<'_>, memory: Memory, had: &mut Had) -> Result<Cpu, PlanError> {
    let spec = draft.input.domain().cpu.as_ref();
    let mut cpu = model(draft, spec.and_then(|cpu| text(&cpu.model)).unwrap_or("host-model"))?;
    had.find(draft, &cpu);
    if is_far(memory) && cpu.get("enforce").is_some() {
        cpu.switch("host-phys-bits", Switch::On).map_err(token_error(MODEL_FIELD))?;
    }
    paravirtual(draft, &mut cpu).map_err(token_error("spec.domain.features"))?;
    hyperv::set(draft, &mut cpu)?;
    for (index, feature) in spec.iter().flat_map(|cpu| &cpu.features).enumerate() {
        set_feature(draft, &mut cpu, had, feature, &format!("spec.domain.cpu.features[{index}]"))?;
    }
    Ok(cpu)
}

pub(super) fn token_error(field: &str) -> impl Fn(CpuTokenError) -> PlanError {
    let field = field.to_owned();
    move |source| PlanError::CpuToken { field: field.clone(), source }
}

fn model(draft: &mut Draft<'_>, name: &str) -> Result<Cpu, PlanError> {
    let error = token_error(MODEL_FIELD);
    match (name, draft.accelerator) {
        // KVM: until there is a baseline of several hosts, `host-model` is the host's own CPU; migratable leaves out
        // what no other host could take over.
        ("host-model" | "host-passthrough", Accelerator::Kvm) => {
            let mut cpu = Cpu::new("host").map_err(&error)?;
            cpu.switch("migratable", Switch::On).map_err(&error)?;
            let offered = draft.input.facts.cpu.features.get(&Accelerator::Kvm).filter(|offered| !offered.is_empty());
            for feature in ABORTING.into_iter().filter(|name| offered.is_some_and(|all| !all.contains(*name))) {
                cpu.switch(feature, Switch::Off).map_err(&error)?;
            }
            Ok(cpu)
        }
        // TCG has no host CPU to pass through: `max` is everything it can do.
        ("host-model" | "host-passthrough", Accelerator::Tcg) => Cpu::new("max").map_err(error),
        (name, _) => {
            let mut cpu = Cpu::new(name).map_err(&error)?;
            let features = &draft.input.facts.qemu.features;
            if !features.cpu_models.contains(name) {
                return Err(PlanError::QemuLacks {
                    field: MODEL_FIELD.to_owned(),
                    version: features.version.to_string(),
                    what: format!("CPU model `{name}`"),
                    instead: "write `host-model`, or a model that `qemu-system-x86_64 -cpu help` lists".to_owned(),
                });
            }
            // Gone from processors and kernels, but still part of old models.
            cpu.switch("mpx", Switch::Off).map_err(&error)?;
            match draft.accelerator {
                // QEMU would leave out what the host lacks and report that in its log only: two machines of one model would differ, and
                // one machine from start to start.
                Accelerator::Kvm => cpu.switch("enforce", Switch::On).map_err(&error)?,
                Accelerator::Tcg => note_incomplete(draft, name),
            }
            Ok(cpu)
        }
    }
}

/// TCG has hardly any model completely, and a user who asks for it requires a machine that runs.
fn note_incomplete(draft: &mut Draft<'_>, model: &str) {
    draft.note(Some(MODEL_FIELD), format!("under TCG a `{model}` lacks the features that QEMU cannot translate"));
}

fn set_feature(
    draft: &Draft<'_>,
    cpu: &mut Cpu,
    had: &mut Had,
    feature: &CPUFeature,
    field: &str,
) -> Result<(), PlanError> {
    let name = feature.name.as_str();
    let policy = text(&feature.policy).unwrap_or("require");
    let state = match policy {
        "force" | "require" | "optional" => Switch::On,
        "disable" | "forbid" => Switch::Off,
        other => {
            return Err(invalid(
                format!("{field}.policy"),
                format!("there is no policy `{other}`"),
                "write force, require, optional, disable or forbid",
            ));
        }
    };
    let offered = draft.input.facts.cpu.features.get(&draft.accelerator).map(|offered| offered.contains(name));
    let refuse = |message: String, instead: &str| {
        Err(PlanError::HostLacks { field: field.to_owned(), message, instead: instead.to_owned() })
    };
    match (policy, offered) {
        ("require", Some(false)) => {
            let message = format!("CPU feature `{name}` is not available with {} here", draft.accelerator.as_str());
            return refuse(message, "write `policy: optional`, or use another host");
        }
        // Under TCG no guest sees the host's processor.
        ("forbid", Some(true)) if draft.accelerator == Accelerator::Kvm => {
            let message = format!("CPU feature `{name}` is forbidden and this host has it");
            return refuse(message, "write `policy: disable` to hide it from the guest, or use another host");
        }
        // Decided once. Under `enforce` QEMU would not start without a feature that may be missing.
        ("optional", offered) if !had.has(name).unwrap_or(offered != Some(false)) => {
            had.lacked.insert(canonical_feature(name));
            return Ok(());
        }
        _ => {}
    }
    cpu.switch(name, state).map_err(token_error(&format!("{field}.name")))
}

/// What KVM offers its guests.
fn paravirtual(draft: &Draft<'_>, cpu: &mut Cpu) -> Result<(), CpuTokenError> {
    let domain = draft.input.domain();
    let features = domain.features.as_ref();
    let timer = domain.clock.as_ref().and_then(|clock| clock.timer.as_ref());
    if let Some(present) = timer.and_then(|timer| timer.kvm.as_ref()).map(|kvm| kvm.present.unwrap_or(true)) {
        cpu.switch("kvmclock", present.into())?;
    }
    if features.and_then(|features| features.kvm.as_ref()).is_some_and(|kvm| kvm.hidden == Some(true)) {
        cpu.switch("kvm", Switch::Off)?;
    }
    if let Some(apic) = features.and_then(|features| features.apic.as_ref())
        && let Some(end_of_interrupt) = apic.end_of_interrupt
    {
        cpu.switch("kvm-pv-eoi", end_of_interrupt.into())?;
    }
    if let Some(spinlock) = features.and_then(|features| features.pvspinlock.as_ref()) {
        cpu.switch("kvm-pv-unhalt", spinlock.enabled.unwrap_or(true).into())?;
    }
    Ok(())
}
