//! Situations and their diagnoses. Those in `tests/situations` were recorded on a cluster with `why -o facts`.

mod condition;
mod failures;
mod interpreted;
mod pull;
mod record;
mod sets;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use garboard_protocol::exit::{Account, EndReason, ExitCause};
use serde_json::{Value, json};

use super::diagnose::{RULES, diagnose};
use super::diagnosis::{Diagnosis, DiagnosisVerdict, Health};
use super::facts::Facts;

const NOW: &str = "2026-01-01T01:00:00Z";
const AGO: &str = "2026-01-01T00:55:00Z";

/// A situation, of what differs from a healthy cluster with a machine that is to run.
fn situation(differs: Value) -> Facts {
    let mut facts = json!({
        "now": NOW, "namespace": "tenant", "name": "hello",
        "vm": {
            "metadata": {"name": "hello", "namespace": "tenant", "uid": "m", "creationTimestamp": AGO},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}},
            "status": {"printableStatus": "Starting"},
        },
        "nodes": [node("node-1", "True", "true")],
        "parts": {
            "controller": {"spec": {"replicas": 2, "selector": {}, "template": {}}, "status": {"availableReplicas": 2}},
            "agents": [{"metadata": {"name": "garboard-node-x"}, "spec": {"nodeName": "node-1", "containers": []},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}}],
        },
    });
    merge(&mut facts, differs);
    serde_json::from_value(facts).unwrap()
}

fn judge(differs: Value) -> Diagnosis {
    diagnose(&situation(differs))
}

/// A merge patch: objects are merged, everything else replaces.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from,
    }
}

fn node(name: &str, ready: &str, schedulable: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubevirt.io/schedulable": schedulable}},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": AGO}]},
    })
}

fn vmi(phase: &str, conditions: Value) -> Value {
    json!({
        "metadata": {"name": "hello", "namespace": "tenant", "uid": "u"},
        "spec": {"domain": {"devices": {}}},
        "status": {
            "phase": phase, "conditions": conditions,
            "phaseTransitionTimestamps": [{"phase": phase, "phaseTransitionTimestamp": AGO}],
        },
    })
}

fn pod(node: Value, status: Value) -> Value {
    json!([{
        "metadata": {"name": "virt-launcher-hello-u", "labels": {"kubevirt.io/created-by": "u"}},
        "spec": {
            "nodeName": node, "nodeSelector": {"kubevirt.io/schedulable": "true", "disk": "ssd"},
            "containers": [{"name": "compute", "resources": {"requests": {"memory": "68719476736", "cpu": "100m"}}}],
        },
        "status": status,
    }])
}

fn unscheduled(message: &str) -> Value {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    json!({"vmi": vmi("Scheduling", json!([])), "pods": pod(Value::Null, json!({"phase": "Pending", "conditions": [condition]}))})
}

/// A machine without an instance, and its status.
fn unfilled(kind: &str, reason: &str, message: &str) -> Value {
    let status = if kind == "Failure" { "True" } else { "False" };
    let condition =
        json!([{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": AGO}]);
    json!({"vm": {"spec": {"runStrategy": "Always"}, "status": {"conditions": condition}}})
}

/// The pod of `unscheduled`, with a node selector that the controller added.
fn asks_for(label: &str) -> Value {
    let message = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.";
    let mut pods = unscheduled(message)["pods"].clone();
    pods[0]["spec"]["nodeSelector"][label] = json!("true");
    pods
}

fn waiting(container: &str, reason: &str, message: &str) -> Value {
    let status = json!({"name": container, "image": "garboard/launcher:0.1.0", "imageID": "", "ready": false,
        "restartCount": 3, "state": {"waiting": {"reason": reason, "message": message}}});
    json!({"vmi": vmi("Scheduling", json!([])),
        "pods": pod(json!("node-1"), json!({"phase": "Pending", "containerStatuses": [status]}))})
}

fn event(kind: &str, reason: &str, severity: &str, message: &str) -> Value {
    let name = if kind == "Pod" { "virt-launcher-hello-u" } else { "hello" };
    json!([{"metadata": {}, "involvedObject": {"kind": kind, "name": name}, "reason": reason, "type": severity,
        "message": message, "eventTime": AGO.replace('Z', ".000000Z")}])
}

fn with(mut situation: Value, more: Value) -> Value {
    merge(&mut situation, more);
    situation
}

/// The instance has how its run ended.
fn ended(cause: &ExitCause, strategy: &str) -> Value {
    let condition = json!([{"type": "garboard.dev/Ended", "status": "True", "reason": cause.reason().as_str(),
        "message": cause.message(), "lastTransitionTime": AGO}]);
    json!({"vm": {"spec": {"runStrategy": strategy}}, "vmi": vmi("Failed", condition)})
}

/// As the node agent writes it into its event.
fn account(cause: &ExitCause) -> String {
    Account { reason: cause.reason(), message: &cause.message() }.to_string()
}

/// The instance is gone, and the event is left.
fn only_the_event(message: &str) -> Value {
    let events = event("VirtualMachineInstance", "Stopped", "Warning", message);
    json!({"vm": {"spec": {"runStrategy": "Manual"}}, "events": events})
}

/// Only the pod has it: PID 1's termination message.
fn only_the_pod(reason: &str, message: &str) -> Value {
    let terminated = json!({"exitCode": 1, "reason": reason, "message": message});
    let compute = json!({"name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": terminated}});
    json!({"vm": {"spec": {"runStrategy": "Once"}}, "vmi": vmi("Failed", json!([])),
        "pods": pod(json!("node-1"), json!({"phase": "Failed", "containerStatuses": [compute]}))})
}

/// A guest that runs, with this condition.
fn holding(kind: &str, reason: &str, message: &str) -> Value {
    json!({"vmi": vmi("Running", json!([{"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": AGO}]))})
}

/// A guest that runs under a KVM that interprets its code.
fn interpreted() -> Value {
    holding("SoftwareEmulation", "KVMInterpretsGuestCode", "KVM on this node interprets guest code")
}

fn with_limit(mut facts: Value) -> Value {
    facts["pods"][0]["spec"]["containers"] = json!([{"name": "compute", "resources": {"limits": {"memory": "300Mi"}}}]);
    facts
}

fn situations() -> Vec<(&'static str, Value, DiagnosisVerdict, Health, &'static str)> {
    let running = json!({"vmi": vmi("Running", json!([{"type": "Ready", "status": "True"}])),
        "pods": pod(json!("node-1"), json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}))});
    let paused =
        |reason: &str| json!({"vmi": vmi("Running", json!([{"type": "Paused", "status": "True", "reason": reason}]))});
    let deleted = json!({"vm": {"metadata": {"deletionTimestamp": AGO, "finalizers": ["example.com/keep"]}}});
    let leaving = |end: &str| {
        json!({
            "vm": {"spec": {"runStrategy": "Halted"}}, "vmi": with(vmi("Running", json!([])), json!({"metadata": {"deletionTimestamp": AGO}})),
            "pods": [with(pod(json!("node-1"), json!({}))[0].clone(), json!({"metadata": {"deletionTimestamp": end, "deletionGracePeriodSeconds": 60}}))],
        })
    };
    let no_controller = json!({"parts": {"controller": {"status": null}}});
    let claims =
        |phase: &str| json!({"claims": [{"metadata": {"name": "data"}, "spec": {}, "status": {"phase": phase}}]});
    vec![
        ("runs", running.clone(), DiagnosisVerdict::Running, Health::Well, "its guest runs"),
        (
            "halted",
            json!({"vm": {"spec": {"runStrategy": "Halted"}}}),
            DiagnosisVerdict::Halted,
            Health::Well,
            "not to run",
        ),
        (
            "manual",
            json!({"vm": {"spec": {"runStrategy": "Manual"}}}),
            DiagnosisVerdict::Halted,
            Health::Well,
            "it runs when it is started",
        ),
        (
            "paused",
            with(running.clone(), paused("PausedByUser")),
            DiagnosisVerdict::Paused,
            Health::Well,
            "it was paused on request",
        ),
        (
            "disk failed",
            with(running.clone(), paused("PausedIOError")),
            DiagnosisVerdict::StorageFailed,
            Health::Wrong,
            "its disk failed",
        ),
        (
            "QEMU silent",
            with(running.clone(), holding("garboard.dev/Unresponsive", "MonitorTimeout", "no answer")),
            DiagnosisVerdict::Unresponsive,
            Health::Wrong,
            "QEMU does not answer on its monitor",
        ),
        (
            "QEMU silent, paused on request before",
            with(
                running.clone(),
                json!({"vmi": vmi("Running", json!([
                    {"type": "Paused", "status": "True", "reason": "PausedByUser"},
                    {"type": "garboard.dev/Unresponsive", "status": "True", "reason": "MonitorTimeout"}]))}),
            ),
            DiagnosisVerdict::Unresponsive,
            Health::Wrong,
            "QEMU does not answer on its monitor",
        ),
        (
            "network gone",
            with(running.clone(), holding("garboard.dev/NetworkLost", "HelperEnded", "the program passt ended")),
            DiagnosisVerdict::NetworkLost,
            Health::Wrong,
            "no network until its next start",
        ),
        (
            "network gone, of one run",
            with(
                with(running.clone(), holding("garboard.dev/NetworkLost", "HelperEnded", "the program passt ended")),
                json!({"vm": {"spec": {"runStrategy": "Once"}}}),
            ),
            DiagnosisVerdict::NetworkLost,
            Health::Wrong,
            "no network until its next start",
        ),
        (
            "interpreted by KVM",
            interpreted(),
            DiagnosisVerdict::Interpreted,
            Health::Wrong,
            "KVM on this node interprets guest code",
        ),
        (
            "changed",
            with(
                running.clone(),
                json!({"vm": {"status": {"conditions": [{"type": "RestartRequired", "status": "True", "message": "cpu changed"}]}}}),
            ),
            DiagnosisVerdict::RestartRequired,
            Health::Well,
            "waits for a restart: cpu changed",
        ),
        (
            "not ready",
            with(
                running.clone(),
                json!({"vmi": vmi("Running", json!([{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": "gate"}]))}),
            ),
            DiagnosisVerdict::NotReady,
            Health::Waiting,
            "does not count as ready: gate",
        ),
        (
            "no memory",
            unscheduled(
                "0/2 nodes are available: 2 Insufficient memory. preemption: 0/2 nodes are available: 2 No preemption victims found.",
            ),
            DiagnosisVerdict::NoRoom,
            Health::Wrong,
            "65536 MiB of memory",
        ),
        (
            "no cpu",
            unscheduled("0/2 nodes are available: 2 Insufficient cpu."),
            DiagnosisVerdict::NoRoom,
            Health::Wrong,
            "100m cpu",
        ),
        (
            "no KVM",
            unscheduled("0/2 nodes are available: 2 Insufficient devices.kubevirt.io/kvm."),
            DiagnosisVerdict::NoDevice,
            Health::Wrong,
            "/dev/kvm",
        ),
        (
            "selector",
            unscheduled("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
            DiagnosisVerdict::NoNodeMatches,
            Health::Wrong,
            "spec.template.spec.nodeSelector: disk=ssd",
        ),
        (
            "DataVolume that is filled",
            unfilled("DataVolumesReady", "NotAllDVsReady", "the DataVolume root is being filled: ImportInProgress"),
            DiagnosisVerdict::DataVolume,
            Health::Waiting,
            "is being filled: ImportInProgress",
        ),
        (
            "DataVolume of a machine that is not to run",
            with(
                unfilled("DataVolumesReady", "NotAllDVsReady", "the DataVolume root is being filled: Pending"),
                json!({"vm": {"spec": {"runStrategy": "Halted"}}}),
            ),
            DiagnosisVerdict::Halted,
            Health::Well,
            "",
        ),
        (
            "DataVolume that failed",
            unfilled("Failure", "FailedDataVolumeImport", "the DataVolume root cannot be filled: 404"),
            DiagnosisVerdict::DataVolume,
            Health::Wrong,
            "cannot be filled: 404",
        ),
        (
            "DataVolume that waits for a consumer",
            with(
                unfilled("DataVolumesReady", "NotAllDVsReady", "the DataVolume root waits"),
                json!({"dataVolumes": [{"metadata": {"name": "root"}, "status": {"phase": "WaitForFirstConsumer"}}]}),
            ),
            DiagnosisVerdict::DataVolume,
            Health::Wrong,
            "the DataVolume root waits",
        ),
        (
            "DataVolume that an instance waits for",
            json!({"vmi": vmi("Pending", json!([{"type": "DataVolumesReady", "status": "False", "reason": "NotAllDVsReady", "message": "the DataVolume root is being filled: ImportInProgress"}]))}),
            DiagnosisVerdict::DataVolume,
            Health::Waiting,
            "is being filled: ImportInProgress",
        ),
        (
            "DataVolume of an instance that failed",
            json!({"vmi": vmi("Pending", json!([{"type": "Synchronized", "status": "False", "reason": "FailedDataVolumeImport", "message": "the DataVolume root cannot be filled: 404"}]))}),
            DiagnosisVerdict::DataVolume,
            Health::Wrong,
            "cannot be filled: 404",
        ),
        (
            "no importer",
            unfilled("Failure", "FailedDataVolumeCreate", "this cluster has no Importer"),
            DiagnosisVerdict::DataVolume,
            Health::Wrong,
            "has no Importer",
        ),
        (
            "CPU model",
            with(
                unscheduled("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
                json!({"pods": asks_for("cpu-model.node.kubevirt.io/Denverton")}),
            ),
            DiagnosisVerdict::NoNodeMatches,
            Health::Wrong,
            "the CPU model Denverton of its spec.template.spec.domain.cpu.model",
        ),
        (
            "no schedulable node",
            with(
                unscheduled("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
                json!({"nodes": [node("node-1", "True", "false")]}),
            ),
            DiagnosisVerdict::NoSchedulableNode,
            Health::Wrong,
            "kubevirt.io/schedulable=true",
        ),
        (
            "taint",
            unscheduled("0/2 nodes are available: 2 node(s) had untolerated taint {gpu: only}."),
            DiagnosisVerdict::Tainted,
            Health::Wrong,
            "taint gpu: only",
        ),
        (
            "claim unbound",
            with(
                unscheduled("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
                claims("Pending"),
            ),
            DiagnosisVerdict::ClaimUnbound,
            Health::Wrong,
            "its claim data has no volume",
        ),
        (
            "claim gone",
            unscheduled("0/2 nodes are available: persistentvolumeclaim \"data\" not found."),
            DiagnosisVerdict::ClaimMissing,
            Health::Wrong,
            "its claim data is not there",
        ),
        (
            "other",
            unscheduled("0/2 nodes are available: 2 node(s) were unschedulable."),
            DiagnosisVerdict::Unschedulable,
            Health::Wrong,
            "were unschedulable",
        ),
        (
            "claim missing",
            json!({"vmi": vmi("Pending", json!([{"type": "Synchronized", "status": "False", "reason": "FailedPvcNotFound", "message": "PVC tenant/data does not exist"}]))}),
            DiagnosisVerdict::ClaimMissing,
            Health::Wrong,
            "its disk is not there: PVC tenant/data does not exist",
        ),
        (
            "field",
            json!({"vmi": vmi("Pending", json!([{"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": "spec.livenessProbe is not supported in a cluster yet"}]))}),
            DiagnosisVerdict::FieldRefused,
            Health::Wrong,
            "spec.livenessProbe is not supported",
        ),
        (
            "pod security",
            json!({"vmi": vmi("Pending", json!([])), "events": event("VirtualMachineInstance", "FailedCreate", "Warning", "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": hostPath")}),
            DiagnosisVerdict::PodSecurity,
            Health::Wrong,
            "Pod Security refuses its pod",
        ),
        (
            "quota",
            json!({"vmi": vmi("Pending", json!([])), "events": event("VirtualMachineInstance", "FailedCreate", "Warning", "pods \"x\" is forbidden: exceeded quota: q, requested: memory=1Gi, used: memory=0, limited: memory=1Mi")}),
            DiagnosisVerdict::QuotaExceeded,
            Health::Wrong,
            "quota is used up: pods \"x\" is forbidden: exceeded quota: q",
        ),
        (
            "quota, reported by the instance",
            json!({"vmi": vmi("Pending", json!([{"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": "pods \"x\" is forbidden: exceeded quota: q"}]))}),
            DiagnosisVerdict::QuotaExceeded,
            Health::Wrong,
            "quota is used up: pods \"x\" is forbidden: exceeded quota: q",
        ),
        (
            "webhook",
            json!({"vmi": vmi("Pending", json!([])), "events": event("VirtualMachineInstance", "FailedCreate", "Warning", "admission webhook \"x\" denied the request: no")}),
            DiagnosisVerdict::PodRefused,
            Health::Wrong,
            "denied the request: no",
        ),
        (
            "instance refused",
            json!({"events": event("VirtualMachine", "FailedCreate", "Warning", "invalid")}),
            DiagnosisVerdict::InstanceRefused,
            Health::Wrong,
            "invalid",
        ),
        (
            "disk image",
            with(
                waiting("launcher", "PodInitializing", ""),
                json!({"events": event("Pod", "Failed", "Warning", "Failed to pull image \"r.example/guest:1\": not found")}),
            ),
            DiagnosisVerdict::ImagePull,
            Health::Wrong,
            "the image r.example/guest:1 cannot be had",
        ),
        (
            "our image",
            waiting("launcher", "ImagePullBackOff", "Back-off pulling image \"garboard/launcher:0.1.0\""),
            DiagnosisVerdict::ImagePull,
            Health::Wrong,
            "garboard/launcher:0.1.0",
        ),
        (
            "secret missing",
            waiting("compute", "CreateContainerConfigError", "secret \"x\" not found"),
            DiagnosisVerdict::ContainerRefused,
            Health::Wrong,
            "secret \"x\" not found",
        ),
        (
            "launcher crashes",
            waiting("launcher", "CrashLoopBackOff", "back-off 10s"),
            DiagnosisVerdict::ContainerRefused,
            Health::Wrong,
            "repeatedly (3 times so far)",
        ),
        (
            "mount",
            with(
                waiting("launcher", "PodInitializing", ""),
                json!({"events": event("Pod", "FailedMount", "Warning", "MountVolume.SetUp failed for volume \"x\"")}),
            ),
            DiagnosisVerdict::VolumeMount,
            Health::Wrong,
            "a volume cannot be mounted",
        ),
        (
            "evicted",
            with(
                running.clone(),
                json!({"vmi": {"status": {"phase": "Failed"}}, "pods": pod(json!("node-1"), json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}))}),
            ),
            DiagnosisVerdict::Evicted,
            Health::Wrong,
            "(Evicted): The node was low on resource",
        ),
        (
            "back-off",
            json!({"vm": {"status": {"startFailure": {"consecutiveFailCount": 3, "retryAfterTimestamp": "2026-01-01T01:00:40Z"}}},
            "events": event("VirtualMachineInstance", "Stopped", "Warning", "QemuFailed: no lock")}),
            DiagnosisVerdict::BackOff,
            Health::Wrong,
            "3 times in a row; it is tried again in 40 s; the last time: no lock",
        ),
        (
            "only the pod has it, with what QEMU printed",
            only_the_pod("Error", "QemuFailed: it gave up\nqemu: no such device\n"),
            DiagnosisVerdict::QemuFailed,
            Health::Wrong,
            "it gave up: qemu: no such device",
        ),
        (
            "the kubelet reports more than PID 1, which was killed",
            with_limit(only_the_pod("OOMKilled", "")),
            DiagnosisVerdict::OutOfMemory,
            Health::Wrong,
            "(OOMKilled): it used more memory than its limit of 314572800 bytes and the kernel killed it",
        ),
        (
            "over",
            with(ended(&ExitCause::GuestShutdown, "Once"), json!({"vmi": {"status": {"phase": "Succeeded"}}})),
            DiagnosisVerdict::RunOver,
            Health::Well,
            "; runStrategy Once is one run",
        ),
        (
            "node lost",
            with(running.clone(), json!({"nodes": [node("node-1", "Unknown", "true")]})),
            DiagnosisVerdict::NodeNotReady,
            Health::Wrong,
            "node node-1 does not answer",
        ),
        (
            "node removed",
            with(running.clone(), json!({"nodes": [node("node-2", "True", "true")]})),
            DiagnosisVerdict::NodeNotReady,
            Health::Wrong,
            "not in the cluster any more",
        ),
        (
            "agent down",
            with(running.clone(), json!({"vmi": {"status": {"phase": "Scheduled"}}, "parts": {"agents": []}})),
            DiagnosisVerdict::AgentDown,
            Health::Wrong,
            "the agent of node node-1",
        ),
        (
            "no controller",
            no_controller.clone(),
            DiagnosisVerdict::ControllerDown,
            Health::Wrong,
            "no controller works",
        ),
        (
            "ignored",
            json!({"vm": {"status": null}, "parts": null}),
            DiagnosisVerdict::ControllerDown,
            Health::Wrong,
            "no controller has acted on it",
        ),
        ("foreign finalizer", deleted, DiagnosisVerdict::DeletionStuck, Health::Wrong, "example.com/keep"),
        (
            "deleted without controller",
            with(
                no_controller,
                json!({"vm": {"metadata": {"deletionTimestamp": NOW, "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]}}}),
            ),
            DiagnosisVerdict::DeletionStuck,
            Health::Wrong,
            "the controller does not act",
        ),
        (
            "shutting down",
            leaving("2026-01-01T01:00:30Z"),
            DiagnosisVerdict::Stopping,
            Health::Waiting,
            "by force in 30 s",
        ),
        (
            "kubelet silent",
            leaving("2026-01-01T00:50:00Z"),
            DiagnosisVerdict::DeletionStuck,
            Health::Wrong,
            "gone 10 min ago; the kubelet of node-1",
        ),
        (
            "starting",
            json!({"vmi": vmi("Scheduled", json!([])), "pods": pod(json!("node-1"), json!({"phase": "Running"}))}),
            DiagnosisVerdict::Starting,
            Health::Waiting,
            "prepares the start",
        ),
        (
            "not found",
            json!({"vm": null, "near": ["hallo"]}),
            DiagnosisVerdict::NotFound,
            Health::Wrong,
            "did you mean hallo?",
        ),
    ]
}

#[test]
fn each_situation_has_its_verdict_its_cause_and_what_to_do() {
    for (name, situation, verdict, health, cause) in situations() {
        let diagnosis = judge(situation);
        assert_eq!((diagnosis.verdict, diagnosis.health), (verdict, health), "{name}: {diagnosis:#?}");
        assert!(diagnosis.cause.contains(cause), "{name}: {:?} does not contain {cause:?}", diagnosis.cause);
        let is_explained = !diagnosis.evidence.is_empty() || verdict == DiagnosisVerdict::NotFound;
        assert!(is_explained, "{name}: no evidence");
        assert!(!diagnosis.next.is_empty() || health == Health::Waiting, "{name}: nothing to do");
    }
}

/// From each source the reason gives the same cause; the message is shown and never decides.
#[test]
fn every_cause_has_its_verdict_from_the_condition_the_event_and_the_pod() {
    for cause in garboard_protocol::testing::causes().iter().filter(|cause| !cause.is_success()) {
        let expected = DiagnosisVerdict::of_bad_end(cause.reason());
        let general = [EndReason::Watchdog, EndReason::GracePeriodExceeded, EndReason::Unknown];
        assert_eq!(
            expected == DiagnosisVerdict::RunFailed,
            general.contains(&cause.reason()),
            "{cause:?} has no verdict"
        );
        let account = account(cause);
        let all = [ended(cause, "Manual"), only_the_event(&account), only_the_pod("Error", &format!("{account}\n\n"))];
        for facts in all {
            let diagnosis = judge(facts);
            assert_eq!((diagnosis.verdict, diagnosis.health), (expected, Health::Wrong), "{diagnosis:#?}");
            assert!(diagnosis.cause.ends_with(&cause.message()), "{diagnosis:#?}");
        }
        // The reason decides, not the message.
        for other in garboard_protocol::testing::causes() {
            let text = Account { reason: cause.reason(), message: &other.message() }.note();
            assert_eq!(judge(only_the_event(&text)).verdict, expected, "{cause:?}, {other:?}");
        }
    }
}

/// The texts are those of the cause; whether there is a limit is known from the pod, or else from the machine.
#[test]
fn an_end_by_the_oom_killer_has_the_text_and_the_remedy_of_its_cause() {
    let unlimited = ExitCause::OutOfMemory { limit_bytes: None };
    let limited = ExitCause::OutOfMemory { limit_bytes: Some(300 << 20) };
    for (facts, cause) in
        [(only_the_pod("OOMKilled", ""), &unlimited), (with_limit(only_the_pod("OOMKilled", "")), &limited)]
    {
        let diagnosis = judge(facts);
        assert_eq!(diagnosis.verdict, DiagnosisVerdict::OutOfMemory, "{diagnosis:#?}");
        assert!(diagnosis.cause.ends_with(&cause.message()), "{diagnosis:#?}");
        assert!(diagnosis.next.iter().any(|next| next == cause.remedy().unwrap()), "{diagnosis:#?}");
    }
    let domain = json!({"devices": {}, "resources": {"limits": {"memory": "300Mi"}}});
    let asks = json!({"vm": {"spec": {"template": {"spec": {"domain": domain}}}}});
    for (differs, cause) in [(json!({}), &unlimited), (asks, &limited)] {
        let diagnosis = judge(with(only_the_event(&account(cause)), differs));
        assert!(diagnosis.cause.ends_with(&cause.message()), "{diagnosis:#?}");
        assert!(diagnosis.next.iter().any(|next| next == cause.remedy().unwrap()), "{diagnosis:#?}");
    }
}

/// An event has the severity that its writer gives it; the cause that it names decides.
#[test]
fn the_cause_is_found_when_only_the_event_is_left() {
    for cause in garboard_protocol::testing::causes() {
        let severity = if cause.reason().is_warning() { "Warning" } else { "Normal" };
        let events = event("VirtualMachineInstance", "Stopped", severity, &account(&cause));
        let diagnosis = judge(json!({"vm": {"spec": {"runStrategy": "Manual"}}, "events": events}));
        if cause.is_success() {
            assert_eq!(diagnosis.verdict, DiagnosisVerdict::Halted, "{diagnosis:#?}");
        } else {
            assert_eq!(diagnosis.verdict, DiagnosisVerdict::of_bad_end(cause.reason()), "{diagnosis:#?}");
            assert!(diagnosis.cause.ends_with(&cause.message()), "{diagnosis:#?}");
        }
    }
}

/// PID 1 and node agent of an earlier version wrote the message alone, and their pods may still run.
#[test]
fn an_end_that_an_earlier_version_reported_is_shown_and_its_cause_is_unknown() {
    for cause in garboard_protocol::testing::causes() {
        for facts in [only_the_event(&cause.message()), only_the_pod("Error", &cause.message())] {
            let diagnosis = judge(facts);
            assert_eq!(diagnosis.verdict, DiagnosisVerdict::RunFailed, "{diagnosis:#?}");
            assert!(diagnosis.cause.ends_with(&cause.message()), "{diagnosis:#?}");
        }
    }
}

/// What a person copies from the screen is something that this command takes.
#[test]
fn advice_can_be_executed() {
    use clap::Parser;
    let mut seen = BTreeSet::new();
    for facts in all_situations() {
        let name = &facts.name;
        for advice in diagnose(&facts).next {
            let Some(at) = advice.find("kubectl garboard ") else { continue };
            let line = advice[at..].split("    #").next().unwrap().trim();
            let arguments = line.split_whitespace().skip(1);
            let parsed = crate::args::Plugin::try_parse_from(arguments);
            assert!(parsed.is_ok(), "{name}: {line}: {}", parsed.unwrap_err());
            seen.extend(line.split_whitespace().nth(2).map(str::to_owned));
        }
    }
    for verb in ["start", "stop", "restart", "unpause", "logs", "explain", "cluster"] {
        assert!(seen.contains(verb), "no situation recommends {verb}: {seen:?}");
    }
}

#[test]
fn what_goes_on_beside_is_reported_as_well() {
    let diagnosis = judge(remarkable());
    assert_eq!(diagnosis.verdict, DiagnosisVerdict::Running);
    let also = diagnosis.also.join("\n");
    for part in [
        "slow",
        "leave its node: drained",
        "its file systems are frozen",
        "not all access credentials are in its guest: Guest agent is offline",
        "started again: its last run ended 5 min ago",
        "no controller works",
        "agent of node node-1",
        "half",
    ] {
        assert!(also.contains(part), "{part}: {also}");
    }
}

/// A guest that runs well, where all remarks apply.
fn remarkable() -> Value {
    let conditions = json!([
        {"type": "Ready", "status": "True"},
        {"type": "SoftwareEmulation", "status": "True", "message": "slow"},
        {"type": "EvictionRequested", "status": "True", "message": "drained"},
        {"type": "AccessCredentialsSynchronized", "status": "False", "message": "Guest agent is offline"},
    ]);
    let mut vmi = vmi("Running", conditions);
    vmi["status"]["fsFreezeStatus"] = json!("frozen");
    json!({
        "vmi": vmi,
        "pods": pod(json!("node-1"), json!({"phase": "Running"})),
        "parts": {"controller": {"status": null}, "agents": []},
        "events": event("VirtualMachineInstance", "Stopped", "Warning", &account(&ExitCause::MachineKilled)),
        "kubevirts": [{"status": {"conditions": [{"type": "Degraded", "status": "True", "message": "half"}]}}],
    })
}

/// Its run is over, and the instance is still there.
fn interpreted_and_ended() -> Value {
    let mut facts = ended(&ExitCause::QemuFailed { code: 0 }, "Manual");
    let condition = interpreted()["vmi"]["status"]["conditions"][0].clone();
    facts["vmi"]["status"]["conditions"].as_array_mut().unwrap().push(condition);
    facts
}

#[test]
fn a_claim_that_has_come_is_not_missing() {
    let condition = json!([{"type": "Synchronized", "status": "False", "reason": "FailedPvcNotFound",
        "message": "the PersistentVolumeClaim data does not exist"}]);
    let claims = json!([{"metadata": {"name": "data"}, "spec": {}, "status": {"phase": "Bound"}}]);
    assert_eq!(judge(json!({"vmi": vmi("Pending", condition), "claims": claims})).verdict, DiagnosisVerdict::Starting);
}

#[test]
fn a_user_with_few_rights_sees_what_can_be_known() {
    let unseen = json!(["nodes: you may not see them"]);
    let diagnosis = judge(with(
        unscheduled("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
        json!({"nodes": null, "parts": null, "unseen": unseen}),
    ));
    assert_eq!(diagnosis.verdict, DiagnosisVerdict::NoNodeMatches);
    assert_eq!(diagnosis.unseen.len(), 1);
}

#[test]
fn an_event_about_an_earlier_attempt_explains_nothing() {
    let mut events = event("VirtualMachineInstance", "FailedCreate", "Warning", "exceeded quota");
    merge(&mut events[0], json!({"eventTime": "2026-01-01T00:40:00.000000Z"}));
    let made = event("VirtualMachineInstance", "SuccessfulCreate", "Normal", "made the pod")[0].clone();
    events.as_array_mut().unwrap().push(made);
    assert_eq!(judge(json!({"vmi": vmi("Pending", json!([])), "events": events})).verdict, DiagnosisVerdict::Starting);
}

/// The situations that were recorded on a cluster.
fn recorded() -> Vec<(PathBuf, Facts)> {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/situations"));
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension() == Some("json".as_ref()));
    files.map(|path| (path.clone(), serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap())).collect()
}

/// Every situation of these tests.
fn all_situations() -> Vec<Facts> {
    let of_table = situations().into_iter().map(|(_, differs, ..)| situation(differs));
    let others = [remarkable(), ended(&ExitCause::GuestPanic, "Manual"), interpreted_and_ended()].map(situation);
    let failures = failures::all().into_iter().flat_map(|failure| failure.facts());
    of_table.chain(others).chain(failures).chain(recorded().into_iter().map(|(_, facts)| facts)).collect()
}

/// A rule that never answers first is either behind one with the same answer, or not tested.
#[test]
fn each_rule_answers_first_in_a_situation() {
    let first = |facts: &Facts| RULES.iter().find(|(_, rule)| rule(facts).is_some()).map(|(name, _)| *name);
    let answered: BTreeSet<&str> = all_situations().iter().filter_map(first).collect();
    let silent: Vec<&str> = RULES.iter().map(|(name, _)| *name).filter(|name| !answered.contains(name)).collect();
    assert_eq!(silent, [] as [&str; 0]);
}

/// Each file's name begins with the verdict it was recorded for.
#[test]
fn situations_of_a_real_cluster_are_judged_as_when_they_were_recorded() {
    let mut count = 0;
    for (path, facts) in recorded() {
        let diagnosis = diagnose(&facts);
        let verdict = serde_json::to_value(diagnosis.verdict).unwrap();
        let expected = path.file_stem().unwrap().to_string_lossy();
        let expected = expected.split('.').next().unwrap_or_default();
        assert_eq!(verdict, expected, "{}: {diagnosis:#?}", path.display());
        count += 1;
    }
    assert!(count >= 8, "only {count} recorded situations");
}

/// The verb changes the field that the manifest has; a patch of the other one would be refused.
#[test]
fn a_halted_machine_is_started_by_the_verb() {
    for spec in [json!({"runStrategy": "Halted"}), json!({"runStrategy": null, "running": false})] {
        let commands = judge(json!({"vm": {"spec": spec}})).next.join("\n");
        assert!(commands.contains("kubectl garboard start "), "{commands}");
    }
}
