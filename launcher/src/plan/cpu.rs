//! `-cpu`: model, features, and what KVM and Hyper-V show in CPUID.

use garboard_api::v1::CPUFeature;
use garboard_machine::cpu::{Cpu, CpuWordError, Switch};
use garboard_machine::features::Accelerator;

use super::draft::{Draft, invalid, text};
use super::error::PlanError;
use super::hyperv;

const MODEL_FIELD: &str = "spec.domain.cpu.model";

/// The CPU a guest sees.
pub(super) fn cpu(draft: &mut Draft<'_>) -> Result<Cpu, PlanError> {
    let spec = draft.input.domain().cpu.as_ref();
    let mut cpu = model(draft, spec.and_then(|cpu| text(&cpu.model)).unwrap_or("host-model"))?;
    paravirtual(draft, &mut cpu).map_err(word_error("spec.domain.features"))?;
    hyperv::set(draft, &mut cpu)?;
    for (index, feature) in spec.iter().flat_map(|cpu| &cpu.features).enumerate() {
        set_feature(draft, &mut cpu, feature, &format!("spec.domain.cpu.features[{index}]"))?;
    }
    Ok(cpu)
}

pub(super) fn word_error(field: &str) -> impl Fn(CpuWordError) -> PlanError {
    let field = field.to_owned();
    move |source| PlanError::CpuWord { field: field.clone(), source }
}

fn model(draft: &mut Draft<'_>, name: &str) -> Result<Cpu, PlanError> {
    let error = word_error(MODEL_FIELD);
    match (name, draft.accelerator) {
        // KVM: until there is a baseline of several hosts, `host-model` is the host's own CPU; migratable leaves out
        // what no other host could take over.
        ("host-model" | "host-passthrough", Accelerator::Kvm) => {
            let mut cpu = Cpu::new("host").map_err(&error)?;
            cpu.switch("migratable", Switch::On).map_err(&error)?;
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
            Ok(cpu)
        }
    }
}

fn set_feature(draft: &Draft<'_>, cpu: &mut Cpu, feature: &CPUFeature, field: &str) -> Result<(), PlanError> {
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
    let offered = draft.input.facts.cpu.features.get(&draft.accelerator);
    if policy == "require" && offered.is_some_and(|offered| !offered.contains(name)) {
        return Err(PlanError::HostLacks {
            field: field.to_owned(),
            message: format!("CPU feature `{name}` cannot be had with {} here", draft.accelerator.as_str()),
            instead: "write `policy: optional`, or use another host".to_owned(),
        });
    }
    cpu.switch(name, state).map_err(word_error(&format!("{field}.name")))
}

/// What KVM offers its guests.
fn paravirtual(draft: &Draft<'_>, cpu: &mut Cpu) -> Result<(), CpuWordError> {
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
