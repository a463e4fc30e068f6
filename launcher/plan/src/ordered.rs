//! What of a VMI's interfaces follows from the VMI alone, whatever host it starts on: what the owner of networks
//! does for a launcher, without believing the launcher.

use garboard_api::v1::VirtualMachineInstance;
use garboard_machine::facts::{HostFacts, NetworkFacts};
use garboard_machine::features::Accelerator;

use super::draft::{Draft, Input};
use super::error::PlanError;
use super::interface::BindingPlan;
use super::options::PlanOptions;
use super::{compute, interfaces};

/// An interface that is joined to a network by a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedInterface {
    /// Its name in the VMI.
    pub name: String,
    /// Queues, as in the plan.
    pub queues: u32,
    /// The address of the guest's NIC, where the VMI contains it; else it depends on the pod, or on earlier runs.
    pub mac: Option<String>,
    /// How it is joined.
    pub binding: BindingPlan,
}

/// The interfaces of a VMI that are joined by a tap, in its order.
///
/// # Errors
/// [`PlanError`] for what no plan could be made of either.
pub fn ordered_interfaces(vmi: &VirtualMachineInstance) -> Result<Vec<OrderedInterface>, PlanError> {
    let (mut facts, options) = (HostFacts::reference(), PlanOptions::default());
    // What an interface asks for, not what would be done for it where that cannot be had.
    facts.network = NetworkFacts { tap: true, vhost_net: true, passt: Some(String::new()) };
    let input = Input { vmi, facts: &facts, options: &options, stored: None };
    let mut draft = Draft::new(input, Accelerator::Tcg);
    interfaces::ordered(&mut draft, compute::vcpus(input))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(multiqueue: bool, interfaces: serde_json::Value) -> VirtualMachineInstance {
        let cpu = serde_json::json!({"sockets": 2, "cores": 2});
        let devices = serde_json::json!({"networkInterfaceMultiqueue": multiqueue, "interfaces": interfaces});
        let spec = serde_json::json!({"domain": {"memory": {"guest": "64Mi"}, "cpu": cpu, "devices": devices},
            "networks": [{"name": "default", "pod": {"vmNetworkCIDR": "10.9.0.0/24"}}]});
        serde_json::from_value(serde_json::json!({"metadata": {"name": "vm"}, "spec": spec})).unwrap()
    }

    /// As in the plan, whatever else the plan decides.
    #[test]
    fn it_is_what_the_plan_has() {
        let address = "02:00:00:AA:BB:01";
        let all = [
            (false, serde_json::json!([{"name": "default", "masquerade": {}, "ports": [{"port": 22}]}])),
            (true, serde_json::json!([{"name": "default", "bridge": {}, "macAddress": address}])),
            (true, serde_json::json!([{"name": "default", "masquerade": {}, "model": "e1000"}])),
            (true, serde_json::json!([{"name": "default", "bridge": {}, "state": "absent"}])),
        ];
        let mut facts = HostFacts::reference();
        facts.network.tap = true;
        for (multiqueue, interfaces) in all {
            let vmi = vmi(multiqueue, interfaces);
            let planned = crate::plan(&vmi, &facts, &PlanOptions::default(), None).unwrap().interfaces;
            let ordered = ordered_interfaces(&vmi).unwrap();
            assert_eq!(planned.len(), ordered.len());
            for (planned, ordered) in planned.iter().zip(&ordered) {
                let expected = (&planned.name, planned.queues, &planned.binding);
                assert_eq!((&ordered.name, ordered.queues, &ordered.binding), expected);
                assert!(ordered.mac.as_ref().is_none_or(|mac| *mac == planned.mac), "{ordered:?}");
            }
        }
        let addressed = vmi(false, serde_json::json!([{"name": "default", "bridge": {}, "macAddress": address}]));
        assert_eq!(ordered_interfaces(&addressed).unwrap()[0].mac.as_deref(), Some("02:00:00:aa:bb:01"));
    }

    /// The node agent makes what this says, and no webhook has refused anything on its way.
    #[test]
    fn a_binding_that_is_not_planned_is_an_error_and_never_a_bridge() {
        let named = |interface: serde_json::Value| ordered_interfaces(&vmi(false, serde_json::json!([interface])));
        for binding in ["macvtap", "passt", "slirp", "sriov", "binding"] {
            let value = if binding == "binding" { serde_json::json!({"name": "p"}) } else { serde_json::json!({}) };
            for beside in ["name", "bridge"] {
                let mut interface = serde_json::json!({"name": "default", binding: value});
                interface[beside] = if beside == "name" { "default".into() } else { serde_json::json!({}) };
                let error = named(interface).unwrap_err();
                let field = format!("spec.domain.devices.interfaces[0].{binding}");
                assert!(matches!(error, PlanError::NotInThisVersion { .. }), "{error}");
                assert_eq!(error.field(), Some(field.as_str()), "{error}");
            }
        }
        for (one, other) in [("bridge", "masquerade"), ("bridge", "passtBinding"), ("masquerade", "passtBinding")] {
            let error = named(serde_json::json!({"name": "default", one: {}, other: {}})).unwrap_err();
            assert!(error.to_string().contains("several"), "{error}");
        }
        let bridged = named(serde_json::json!({"name": "default"})).unwrap();
        assert!(matches!(bridged[0].binding, BindingPlan::Bridge { .. }), "none is KubeVirt's default: {bridged:?}");
    }

    #[test]
    fn no_more_queues_than_vcpus() {
        let one = |multiqueue| vmi(multiqueue, serde_json::json!([{"name": "default", "masquerade": {}}]));
        assert_eq!(ordered_interfaces(&one(true)).unwrap()[0].queues, 4);
        assert_eq!(ordered_interfaces(&one(false)).unwrap()[0].queues, 1);
    }
}
