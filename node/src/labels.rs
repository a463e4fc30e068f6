//! KubeVirt's labels of a node. Pure.
//!
//! The agent owns the labels of [`is_of_agent`]: what it would not set is removed, unless a machine
//! that runs here asked for it. A kubelet that starts again judges its pods by the node's labels as if they were new, and
//! ends those whose node selector the node does not fit any more; the agent must never cause that. For
//! the same reason [`SCHEDULABLE`] is never removed while a kubelet is away: such a node gets no pods anyway, and one whose
//! kubelet is back without its devices has no device to give. What the
//! launcher refuses (confidential guests, realtime, CPUs of their own) has no label, so that nothing is scheduled for it;
//! nor has `host-model`, which is the host's own processor here and no named model.

use std::collections::{BTreeMap, BTreeSet};

use garboard_api::metadata::node_label::{
    ARCHITECTURE, CPU_FEATURE, CPU_MODEL, FREQUENCY, HYPERV, KSM, MACHINE_TYPE, SCHEDULABLE, TIMER, VENDOR, is_name,
    is_of_agent,
};
use garboard_host::offer::NodeOffer;

/// When a user has set it to `true`, only [`SCHEDULABLE`] is the agent's.
pub const SKIP: &str = "node-labeller.kubevirt.io/skip-node";

/// What is known of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeState<'a> {
    /// What its QEMU offers, if that could be found out.
    pub offer: Option<&'a NodeOffer>,
    /// The kubelet has its devices, or had them since this agent started; before, the label stays as it is.
    pub schedulable: bool,
    /// `/dev/kvm` opens.
    pub kvm: bool,
    /// The kernel merges equal pages of memory.
    pub ksm: bool,
}

/// The labels it should have.
#[must_use]
pub fn wanted(state: &NodeState<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (KSM.to_owned(), state.ksm.to_string()),
        (format!("{ARCHITECTURE}{}", architecture()), "true".to_owned()),
    ]);
    if state.schedulable {
        labels.insert(SCHEDULABLE.to_owned(), "true".to_owned());
    }
    let Some(offer) = state.offer else { return labels };
    let mut family = |prefix: &str, names: &mut dyn Iterator<Item = &String>| {
        let fitting = names.filter(|name| is_name(name));
        labels.extend(fitting.map(|name| (format!("{prefix}{name}"), "true".to_owned())));
    };
    family(MACHINE_TYPE, &mut offer.machines.iter());
    family(VENDOR, &mut std::iter::once(&offer.cpu_vendor));
    // A node without KVM any more cannot give guests what its labels offered.
    if state.kvm || !offer.needs_kvm() {
        family(CPU_MODEL, &mut offer.cpu_models.iter());
        family(CPU_FEATURE, &mut offer.cpu_features.iter());
        family(HYPERV, &mut offer.hyperv.iter());
        if let Some(hz) = offer.tsc_hz {
            labels.insert(format!("{TIMER}tsc-frequency"), hz.to_string());
            labels.insert(format!("{TIMER}tsc-scalable"), offer.tsc_scalable.to_string());
            labels.insert(format!("{FREQUENCY}{hz}"), "true".to_owned());
        }
    }
    labels
}

/// What machines of this node asked for.
#[derive(Clone, Copy, Debug)]
pub enum RequestedLabels<'a> {
    /// The machines of the node are not known.
    Unknown,
    /// Labels that the node selectors of their pods name.
    Labels(&'a BTreeSet<String>),
}

impl RequestedLabels<'_> {
    fn has(self, label: &str) -> bool {
        match self {
            Self::Unknown => true,
            Self::Labels(labels) => labels.contains(label),
        }
    }
}

/// What has to change for a node to have what is wanted: new values, and nothing for what is to go. A label that a machine
/// asked for stays; a request sets no label that the node does not have.
#[must_use]
pub fn difference(
    node: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    asked: RequestedLabels<'_>,
) -> BTreeMap<String, Option<String>> {
    let skipped = annotations.get(SKIP).is_some_and(|value| value == "true");
    let is_ours = |label: &str| if skipped { label == SCHEDULABLE } else { is_of_agent(label) };
    let set = wanted.iter().filter(|(label, value)| is_ours(label) && node.get(*label) != Some(value));
    let may_go = |label: &str| is_ours(label) && label != SCHEDULABLE && !asked.has(label);
    let gone = node.keys().filter(|label| may_go(label) && !wanted.contains_key(*label));
    set.map(|(label, value)| (label.clone(), Some(value.clone())))
        .chain(gone.map(|label| (label.clone(), None)))
        .collect()
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garboard_api::metadata::node_label::{SET_FAMILIES, SET_SINGLE};
    use garboard_machine::features::Accelerator;

    fn names(list: &[&str]) -> std::collections::BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn offer() -> NodeOffer {
        NodeOffer {
            accelerator: Accelerator::Kvm,
            kvm: None,
            machines: names(&["q35", "pc-q35-7.2"]),
            cpu_models: names(&["qemu64", "Skylake-Client-noTSX-IBRS"]),
            cpu_features: names(&["avx2", "lahf_lm", "sse4.1"]),
            cpu_vendor: "GenuineIntel".into(),
            hyperv: names(&["synic"]),
            tsc_hz: Some(2_400_000_000),
            tsc_scalable: false,
        }
    }

    fn labels(offer: Option<&NodeOffer>, kvm: bool) -> BTreeMap<String, String> {
        wanted(&NodeState { offer, schedulable: true, kvm, ksm: false })
    }

    #[test]
    fn what_is_offered_is_labelled() {
        let labels = labels(Some(&offer()), true);
        for label in [
            "kubevirt.io/schedulable",
            "machine-type.node.kubevirt.io/q35",
            "cpu-model.node.kubevirt.io/Skylake-Client-noTSX-IBRS",
            "cpu-feature.node.kubevirt.io/sse4.1",
            "cpu-vendor.node.kubevirt.io/GenuineIntel",
            "hyperv.node.kubevirt.io/synic",
            "scheduling.node.kubevirt.io/tsc-frequency-2400000000",
        ] {
            assert_eq!(labels.get(label).map(String::as_str), Some("true"), "{label}");
        }
        assert_eq!(labels["cpu-timer.node.kubevirt.io/tsc-frequency"], "2400000000");
        let is_listed = |label: &String| {
            SET_SINGLE.contains(&label.as_str()) || SET_FAMILIES.iter().any(|family| label.starts_with(family))
        };
        assert!(labels.keys().all(is_listed), "{labels:?}");
    }

    #[test]
    fn the_documents_name_each_label_that_is_set() {
        let page = include_str!("../../docs/operators.md");
        let (_, section) = page.split_once("\n## Labels of nodes\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let named: Vec<&str> = section.split('`').skip(1).step_by(2).collect();
        for single in SET_SINGLE {
            assert!(named.contains(&single), "docs/operators.md does not name {single}");
        }
        for family in SET_FAMILIES {
            assert!(named.iter().any(|name| name.starts_with(family)), "docs/operators.md does not name {family}");
        }
    }

    #[test]
    fn without_kvm_nothing_of_it_is_promised() {
        let lost = labels(Some(&offer()), false);
        assert!(!lost.keys().any(|label| label.starts_with(CPU_MODEL) || label.starts_with(CPU_FEATURE)), "{lost:?}");
        assert!(lost.contains_key("machine-type.node.kubevirt.io/q35"));
        let emulated = NodeOffer { accelerator: Accelerator::Tcg, ..offer() };
        assert!(labels(Some(&emulated), false).contains_key("cpu-model.node.kubevirt.io/qemu64"));
        assert_eq!(labels(None, true).len(), 3);
        let early = wanted(&NodeState { offer: None, schedulable: false, kvm: true, ksm: false });
        assert!(!early.contains_key(SCHEDULABLE), "{early:?}");
    }

    #[test]
    fn a_word_that_is_no_name_is_no_label() {
        let odd = NodeOffer { cpu_models: names(&["../x", "", "-a", "a b", &"m".repeat(64)]), ..offer() };
        assert!(!labels(Some(&odd), true).keys().any(|label| label.starts_with(CPU_MODEL)));
    }

    #[test]
    fn only_what_differs_is_written_and_what_is_not_true_any_more_goes() {
        let wanted = labels(Some(&offer()), true);
        let mut node = wanted.clone();
        let none = BTreeMap::new();
        node.insert("kubernetes.io/os".into(), "linux".into());
        let nothing = BTreeSet::new();
        let of_none = RequestedLabels::Labels(&nothing);
        assert!(difference(&node, &none, &wanted, of_none).is_empty());
        node.insert("cpu-model.node.kubevirt.io/EPYC".into(), "true".into());
        node.insert("kubevirt.io/sev".into(), "".into());
        node.insert("kubevirt.io/theirs".into(), "".into());
        node.insert(SCHEDULABLE.into(), "false".into());
        let changes = difference(&node, &none, &wanted, of_none);
        let expected = [
            ("cpu-model.node.kubevirt.io/EPYC".to_owned(), None),
            (SCHEDULABLE.to_owned(), Some("true".to_owned())),
            ("kubevirt.io/sev".to_owned(), None),
        ];
        assert_eq!(changes, BTreeMap::from(expected));
        let skip = BTreeMap::from([(SKIP.to_owned(), "true".to_owned())]);
        assert_eq!(difference(&node, &skip, &wanted, of_none).into_keys().collect::<Vec<_>>(), [SCHEDULABLE]);
    }
    #[test]
    fn what_a_machine_asked_for_stays_as_long_as_it_runs() {
        let none = BTreeMap::new();
        let wanted = labels(Some(&offer()), false);
        let mut node = wanted.clone();
        node.insert("cpu-model.node.kubevirt.io/EPYC".into(), "true".into());
        let asked = names(&["cpu-model.node.kubevirt.io/EPYC", "cpu-model.node.kubevirt.io/Never"]);
        assert!(
            difference(&node, &none, &wanted, RequestedLabels::Labels(&asked)).is_empty(),
            "kept, and nothing is added"
        );
        assert!(
            difference(&node, &none, &wanted, RequestedLabels::Unknown).is_empty(),
            "the running machines are not known yet"
        );
        assert_eq!(difference(&node, &none, &wanted, RequestedLabels::Labels(&BTreeSet::new())).len(), 1);
    }

    #[test]
    fn a_kubelet_that_is_away_takes_nothing_back() {
        let none = BTreeMap::new();
        let away = wanted(&NodeState { offer: None, schedulable: false, kvm: true, ksm: false });
        let node = labels(None, true);
        assert!(difference(&node, &none, &away, RequestedLabels::Labels(&BTreeSet::new())).is_empty());
    }
}
