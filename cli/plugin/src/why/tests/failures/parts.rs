//! What a machine depends on: nodes, node agents, controllers.

use serde_json::{Value, json};

use super::super::super::diagnosis::DiagnosisVerdict;
use super::super::{AGO, NOW, node, pod, vmi, with};
use super::{Failure, failure};

fn starts() -> Value {
    json!({"vmi": vmi("Scheduled", json!([])), "pods": pod(json!("node-1"), json!({"phase": "Running"}))})
}

fn runs() -> Value {
    json!({"vmi": vmi("Running", json!([])), "pods": pod(json!("node-1"), json!({"phase": "Running"}))})
}

/// A pod of Garboard whose container ends again and again, with the end of its log.
fn crashes(name: &str, fields: &Value) -> Value {
    let line = json!({"timestamp": "2026-01-01T00:59:00Z", "level": "ERROR", "fields": fields}).to_string();
    let log = format!("{{\"level\":\"INFO\",\"fields\":{{\"message\":\"it starts\"}}}}\n{line}\n");
    json!([{"metadata": {"name": name}, "spec": {"nodeName": "node-1", "containers": []}, "status": {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 7,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": log}}}],
    }}])
}

/// A node whose agent gave its last sign of life then.
fn signed(annotations: Value) -> Value {
    let mut node = node("node-1", "True", "true");
    node["metadata"]["annotations"] = annotations;
    json!({"nodes": [node]})
}

pub(super) fn all() -> Vec<Failure> {
    agents().into_iter().chain(controllers()).chain(nodes()).chain(deletions()).collect()
}

fn agents() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::AgentDown;
    let broken = json!({"message": "the node agent failed", "error": "listen at /run/garboard-agent/agent.sock: Read-only file system"});
    let beat = "2026-01-01T00:58:00Z";
    vec![
        failure("node agent missing", "the DaemonSet's node selector leaves the node out", verdict)
            .says(&["the agent of node node-1, which does not work", "no garboard-node on it"])
            .next("kubectl garboard cluster status")
            .seen(with(starts(), json!({"parts": {"agents": []}}))),
        failure("node agent ends repeatedly", "a directory of the node that became read-only", verdict)
            .says(&[
                "the agent of node node-1, which does not work",
                "the node agent failed: listen at /run/garboard-agent",
            ])
            .next("kubectl garboard cluster status")
            .seen(with(starts(), json!({"parts": {"agents": crashes("garboard-node-x", &broken)}}))),
        failure("node agent hangs", "SIGSTOP to the agent, twenty minutes ago", verdict)
            .says(&["the agent of node node-1, which does not work", "last sign of life 20 min ago"])
            .next("kubectl garboard cluster status")
            .seen(with(starts(), signed(json!({"kubevirt.io/heartbeat": "2026-01-01T00:40:00Z"})))),
        failure(
            "node agent connected to no controller",
            "a NetworkPolicy that closes port 8445 of the controllers",
            verdict,
        )
        .says(&[
            "the agent of node node-1 is connected to no controller",
            "consoles, pauses and other requests do not reach it",
        ])
        .next("check that pods of node node-1 reach port 8445 of the controllers' pods")
        .seen(with(
            runs(),
            signed(json!({"kubevirt.io/heartbeat": beat, "garboard.dev/connected-controllers": format!("0 {beat}")})),
        )),
    ]
}

fn controllers() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::ControllerDown;
    let port = json!({"message": "the controller exits", "problem": "no metrics: Err(Os { code: 98, kind: AddrInUse, message: \"Address in use\" })"});
    let unloaded = json!([{"metadata": {"name": "garboard-controller-x"}, "spec": {"containers": []}, "status": {
        "containerStatuses": [{"name": "controller", "image": "garboard/controller:0.1.0", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImageNeverPull", "message":
                "Container image \"garboard/controller:0.1.0\" is not present with pull policy of Never"}}}],
    }}]);
    vec![
        failure("controllers scaled to nothing", "`kubectl scale deployment/garboard-controller --replicas=0`", verdict)
            .says(&["no controller works", "0 of 0"])
            .next("kubectl garboard cluster status")
            .seen(json!({"parts": {"controller": {"spec": {"replicas": 0}, "status": null}}})),
        failure("metrics port of the controllers in use", "`--metrics` and `--webhooks` with one port", verdict)
            .says(&["no controller works", "the controller exits: no metrics", "Address in use"])
            .next("kubectl garboard cluster status")
            .seen(json!({"parts": {"controller": {"status": null}, "controllers": crashes("garboard-controller-x", &port)}})),
        failure("controllers' image not loaded", "nodes without Garboard's images", verdict)
            .says(&["no controller works", "garboard/controller:0.1.0"])
            .next("kubectl garboard cluster status")
            .seen(json!({"parts": {"controller": {"status": null}, "controllers": unloaded}})),
        failure("no controller acts on it", "a machine on a cluster whose controllers are another project's", verdict)
            .says(&["no controller has acted on it since it was created"])
            .next("kubectl garboard cluster status")
            .seen(json!({"vm": {"status": null}, "parts": null})),
    ]
}

fn nodes() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::NodeNotReady;
    vec![
        failure("node cut off", "the kubelet is frozen", verdict)
            .says(&["its node node-1 does not answer", "Kubelet stopped posting node status"])
            .next("kubectl taint node node-1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
            .seen(with(runs(), json!({"nodes": [node("node-1", "Unknown", "true")]}))),
        failure("node removed", "`kubectl delete node`", verdict)
            .says(&["its node node-1 is not in the cluster any more"])
            .next("kubectl get nodes")
            .seen(with(runs(), json!({"nodes": [node("node-2", "True", "true")]}))),
    ]
}

fn deletions() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::DeletionStuck;
    let leaves = |end: &str| {
        let times = json!({"metadata": {"deletionTimestamp": end, "deletionGracePeriodSeconds": 60}});
        json!({
            "vm": {"spec": {"runStrategy": "Halted"}},
            "vmi": with(vmi("Running", json!([])), json!({"metadata": {"deletionTimestamp": AGO}})),
            "pods": [with(pod(json!("node-1"), json!({}))[0].clone(), times)],
        })
    };
    vec![
        failure("finalizer of another program", "`metadata.finalizers: [example.com/keep]`, and a deletion", verdict)
            .says(&["the owner of its finalizer example.com/keep removes it"])
            .next("find out who owns example.com/keep, and why it is not removed")
            .seen(json!({"vm": {"metadata": {"deletionTimestamp": AGO, "finalizers": ["example.com/keep"]}}})),
        failure("deletion without controllers", "a deletion while the controllers are scaled to nothing", verdict)
            .says(&["the controller does not act"])
            .next("kubectl garboard cluster status")
            .seen(json!({
                "vm": {"metadata": {"deletionTimestamp": NOW, "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]}},
                "parts": {"controller": {"status": null}},
            })),
        failure("kubelet does not remove the pod", "a stop while the container runtime hangs", verdict)
            .says(&["its pod should have been gone 10 min ago", "the kubelet of node-1"])
            .next("kubectl describe node node-1")
            .seen(leaves("2026-01-01T00:50:00Z")),
        failure("guest ignores its power button", "a stop of a guest without ACPI events, within its grace", DiagnosisVerdict::Stopping)
            .waits()
            .says(&["it is ended by force in 30 s at the latest"])
            .next("kubectl garboard stop hello --force")
            .seen(leaves("2026-01-01T01:00:30Z")),
    ]
}
