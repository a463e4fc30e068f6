//! What a guest prefers of the features of machine and hypervisor.

use super::fill;
use crate::instancetype::FeaturePreferences;
use crate::v1::{FeatureHyperv, Features};

pub(super) fn fill_all(preferred: &FeaturePreferences, features: &mut Features) {
    // KubeVirt cannot distinguish this field from one that is left out, and takes the preference's.
    if preferred.preferred_acpi.is_some() {
        features.acpi.clone_from(&preferred.preferred_acpi);
    }
    fill(&mut features.apic, &preferred.preferred_apic);
    fill(&mut features.kvm, &preferred.preferred_kvm);
    fill(&mut features.pvspinlock, &preferred.preferred_pvspinlock);
    fill(&mut features.smm, &preferred.preferred_smm);
    if let Some(preferred) = &preferred.preferred_hyperv {
        enlightenments(preferred, features.hyperv.get_or_insert_default());
    }
}

fn enlightenments(preferred: &FeatureHyperv, hyperv: &mut FeatureHyperv) {
    fill(&mut hyperv.evmcs, &preferred.evmcs);
    fill(&mut hyperv.frequencies, &preferred.frequencies);
    fill(&mut hyperv.ipi, &preferred.ipi);
    fill(&mut hyperv.reenlightenment, &preferred.reenlightenment);
    fill(&mut hyperv.relaxed, &preferred.relaxed);
    fill(&mut hyperv.reset, &preferred.reset);
    fill(&mut hyperv.runtime, &preferred.runtime);
    fill(&mut hyperv.spinlocks, &preferred.spinlocks);
    fill(&mut hyperv.synic, &preferred.synic);
    fill(&mut hyperv.synictimer, &preferred.synictimer);
    fill(&mut hyperv.tlbflush, &preferred.tlbflush);
    fill(&mut hyperv.vapic, &preferred.vapic);
    fill(&mut hyperv.vendorid, &preferred.vendorid);
    fill(&mut hyperv.vpindex, &preferred.vpindex);
}
