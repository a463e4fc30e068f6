//! Pods that no node takes.

use serde_json::{Value, json};

use super::super::super::diagnosis::DiagnosisVerdict;
use super::super::{AGO, asks_for, node, pod, unscheduled, vmi, with};
use super::{Failure, failure};

/// Two nodes, and what each of them has against the pod.
fn both(what: &str) -> Value {
    unscheduled(&format!(
        "0/2 nodes are available: 2 {what}. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    ))
}

/// The pod asks for this as well.
fn requesting(mut facts: Value, what: &str, amount: &str) -> Value {
    facts["pods"][0]["spec"]["containers"][0]["resources"]["requests"][what] = json!(amount);
    facts
}

pub(super) fn all() -> Vec<Failure> {
    room().into_iter().chain(devices()).chain(choices()).chain(schedulers()).collect()
}

fn room() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::NoRoom;
    vec![
        failure("no memory left", "a guest of 9000Gi", verdict)
            .says(&["no node that it may run on has", "MiB of memory left"])
            .next("kubectl describe nodes    # see Allocated resources")
            .recorded("noRoom.json"),
        failure("no processor time left", "a request of more CPU than each node has", verdict)
            .says(&["has 64 cpu left"])
            .next("ask for less: kubectl edit vm hello")
            .seen(requesting(both("Insufficient cpu"), "cpu", "64")),
        failure("no hugepages left", "`hugepages.pageSize: 2Mi`, and nodes that have reserved none", verdict)
            .says(&["has 128 MiB of hugepages-2Mi left"])
            .next("reserve pages of 2Mi on a node (sysctl vm.nr_hugepages), and restart its kubelet")
            .seen(requesting(both("Insufficient hugepages-2Mi"), "hugepages-2Mi", "134217728")),
        failure("hugepages of a size that no node has", "`hugepages.pageSize: 3Mi`", verdict)
            .says(&["has 66 MiB of hugepages-3Mi left"])
            .next("write 2Mi or 1Gi as memory.hugepages.pageSize, nodes have no others: kubectl edit vm hello")
            .seen(requesting(both("Insufficient hugepages-3Mi"), "hugepages-3Mi", "69206016")),
        failure("no disk space left for layers", "a container disk and an emptyDisk of 2Ti", verdict)
            .says(&["has 2097152 MiB of ephemeral-storage left"])
            .next("ask for less: kubectl edit vm hello")
            .seen(requesting(both("Insufficient ephemeral-storage"), "ephemeral-storage", "2199023255552")),
        failure("no place for a pod left", "nodes with as many pods as their kubelets take", verdict)
            .says(&["have as many pods as they take"])
            .next("kubectl describe nodes")
            .seen(both("Too many pods")),
        failure("no place for a volume left", "nodes with as many volumes as their driver attaches", verdict)
            .says(&["have as many volumes attached as they take"])
            .next("kubectl describe nodes")
            .seen(both("node(s) exceed max volume count")),
    ]
}

fn devices() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::NoDevice;
    vec![
        failure("no KVM", "nodes without virtualization in their firmware", verdict)
            .says(&["/dev/kvm to give"])
            .next("kubectl garboard cluster install --emulation")
            .seen(both("Insufficient devices.kubevirt.io/kvm")),
        failure("no network device", "nodes whose kernel has no module `tun`", verdict)
            .says(&["/dev/tun to give"])
            .next("kubectl garboard cluster status")
            .seen(both("Insufficient devices.kubevirt.io/tun")),
        failure("no device of another plug-in", "a request for a device that no node has", verdict)
            .says(&["has any example.com/fpga left"])
            .next("kubectl describe nodes    # see Allocatable and Allocated resources")
            .seen(requesting(both("Insufficient example.com/fpga"), "example.com/fpga", "1")),
    ]
}

fn choices() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::NoNodeMatches;
    let selector = || both("node(s) didn't match Pod's node affinity/selector");
    vec![
        failure("node selector that fits no node", "`nodeSelector: disk=ssd`", verdict)
            .says(&["nodeSelector: disk=ssd"])
            .next("kubectl get nodes -l kubevirt.io/schedulable=true --show-labels")
            .recorded("noNodeMatches.json"),
        failure("CPU model that no node gives", "`cpu.model: Denverton` on other processors", verdict)
            .says(&["the CPU model Denverton of its spec.template.spec.domain.cpu.model"])
            .next("grep cpu-model.node.kubevirt.io/    # what there is")
            .seen(with(selector(), json!({"pods": asks_for("cpu-model.node.kubevirt.io/Denverton")}))),
        failure(
            "processor without a feature",
            "`cpu.features: amx-tile` with the policy require, on older processors",
            verdict,
        )
        .says(&["the CPU feature amx-tile of its spec.template.spec.domain.cpu.features"])
        .next("kubectl edit vm hello")
        .seen(with(selector(), json!({"pods": asks_for("cpu-feature.node.kubevirt.io/amx-tile")}))),
        failure("machine type that no node has", "`machine.type` of a QEMU that is not installed", verdict)
            .says(&["the machine type pc-q35-99.0 of its spec.template.spec.domain.machine.type"])
            .next("grep machine-type.node.kubevirt.io/    # what there is")
            .seen(with(selector(), json!({"pods": asks_for("machine-type.node.kubevirt.io/pc-q35-99.0")}))),
        failure("other pods keep it away", "`podAntiAffinity`, and a machine of that label on each node", verdict)
            .says(&["where other pods run keeps it from every node: affinity.podAntiAffinity"])
            .next("kubectl get pods -A -o wide --show-labels")
            .seen(both("node(s) didn't match pod anti-affinity rules")),
        failure("it cannot be spread", "`topologySpreadConstraints` with `DoNotSchedule`, and one zone", verdict)
            .says(&["topologySpreadConstraints"])
            .next("kubectl edit vm hello")
            .seen(both("node(s) didn't match pod topology spread constraints")),
        failure("taint", "a taint of all nodes that the machine does not tolerate", DiagnosisVerdict::Tainted)
            .says(&["because of their taint gpu: only"])
            .next("remove the taint, or add a toleration to the machine")
            .seen(both("node(s) had untolerated taint {gpu: only}")),
    ]
}

fn schedulers() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::Unschedulable;
    let held = |spec: Value, conditions: Value| {
        let mut pods = pod(Value::Null, json!({"phase": "Pending", "conditions": conditions}));
        pods[0]["metadata"]["creationTimestamp"] = json!(AGO);
        pods[0] = with(pods[0].clone(), json!({"spec": spec}));
        json!({"vmi": vmi("Scheduling", json!([])), "pods": pods})
    };
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates"}]);
    vec![
        failure("no node takes machines", "no node agent is well", DiagnosisVerdict::NoSchedulableNode)
            .says(&["none has the label kubevirt.io/schedulable=true"])
            .next("kubectl garboard cluster status")
            .seen(with(
                unscheduled("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
                json!({"nodes": [node("node-1", "True", "false")]}),
            )),
        failure("all nodes are cordoned", "`kubectl cordon` of every node", verdict)
            .says(&["because nodes are cordoned"])
            .next("kubectl uncordon NODE    # once the node may be used again")
            .seen(both("node(s) were unschedulable")),
        failure("scheduler missing", "`schedulerName` of a scheduler that does not run", verdict)
            .says(&["no scheduler has looked at its pod", "the scheduler night-shift"])
            .next("start that scheduler, or name another one in schedulerName")
            .seen(held(json!({"schedulerName": "night-shift"}), json!([]))),
        failure("scheduling gate", "a webhook that sets a scheduling gate, and nothing that removes it", verdict)
            .waits()
            .says(&["kept from the scheduler by example.com/budget"])
            .next("find out what sets and removes the scheduling gate example.com/budget")
            .seen(held(json!({"schedulingGates": [{"name": "example.com/budget"}]}), gated)),
    ]
}
