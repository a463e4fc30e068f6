//! Hyper-V enlightenments: what makes Windows a good guest (QEMU's `docs/system/i386/hyperv.rst`).

use garboard_api::v1::{FeatureHyperv, FeatureState};
use garboard_machine::cpu::{Cpu, CpuTokenError, Switch};
use garboard_machine::features::Accelerator;

use super::cpu::token_error;
use super::draft::{Draft, invalid, text};
use super::error::PlanError;

const FIELD: &str = "spec.domain.features.hyperv";

/// Spinlock retries if the manifest names none.
const SPINLOCK_RETRIES: u32 = 4096;

/// Sets the enlightenments a VMI asks for. Without KVM there are none: QEMU accepts most of their names then, and does
/// nothing.
pub(super) fn set(draft: &mut Draft<'_>, cpu: &mut Cpu) -> Result<(), PlanError> {
    let mut asked = Cpu::new("none").map_err(token_error(FIELD))?;
    collect(draft, &mut asked)?;
    match draft.accelerator {
        Accelerator::Kvm => cpu.properties.append(&mut asked.properties),
        Accelerator::Tcg if asked.properties.is_empty() => {}
        Accelerator::Tcg => draft.note(Some(FIELD), "without KVM the guest has no Hyper-V enlightenments"),
    }
    Ok(())
}

fn collect(draft: &Draft<'_>, cpu: &mut Cpu) -> Result<(), PlanError> {
    let domain = draft.input.domain();
    let timer = domain.clock.as_ref().and_then(|clock| clock.timer.as_ref());
    if let Some(present) = timer.and_then(|timer| timer.hyperv.as_ref()).map(|hyperv| hyperv.present.unwrap_or(true)) {
        cpu.switch("hv-time", present.into()).map_err(token_error("spec.domain.clock.timer.hyperv"))?;
    }
    if has_hyperv_panic(draft) {
        cpu.switch("hv-crash", Switch::On).map_err(token_error("spec.domain.devices.panicDevices"))?;
    }
    let features = domain.features.as_ref();
    let passthrough = features.and_then(|features| features.hyperv_passthrough.as_ref());
    if passthrough.is_some_and(|passthrough| passthrough.enabled != Some(false)) {
        cpu.switch("hv-passthrough", Switch::On).map_err(token_error("spec.domain.features.hypervPassthrough"))?;
    }
    let Some(hyperv) = features.and_then(|features| features.hyperv.as_ref()) else { return Ok(()) };
    switches(hyperv, cpu).map_err(token_error(FIELD))?;
    values(hyperv, cpu)
}

fn is_on(state: Option<&FeatureState>) -> Option<bool> {
    state.map(|state| state.enabled.unwrap_or(true))
}

fn switches(hyperv: &FeatureHyperv, cpu: &mut Cpu) -> Result<(), CpuTokenError> {
    let stimer = hyperv.synictimer.as_ref();
    let tlbflush = hyperv.tlbflush.as_ref();
    let table = [
        ("hv-relaxed", is_on(hyperv.relaxed.as_ref())),
        ("hv-vapic", is_on(hyperv.vapic.as_ref())),
        ("hv-vpindex", is_on(hyperv.vpindex.as_ref())),
        ("hv-runtime", is_on(hyperv.runtime.as_ref())),
        ("hv-synic", is_on(hyperv.synic.as_ref())),
        ("hv-stimer", stimer.map(|stimer| stimer.enabled.unwrap_or(true))),
        ("hv-stimer-direct", stimer.and_then(|stimer| is_on(stimer.direct.as_ref()))),
        ("hv-reset", is_on(hyperv.reset.as_ref())),
        ("hv-frequencies", is_on(hyperv.frequencies.as_ref())),
        ("hv-reenlightenment", is_on(hyperv.reenlightenment.as_ref())),
        ("hv-tlbflush", tlbflush.map(|tlbflush| tlbflush.enabled.unwrap_or(true))),
        ("hv-tlbflush-direct", tlbflush.and_then(|tlbflush| is_on(tlbflush.direct.as_ref()))),
        ("hv-tlbflush-ext", tlbflush.and_then(|tlbflush| is_on(tlbflush.extended.as_ref()))),
        ("hv-ipi", is_on(hyperv.ipi.as_ref())),
        ("hv-evmcs", is_on(hyperv.evmcs.as_ref())),
    ];
    for (name, state) in table {
        if let Some(on) = state {
            cpu.switch(name, on.into())?;
        }
    }
    Ok(())
}

fn values(hyperv: &FeatureHyperv, cpu: &mut Cpu) -> Result<(), PlanError> {
    if let Some(spinlocks) = hyperv.spinlocks.as_ref().filter(|spinlocks| spinlocks.enabled != Some(false)) {
        let retries = spinlocks.spinlocks.unwrap_or(SPINLOCK_RETRIES);
        cpu.set("hv-spinlocks", &format!("{retries:#x}")).map_err(token_error(FIELD))?;
    }
    if let Some(vendor) = hyperv.vendorid.as_ref().filter(|vendor| vendor.enabled != Some(false)) {
        let field = format!("{FIELD}.vendorid.vendorid");
        match text(&vendor.vendorid) {
            Some(id) if id.len() <= 12 => cpu.set("hv-vendor-id", id).map_err(token_error(&field))?,
            Some(id) => return Err(invalid(field, format!("`{id}` has more than 12 bytes"), "write fewer")),
            None => return Err(invalid(field, "there is no vendor", "write one, at most 12 bytes")),
        }
    }
    Ok(())
}

fn has_hyperv_panic(draft: &Draft<'_>) -> bool {
    draft.input.devices().panic_devices.iter().any(|device| text(&device.model) == Some("hyperv"))
}
