//! Machines whose guest runs, or is held, while something is wrong.

use serde_json::{Value, json};

use super::super::super::diagnosis::DiagnosisVerdict;
use super::super::{AGO, event, holding, node, pod, vmi, with};
use super::{Failure, failure};

/// Nothing is wrong.
pub(super) fn well() -> Value {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    json!({"vmi": vmi("Running", ready.clone()), "pods": pod(json!("node-1"), json!({"phase": "Running", "conditions": ready}))})
}

/// A guest that runs, with this condition.
fn with_condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let condition =
        json!([{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": AGO}]);
    with(well(), json!({"vmi": {"status": {"conditions": condition}}}))
}

fn paused(reason: &str, message: &str) -> Value {
    with_condition("Paused", "True", reason, message)
}

pub(super) fn all() -> Vec<Failure> {
    held().into_iter().chain(slow()).chain(unready()).chain(drained()).chain(beside()).collect()
}

fn held() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::StorageFailed;
    vec![
        failure("disk fails", "an I/O error of the disk behind a claim", verdict)
            .says(&["its disk failed", "writing to file-data failed: Input/output error"])
            .next("bring the storage back: the guest is resumed by itself within minutes")
            .seen(paused(
                "PausedIOError",
                "VMI was paused, low-level IO error detected: writing to file-data failed: Input/output error; the guest is resumed until it works",
            )),
        failure("storage full", "a thin volume whose pool has no space left", verdict)
            .says(&["its disk has no room left where it is stored", "No space left on device"])
            .next("enlarge the volume or free space where it is: the guest is resumed by itself within ten minutes")
            .seen(paused(
                "PausedIOError",
                "VMI was paused, low-level IO error detected: writing to file-data failed: No space left on device; the guest is resumed until it works",
            )),
        failure("QEMU does not answer", "storage that hangs", DiagnosisVerdict::Unresponsive)
            .says(&["QEMU does not answer on its monitor"])
            .next("look at the storage of node node-1: the guest goes on once its disks answer")
            .seen(with_condition("garboard.dev/Unresponsive", "True", "MonitorTimeout", "QEMU does not answer on its monitor")),
        failure("paused by a user", "`kubectl garboard pause`", DiagnosisVerdict::Paused)
            .well()
            .says(&["it was paused on request"])
            .next("kubectl garboard unpause hello")
            .seen(paused("PausedByUser", "VMI was paused by user")),
        failure("started paused", "`startStrategy: Paused`", DiagnosisVerdict::Paused)
            .well()
            .says(&["it was started paused, as its startStrategy requests"])
            .next("kubectl garboard unpause hello")
            .seen(with(paused("PausedByUser", "VMI was paused by user"), json!({"vmi": {"spec": {"startStrategy": "Paused"}}}))),
    ]
}

fn slow() -> Vec<Failure> {
    let interpreted = holding("SoftwareEmulation", "KVMInterpretsGuestCode", "KVM on this node interprets guest code");
    let mut limited =
        with(well(), json!({"vmi": {"status": {"currentCPUTopology": {"cores": 4, "sockets": 1, "threads": 1}}}}));
    limited["pods"][0]["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "500m"});
    vec![
        failure("KVM interprets guest code", "a node that is itself a virtual machine", DiagnosisVerdict::Interpreted)
            .says(&["its guest runs very slowly: KVM on this node interprets guest code"])
            .next("kubectl garboard cluster install --emulation")
            .seen(with(well(), interpreted)),
        failure("emulated by software", "`useEmulation` and a node without KVM", DiagnosisVerdict::Running)
            .well()
            .says(&["emulated in software (TCG), which is slow"])
            .next("a node with KVM runs it at full speed")
            .seen(with_condition(
                "SoftwareEmulation",
                "True",
                "NoKVM",
                "the guest's processors are emulated in software (TCG), which is slow",
            )),
        failure("throttled by a CPU limit", "4 vCPUs with a limit of 500m", DiagnosisVerdict::Running)
            .well()
            .says(&["its 4 vCPUs together may use 500m CPU"])
            .next("raise spec.domain.resources.limits.cpu, or look at the namespace's LimitRange")
            .seen(limited),
    ]
}

fn unready() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::NotReady;
    let probed = |message: &str| {
        let message = event("Pod", "Unhealthy", "Warning", message);
        let unready =
            with_condition("Ready", "False", "ContainersNotReady", "containers with unready status: [compute]");
        with(unready, json!({"events": message}))
    };
    let lacks = "Guest agent is offline";
    vec![
        failure("readiness probe fails", "a probe of a port that nothing in the guest listens at", verdict)
            .waits()
            .says(&[
                "does not count as ready",
                "Readiness probe failed: dial tcp 10.244.1.6:80: connect: connection refused",
            ])
            .next("kubectl describe pod virt-launcher-hello-u")
            .seen(probed("Readiness probe failed: dial tcp 10.244.1.6:80: connect: connection refused")),
        failure(
            "guest agent missing, and a probe of it",
            "`readinessProbe.guestAgentPing`, and no agent in the guest",
            verdict,
        )
        .waits()
        .says(&["does not count as ready", "the QEMU guest agent is not connected"])
        .next("kubectl describe pod virt-launcher-hello-u")
        .seen(probed("Readiness probe failed: garboard-launcher: the QEMU guest agent is not connected")),
        failure(
            "guest agent missing, and credentials for it",
            "`accessCredentials` by the agent, and none in the guest",
            DiagnosisVerdict::Running,
        )
        .well()
        .says(&["not all access credentials are in its guest: Guest agent is offline"])
        .next("not all access credentials are in its guest")
        .seen(with_condition("AccessCredentialsSynchronized", "False", "", lacks)),
    ]
}

fn drained() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::Running;
    let mut cordoned = node("node-1", "True", "true");
    cordoned["spec"] = json!({"unschedulable": true});
    let marked = json!({"vmi": {"spec": {"evictionStrategy": "External"}, "status": {"evacuationNodeName": "node-1"}}});
    vec![
        failure("drain that waits for it", "`kubectl drain`, with `evictionStrategy: LiveMigrate`", verdict)
            .well()
            .says(&["node node-1 is cordoned, and a drain of it waits for this machine"])
            .next("kubectl garboard stop hello")
            .seen(with(well(), json!({"vmi": {"spec": {"evictionStrategy": "LiveMigrate"}}, "nodes": [cordoned]}))),
        failure(
            "drain that waits for another controller",
            "`kubectl drain`, with `evictionStrategy: External`",
            verdict,
        )
        .well()
        .says(&["node node-1 is being drained and waits until another controller has moved or stopped it"])
        .next("kubectl garboard stop hello")
        .seen(with(well(), marked)),
        failure("it leaves its node", "an eviction, while the guest still shuts down", verdict)
            .well()
            .says(&["the cluster has it leave its node: Eviction API: evicting"])
            .next("the cluster has it leave its node")
            .seen(with_condition("EvictionRequested", "True", "EvictionByEvictionAPI", "Eviction API: evicting")),
    ]
}

fn beside() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::Running;
    let changed = json!({"vm": {"status": {"conditions": [{"type": "RestartRequired", "status": "True", "message": "cpu changed"}]}}});
    let again = event("VirtualMachineInstance", "Stopped", "Warning", "QemuCrashed: QEMU crashed with signal 11");
    vec![
        failure("launcher outdated", "an upgrade whose launcher's image cannot be pulled", verdict)
            .well()
            .says(&["its supervisor could not be replaced", "ErrImagePull"])
            .next("the one before goes on")
            .seen(with_condition("garboard.dev/OutdatedLauncher", "True", "LauncherUpdateFailed", "the new supervisor did not come up: ErrImagePull")),
        failure("file systems frozen", "a backup tool that froze and did not thaw", verdict)
            .well()
            .says(&["its file systems are frozen"])
            .next("kubectl garboard unfreeze hello")
            .seen(with(well(), json!({"vmi": {"status": {"fsFreezeStatus": "frozen"}}}))),
        failure("started again after a crash", "QEMU crashed five minutes ago, with `runStrategy: Always`", verdict)
            .well()
            .says(&["it was started again: its last run ended 5 min ago: QEMU crashed with signal 11"])
            .next("it was started again")
            .seen(with(well(), json!({"events": again}))),
        failure("changed since its start", "`spec.template` with more cores, without a restart", DiagnosisVerdict::RestartRequired)
            .well()
            .says(&["waits for a restart: cpu changed"])
            .next("kubectl garboard restart hello")
            .seen(with(well(), changed)),
        failure("installation not whole", "a component of Garboard was deleted", verdict)
            .well()
            .says(&["the cluster's KubeVirt object is not well", "garboard-node is missing"])
            .next("the cluster's KubeVirt object is not well")
            .seen(with(
                well(),
                json!({"kubevirts": [{"status": {"conditions": [{"type": "Degraded", "status": "True", "message": "garboard-node is missing"}]}}]}),
            )),
    ]
}
