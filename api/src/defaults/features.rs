//! Defaults of machine features, Hyper-V enlightenments and timers: what is named without a state is switched on.

use crate::arch::Arch;
use crate::v1::{CPUFeature, DomainSpec, FeatureHyperv, FeatureState, Timer};

/// How often a guest tries to take a spinlock before it notifies the host. The default.
const SPINLOCK_RETRIES: u32 = 4096;
/// The processor feature that nested Hyper-V needs, and how much.
const VMX: &str = "vmx";
const REQUIRE: &str = "require";

/// Decides every feature that is named without a state. ACPI is on unless the manifest switches it off, except where it does not exist.
pub(super) fn states(domain: &mut DomainSpec, arch: Arch) {
    let features = domain.features.get_or_insert_default();
    let acpi = features.acpi.get_or_insert_default();
    acpi.enabled.get_or_insert(arch != Arch::S390x);
    if let Some(apic) = &mut features.apic {
        apic.enabled.get_or_insert(true);
    }
    switch_on([&mut features.smm, &mut features.pvspinlock]);
    if let Some(hyperv) = &mut features.hyperv {
        hyperv_states(hyperv);
    }
}

fn hyperv_states(hyperv: &mut FeatureHyperv) {
    switch_on([
        &mut hyperv.evmcs,
        &mut hyperv.frequencies,
        &mut hyperv.ipi,
        &mut hyperv.reenlightenment,
        &mut hyperv.relaxed,
        &mut hyperv.reset,
        &mut hyperv.runtime,
        &mut hyperv.synic,
        &mut hyperv.vapic,
        &mut hyperv.vpindex,
    ]);
    if let Some(spinlocks) = &mut hyperv.spinlocks
        && *spinlocks.enabled.get_or_insert(true)
    {
        spinlocks.spinlocks.get_or_insert(SPINLOCK_RETRIES);
    }
    if let Some(timer) = &mut hyperv.synictimer {
        timer.enabled.get_or_insert(true);
        switch_on([&mut timer.direct]);
    }
    if let Some(flush) = &mut hyperv.tlbflush {
        flush.enabled.get_or_insert(true);
        switch_on([&mut flush.direct, &mut flush.extended]);
    }
    if let Some(vendor) = &mut hyperv.vendorid {
        vendor.enabled.get_or_insert(true);
    }
}

pub(super) fn switch_on<const N: usize>(states: [&mut Option<FeatureState>; N]) {
    for state in states.into_iter().flatten() {
        state.enabled.get_or_insert(true);
    }
}

pub(super) fn timers(domain: &mut DomainSpec) {
    let Some(Timer { hpet, hyperv, kvm, pit, rtc }) = domain.clock.as_mut().and_then(|clock| clock.timer.as_mut())
    else {
        return;
    };
    let present = [
        hpet.as_mut().map(|timer| &mut timer.present),
        hyperv.as_mut().map(|timer| &mut timer.present),
        kvm.as_mut().map(|timer| &mut timer.present),
        pit.as_mut().map(|timer| &mut timer.present),
        rtc.as_mut().map(|timer| &mut timer.present),
    ];
    for present in present.into_iter().flatten() {
        present.get_or_insert(true);
    }
}

/// The manifest switches off what another enlightenment needs. The rules refuse that; nothing more is filled in.
struct Contradiction;

/// Switches on what the Hyper-V enlightenments of the guest need.
pub(super) fn hyperv_requirements(domain: &mut DomainSpec) {
    let Some(hyperv) = domain.features.as_mut().and_then(|features| features.hyperv.as_mut()) else { return };
    let nested = is_on(&hyperv.evmcs);
    if require_enlightenments(hyperv).is_ok() && nested {
        require_vmx(domain);
    }
}

fn require_enlightenments(hyperv: &mut FeatureHyperv) -> Result<(), Contradiction> {
    if is_on(&hyperv.evmcs) {
        require(&mut hyperv.vapic)?;
    }
    let flushes = hyperv.tlbflush.as_ref().is_some_and(|flush| flush.enabled == Some(true));
    if is_on(&hyperv.ipi) || flushes {
        require(&mut hyperv.vpindex)?;
    }
    if hyperv.synictimer.as_ref().is_some_and(|timer| timer.enabled == Some(true)) {
        require(&mut hyperv.synic)?;
    }
    if is_on(&hyperv.synic) {
        require(&mut hyperv.vpindex)?;
    }
    Ok(())
}

fn is_on(state: &Option<FeatureState>) -> bool {
    state.as_ref().is_some_and(|state| state.enabled == Some(true))
}

fn require(state: &mut Option<FeatureState>) -> Result<(), Contradiction> {
    match state.get_or_insert_default().enabled.get_or_insert(true) {
        true => Ok(()),
        false => Err(Contradiction),
    }
}

fn require_vmx(domain: &mut DomainSpec) {
    let features = &mut domain.cpu.get_or_insert_default().features;
    match features.iter_mut().find(|feature| feature.name == VMX) {
        Some(vmx) => vmx.policy = Some(REQUIRE.to_owned()),
        None => features.push(CPUFeature { name: VMX.to_owned(), policy: Some(REQUIRE.to_owned()) }),
    }
}
