//! How much each part of an installation logs, by KubeVirt's numbers. What a number means is for the crate `log`.

use std::collections::BTreeMap;

use crate::metadata::label;
use crate::v1::KubeVirt;

/// A part that has a number of its own, with KubeVirt's name of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggingPart {
    /// `virtAPI`: webhooks and the subresource API.
    Api,
    /// `virtController`: the rest of the controller.
    Controller,
    /// `virtHandler`: the node agents.
    NodeAgent,
    /// `virtLauncher`: supervisors in launcher pods.
    Launcher,
}

/// The number of a part on a node, if the object that counts has one. As in KubeVirt the number of a node goes before that of the
/// part, and says nothing of launchers; 0 is none.
#[must_use]
pub fn verbosity(object: Option<&KubeVirt>, part: LoggingPart, node: &str) -> Option<u32> {
    let configuration = object?.spec.configuration.as_ref()?;
    let written = configuration.developer_configuration.as_ref()?.log_verbosity.as_ref()?;
    let of_node = written.node_verbosity.get(node).copied();
    let numbers = match part {
        LoggingPart::Api => [of_node, written.virt_api],
        LoggingPart::Controller => [of_node, written.virt_controller],
        LoggingPart::NodeAgent => [of_node, written.virt_handler],
        LoggingPart::Launcher => [None, written.virt_launcher],
    };
    numbers.into_iter().flatten().find(|number| *number > 0)
}

/// The number of an instance's own, by its label; nothing where it has none, or what is no number.
#[must_use]
pub fn verbosity_of_instance(labels: Option<&BTreeMap<String, String>>) -> Option<u32> {
    labels?.get(label::LOG_VERBOSITY)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PARTS: [LoggingPart; 4] =
        [LoggingPart::Api, LoggingPart::Controller, LoggingPart::NodeAgent, LoggingPart::Launcher];

    fn numbers(written: &serde_json::Value, node: &str) -> [Option<u32>; 4] {
        let object: KubeVirt = serde_json::from_value(json!({
            "metadata": {"name": "kubevirt"},
            "spec": {"configuration": {"developerConfiguration": {"logVerbosity": written}}},
        }))
        .unwrap();
        PARTS.map(|part| verbosity(Some(&object), part, node))
    }

    #[test]
    fn each_part_has_its_own_number() {
        let written = json!({"virtAPI": 3, "virtController": 4, "virtHandler": 5, "virtLauncher": 6});
        assert_eq!(numbers(&written, "n"), [Some(3), Some(4), Some(5), Some(6)]);
        assert_eq!(numbers(&json!({"virtHandler": 0}), "n"), [None; 4]);
        assert_eq!(PARTS.map(|part| verbosity(None, part, "n")), [None; 4]);
    }

    #[test]
    fn the_number_of_a_node_goes_before_and_is_not_for_launchers() {
        let written = json!({"virtHandler": 3, "virtLauncher": 4, "nodeVerbosity": {"n": 6, "zero": 0}});
        assert_eq!(numbers(&written, "n"), [Some(6), Some(6), Some(6), Some(4)]);
        for node in ["zero", "other", ""] {
            assert_eq!(numbers(&written, node), [None, None, Some(3), Some(4)], "{node}");
        }
    }

    #[test]
    fn an_instance_has_its_number_in_a_label() {
        let of = |value: &str| {
            let labels = BTreeMap::from([("logVerbosity".to_owned(), value.to_owned())]);
            verbosity_of_instance(Some(&labels))
        };
        assert_eq!([of("6"), of("0"), of("high"), of("-1"), of("")], [Some(6), Some(0), None, None, None]);
        assert_eq!([verbosity_of_instance(None), verbosity_of_instance(Some(&BTreeMap::new()))], [None, None]);
    }
}
