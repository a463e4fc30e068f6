//! Runs that are over: each is judged with its pod, and by its record when pod, instance and events are gone.

use serde_json::{Value, json};

use super::super::super::diagnosis::DiagnosisVerdict;
use super::super::{AGO, event, interpreted_and_ended, only_the_pod, pod, vmi, with, with_limit};
use super::{Failure, failure};

/// Records of a run that ended so, and of an earlier one that ended well.
pub(super) fn record(reason: &str, message: &str, output: &str, at: &str) -> Value {
    let run = |name: &str, reason: &str, message: &str, at: &str, output: &str| {
        json!({"kind": "MachineRun", "metadata": {"name": name}, "spec": {"machine": "hello", "node": "node-1", "reason": reason,
            "message": message, "endedAt": at, "qemuOutput": output}})
    };
    json!([
        run("hello-2", reason, message, &at.replace('Z', ".000Z"), output),
        run("hello-1", "GuestShutdown", "the guest powered itself off", "2026-01-01T00:10:00.000Z", ""),
    ])
}

/// Its instance and its pod are still there.
fn over(phase: &str, reason: &str, message: &str) -> Value {
    let condition = json!([{"type": "garboard.dev/Ended", "status": "True", "reason": reason, "message": message, "lastTransitionTime": AGO}]);
    let end = json!({"exitCode": 1, "reason": "Error", "message": format!("{reason}: {message}\n"), "finishedAt": AGO});
    let compute = json!({"name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": end}});
    let status = json!({"phase": phase, "containerStatuses": [compute]});
    json!({"vm": {"spec": {"runStrategy": "Manual"}}, "vmi": vmi(phase, condition), "pods": pod(json!("node-1"), status)})
}

/// Only its record is left.
fn left(reason: &str, message: &str, output: &str) -> Value {
    json!({"vm": {"spec": {"runStrategy": "Manual"}, "status": {"printableStatus": "Stopped"}}, "runs": record(reason, message, output, AGO)})
}

/// A run that ended badly for this reason.
fn bad(failure: Failure, reason: &str, message: &str, output: &str) -> Failure {
    failure.seen(over("Failed", reason, message)).gone(left(reason, message, output))
}

pub(super) fn all() -> Vec<Failure> {
    guests().into_iter().chain(qemu()).chain(memory()).chain(cluster()).chain(ends()).collect()
}

fn guests() -> Vec<Failure> {
    let panicked = "the guest's kernel panicked";
    vec![
        bad(
            failure(
                "guest's kernel panics",
                "`echo c > /proc/sysrq-trigger`, with a pvpanic device",
                DiagnosisVerdict::GuestPanic,
            ),
            "GuestPanic",
            panicked,
            "",
        )
        .says(&["its run ended badly: the guest's kernel panicked"])
        .next("--part serial    # what its kernel printed last"),
        bad(
            failure(
                "watchdog fires",
                "a guest whose daemon stops feeding the watchdog, `action: poweroff`",
                DiagnosisVerdict::RunFailed,
            ),
            "Watchdog",
            "the guest's watchdog fired",
            "",
        )
        .says(&["the guest's watchdog fired"])
        .next("--part serial    # what the guest printed before it stopped feeding its watchdog"),
        bad(
            failure("guest does not shut down", "a stop of a guest without ACPI events", DiagnosisVerdict::RunFailed),
            "GracePeriodExceeded",
            "the guest did not power down within its grace period, so QEMU was ended",
            "",
        )
        .says(&["did not power down within its grace period"])
        .next("give the guest ACPI or a guest agent, or more grace"),
    ]
}

fn qemu() -> Vec<Failure> {
    let lost = "QEMU and its PID 1 were killed at once, and neither could report why: their container had no memory left, or something \
                outside killed them";
    let slow =
        event("VirtualMachineInstance", "KVMInterpretsGuestCode", "Warning", "KVM on this node interprets guest code");
    let gave_up = "QEMU gave up on the guest, whose processors cannot go on";
    vec![
        failure("QEMU killed by a signal", "`pkill -KILL qemu-system` on the node", DiagnosisVerdict::QemuKilled)
            .says(&["something outside killed QEMU with signal 9"])
            .next("kubectl describe node node-1    # what killed it?")
            .recorded("qemuKilled.json"),
        failure(
            "QEMU killed, its instance deleted",
            "the same, then `kubectl delete vmi`",
            DiagnosisVerdict::QemuKilled,
        )
        .says(&["something outside killed QEMU with signal 9"])
        .next("kubectl garboard start killed")
        .recorded_gone("qemuKilled.gone.json"),
        bad(
            failure("QEMU asked to end", "`pkill -TERM qemu-system` on the node", DiagnosisVerdict::QemuKilled),
            "QemuKilled",
            "something outside killed QEMU with signal 15",
            "qemu-system-x86_64: terminating on signal 15 from pid 4711 (pkill)",
        )
        .says(&["something outside killed QEMU with signal 15"])
        .next("kubectl garboard logs hello"),
        bad(
            failure("QEMU and PID 1 killed", "SIGKILL to each process of the container", DiagnosisVerdict::QemuKilled),
            "MachineKilled",
            lost,
            "",
        )
        .says(&["QEMU and its PID 1 were killed at once"])
        .next("kubectl garboard logs hello"),
        bad(
            failure("QEMU crashes", "`kill -SEGV` to QEMU", DiagnosisVerdict::QemuCrashed),
            "QemuCrashed",
            "QEMU crashed with signal 11: qemu-system-x86_64: virtio: zero sized buffers are not allowed",
            "qemu-system-x86_64: virtio: zero sized buffers are not allowed",
        )
        .says(&["QEMU crashed with signal 11", "zero sized buffers are not allowed"])
        .next("report it to QEMU, with the log"),
        bad(
            failure(
                "QEMU gives up",
                "a device that QEMU refuses while it runs, exit code 1",
                DiagnosisVerdict::QemuFailed,
            ),
            "QemuFailed",
            "QEMU gave up with exit code 1",
            "qemu-system-x86_64: vhost VQ 0 ring restore failed: -22: Invalid argument (22)",
        )
        .says(&["QEMU gave up with exit code 1"])
        .next("kubectl garboard explain hello"),
        failure(
            "KVM that interprets meets what it does not know",
            "a guest of Linux on a node that is a virtual machine itself",
            DiagnosisVerdict::QemuFailed,
        )
        .says(&["QEMU gave up on the guest, whose processors cannot go on", "KVM on this node interprets guest code"])
        .next("kubectl garboard cluster install --emulation")
        .seen(interpreted_and_ended())
        .gone(with(left("QemuFailed", gave_up, ""), json!({"events": slow}))),
    ]
}

fn memory() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::OutOfMemory;
    let limited =
        json!({"vm": {"spec": {"template": {"spec": {"domain": {"resources": {"limits": {"memory": "300Mi"}}}}}}}});
    vec![
        failure(
            "out of memory at its limit",
            "a limit of 300Mi, and a guest that writes to all of its memory",
            verdict,
        )
        .says(&["it used more memory than its limit of 314572800 bytes"])
        .next("raise spec.domain.resources.limits.memory")
        .seen(with_limit(only_the_pod("OOMKilled", "")))
        .gone(with(
            left("OutOfMemory", "it used more memory than its limit of 314572800 bytes and the kernel killed it", ""),
            limited,
        )),
        failure("node out of memory", "other programs use up the memory of the node", verdict)
            .says(&["the host ran out of memory and the kernel killed it"])
            .next("raise spec.domain.resources.requests.memory")
            .seen(only_the_pod("OOMKilled", ""))
            .gone(left("OutOfMemory", "the host ran out of memory and the kernel killed it", "")),
        failure("too little memory for the guest's system", "a guest of Linux with 64Mi", DiagnosisVerdict::GuestPanic)
            .says(&["the guest's kernel panicked", "its guest has 64Mi of memory"])
            .next("raise spec.domain.memory.guest")
            .seen(with(
                with(over("Failed", "GuestPanic", "the guest's kernel panicked"), small()),
                json!({"vmi": {"spec": {"domain": {"memory": {"guest": "64Mi"}}}}}),
            ))
            .gone(with(left("GuestPanic", "the guest's kernel panicked", ""), small())),
    ]
}

/// A machine with little memory.
fn small() -> Value {
    json!({"vm": {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "64Mi"}}}}}}})
}

/// What the cluster does to a pod. Its instance has the cause as long as it is there.
fn cluster() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::Evicted;
    let displaced = |reason: &str, message: &str, pods: Value| {
        let conditions = json!([
            {"type": "EvictionRequested", "status": "True", "reason": reason, "message": message, "lastTransitionTime": AGO},
            {"type": "garboard.dev/Ended", "status": "True", "reason": "StoppedGracefully", "message": "the guest powered down when asked",
                "lastTransitionTime": AGO},
        ]);
        let vmi = with(vmi("Succeeded", conditions), json!({"status": {"nodeName": "node-1"}}));
        json!({"vm": {"spec": {"runStrategy": "Manual"}}, "vmi": vmi, "pods": pods})
    };
    let both = |failure: Failure, reason: &str, message: &str| {
        let there = pod(json!("node-1"), json!({"phase": "Succeeded"}));
        failure.seen(displaced(reason, message, there)).gone(displaced(reason, message, json!([])))
    };
    let low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi.";
    let put_aside = json!({"phase": "Failed", "reason": "Evicted", "message": low});
    vec![
        failure("kubelet evicts it", "a node whose memory is used up by pods of no request", verdict)
            .says(&["The node was low on resource: memory"])
            .next("kubectl describe node node-1")
            .seen(with(
                displaced("TerminationByKubelet", low, pod(json!("node-1"), put_aside)),
                json!({"vmi": {"status": {"phase": "Failed"}}}),
            ))
            .gone(displaced("TerminationByKubelet", low, json!([]))),
        both(
            failure("node drained", "`kubectl drain`, with `evictionStrategy: None`", verdict),
            "EvictionByEvictionAPI",
            "Eviction API: evicting",
        )
        .says(&["its pod was evicted from node-1, as a drain does"])
        .next("kubectl garboard start hello"),
        both(
            failure(
                "a pod of a higher priority takes its place",
                "a pod with a PriorityClass on a node that is full",
                verdict,
            ),
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod",
        )
        .says(&["a pod of a higher priority has taken its place on node-1"])
        .next("kubectl describe node node-1"),
        both(
            failure("NoExecute taint", "`kubectl taint node … :NoExecute`", verdict),
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
        )
        .says(&["node-1 has a taint that its pod does not tolerate"])
        .next("kubectl garboard start hello"),
    ]
}

/// Ends that are none of Garboard's doing, and no failure of a part: people ask why a machine is off.
fn ends() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::RunOver;
    let rerun = |seen: Value| {
        with(
            seen,
            json!({"vm": {"spec": {"runStrategy": "RerunOnFailure"}, "status": {"runStrategy": "RerunOnFailure"}}}),
        )
    };
    let ended = |failure: Failure, reason: &str, message: &str| {
        failure.seen(rerun(over("Succeeded", reason, message))).gone(rerun(left(reason, message, ""))).well()
    };
    let deleted = json!({"vm": null, "runs": record("GuestPanic", "the guest's kernel panicked", "", AGO)});
    vec![
        ended(
            failure("guest shut itself down", "`poweroff` in the guest, with `runStrategy: RerunOnFailure`", verdict),
            "GuestShutdown",
            "the guest powered itself off",
        )
        .says(&["the guest powered itself off", "RerunOnFailure starts again only what has failed"])
        .next("kubectl garboard start hello"),
        ended(
            failure(
                "triple fault",
                "a guest whose kernel loads an empty interrupt table, `rebootPolicy: Terminate`",
                verdict,
            ),
            "GuestReboot",
            "the guest rebooted and its rebootPolicy is Terminate",
        )
        .says(&["the guest rebooted"])
        .next("did it reboot, or did its kernel fail (a triple fault looks the same)?"),
        failure(
            "instance deleted after it had failed",
            "an instance without a machine, deleted after a panic",
            DiagnosisVerdict::NotFound,
        )
        .says(&["there is no machine `hello`", "machinerun/hello-2", "the guest's kernel panicked"])
        .next("kubectl garboard logs hello --last")
        .gone(deleted),
    ]
}
