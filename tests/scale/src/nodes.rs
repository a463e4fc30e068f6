//! What kubelet and node agent would report of a node: room, devices, labels.

use std::collections::{BTreeMap, BTreeSet};

use garboard_host::offer::NodeOffer;
use garboard_machine::features::Accelerator;
use garboard_node::labels::{NodeState, wanted};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// The CPU model of the machines that are started here; KubeVirt's controller asks for the label of any model in a spec.
pub(crate) const CPU_MODEL: &str = "qemu64";
/// The machine type, and what it stands for.
pub(crate) const MACHINE_TYPES: [&str; 2] = ["q35", "pc-q35-7.2"];

/// The name of a node of the test cluster that KWOK plays.
pub(crate) fn name(number: u16) -> String {
    format!("kwok-{number}")
}

/// Equips the nodes 1 to `number`.
pub(crate) async fn equip(client: &Client, number: u16) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let room = json!({
        "ephemeral-storage": "1Ti", "devices.kubevirt.io/kvm": "1000", "devices.kubevirt.io/tun": "1000",
        "devices.kubevirt.io/vhost-net": "1000",
    });
    let status = json!({"status": {"capacity": room, "allocatable": room}});
    let labels = json!({"metadata": {"labels": labels()}});
    for number in 1..=number {
        nodes.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(&status)).await?;
        nodes.patch(&name(number), &PatchParams::default(), &Patch::Merge(&labels)).await?;
    }
    Ok(())
}

fn labels() -> BTreeMap<String, String> {
    let names = |list: &[&str]| -> BTreeSet<String> { list.iter().map(|name| (*name).to_owned()).collect() };
    let offer = NodeOffer {
        accelerator: Accelerator::Kvm,
        kvm: None,
        machines: names(&MACHINE_TYPES),
        cpu_models: names(&[CPU_MODEL]),
        cpu_features: names(&["avx2", "sse4.1"]),
        cpu_vendor: "AuthenticAMD".to_owned(),
        hyperv: BTreeSet::new(),
        tsc_hz: None,
        tsc_scalable: false,
    };
    wanted(&NodeState { offer: Some(&offer), schedulable: true, kvm: true, ksm: false })
}
