//! What a node offers is asked of its QEMU, its KVM and its processor.

use std::collections::BTreeSet;

use garboard_machine::cpu::is_feature;
use garboard_machine::facts::KvmFacts;
use garboard_machine::features::Accelerator;
use kvm_ioctls::{Cap, Kvm};

use super::NodeOffer;
use crate::kvm;
use crate::qemu::{self, QemuBinary, QemuError};
use crate::survey::{GatherError, GatherOptions, Survey};

/// The planner switches it off in every model.
const LEFT_OUT: &str = "mpx";

/// Enlightenments of Hyper-V by the ability of KVM that means they are there.
const HYPERV: [(Cap, &str); 5] = [
    (Cap::Hyperv, "base"),
    (Cap::HypervVapic, "vapic"),
    (Cap::HypervTime, "time"),
    (Cap::HypervSynic, "synic"),
    (Cap::HypervSynic2, "synic2"),
];

impl NodeOffer {
    /// Asks QEMU, KVM and the processor.
    ///
    /// # Errors
    /// There is no usable QEMU, or `/proc` cannot be read.
    pub fn gather(options: &GatherOptions) -> Result<Self, GatherError> {
        let survey = Survey::take(options)?;
        let state = survey.kvm.state();
        let has_kvm = state.runs_guests();
        let accelerator = if has_kvm { Accelerator::Kvm } else { Accelerator::Tcg };
        let qemu = survey.qemu?;
        let binary = QemuBinary::locate(&options.root, options.qemu.as_deref(), options.search_path.as_deref());
        let models = qemu::models(&binary.map_err(QemuError::Locate)?, accelerator)?;
        let version = qemu.facts.features.version;
        let machines = qemu.facts.features.machines.into_iter();
        let mut features = qemu.cpu_features;
        let under_kvm = features.remove(&Accelerator::Kvm).map(|offered| survey.kvm.given(offered)).unwrap_or_default();
        let usable = if has_kvm { under_kvm.clone() } else { features.remove(&accelerator).unwrap_or_default() };
        let clock = if has_kvm { Clock::ask() } else { Clock::default() };
        let kvm = KvmFacts {
            state,
            qemu: Some(version),
            cpu_features: under_kvm,
            max_vcpus: survey.kvm.max_vcpus(),
            nested: kvm::nested(&options.root),
        };
        Ok(Self {
            accelerator,
            kvm: Some(kvm),
            machines: machines.flat_map(|machine| machine.alias.into_iter().chain([machine.name])).collect(),
            cpu_models: models
                .into_iter()
                .filter(|(name, lacks)| is_whole(lacks) && has_apic(name))
                .map(|(name, _)| name)
                .collect(),
            cpu_features: usable.into_iter().filter(|name| is_feature(name)).collect(),
            cpu_vendor: survey.cpu.vendor,
            hyperv: if has_kvm { enlightenments() } else { BTreeSet::new() },
            tsc_hz: clock.hz,
            tsc_scalable: clock.scalable,
        })
    }
}

fn is_whole(lacks: &BTreeSet<String>) -> bool {
    lacks.iter().all(|feature| feature == LEFT_OUT)
}

/// Whether a guest with this model has a local APIC. Without one QEMU makes no PCIe port, which every machine has ("MSI-X is not supported by
/// interrupt controller"): so say these, of all models of QEMU 7.2.
fn has_apic(model: &str) -> bool {
    !matches!(model, "486" | "486-v1" | "base")
}

fn enlightenments() -> BTreeSet<String> {
    let Ok(kvm) = Kvm::new() else { return BTreeSet::new() };
    HYPERV.iter().filter(|(cap, _)| kvm.check_extension(*cap)).map(|(_, name)| (*name).to_owned()).collect()
}

/// The time stamp counter as KVM shows it to guests.
#[derive(Default)]
struct Clock {
    hz: Option<u64>,
    scalable: bool,
}

impl Clock {
    fn ask() -> Self {
        let Ok(kvm) = Kvm::new() else { return Self::default() };
        let khz = kvm.create_vm().and_then(|vm| vm.create_vcpu(0)).and_then(|vcpu| vcpu.get_tsc_khz());
        Self {
            hz: khz.ok().filter(|khz| *khz > 0).map(|khz| u64::from(khz) * 1000),
            scalable: kvm.check_extension(Cap::TscControl),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::ProbeCache;

    #[test]
    fn a_model_lacks_nothing_but_what_is_switched_off() {
        let lacks = |names: &[&str]| is_whole(&names.iter().map(|name| (*name).to_owned()).collect());
        assert!(lacks(&[]) && lacks(&["mpx"]));
        assert!(!lacks(&["avx512f", "mpx"]));
    }

    #[test]
    fn this_host_offers_the_models_of_its_qemu() {
        let options = GatherOptions::new(ProbeCache::none(), std::env::var_os("PATH"));
        let offer = match NodeOffer::gather(&options) {
            Ok(offer) => offer,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
        assert!(offer.machines.contains("q35"), "{:?}", offer.machines);
        // What a named model of that accelerator lacks here is not known; the accelerator's own model lacks nothing.
        assert!(offer.cpu_models.contains("max"), "{:?}", offer.cpu_models);
        assert!(!["486", "base"].iter().any(|model| offer.cpu_models.contains(*model)), "{:?}", offer.cpu_models);
        // The translator has no AVX-512, and no KVM this is tested with lacks SSE2.
        assert!(offer.needs_kvm() || !offer.cpu_models.contains("Icelake-Server"), "{:?}", offer.cpu_models);
        assert!(offer.cpu_features.contains("sse2"), "{:?}", offer.cpu_features);
    }
}
