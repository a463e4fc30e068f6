//! Starts that fail before the guest runs, and are tried again. Each is judged while its pod is there, and by the record of the run when
//! it is gone.

use serde_json::{Value, json};

use super::super::super::diagnosis::DiagnosisVerdict;
use super::super::{AGO, NOW, pod, vmi, with};
use super::ended::record;
use super::{Failure, failure};

/// A machine whose start has failed three times, the last time so.
struct Start<'a> {
    reason: &'a str,
    message: &'a str,
    /// What QEMU printed.
    output: &'a str,
}

impl Start<'_> {
    fn counted() -> Value {
        let failure = json!({"consecutiveFailCount": 3, "retryAfterTimestamp": "2026-01-01T01:00:40Z"});
        json!({"vm": {"status": {"printableStatus": "CrashLoopBackOff", "startFailure": failure}}})
    }

    fn seen(&self) -> Value {
        let Self { reason, message, output } = self;
        let ended = json!([{"type": "garboard.dev/Ended", "status": "True", "reason": reason, "message": message, "lastTransitionTime": NOW}]);
        let end = json!({"exitCode": 1, "reason": "Error", "message": format!("{reason}: {message}\n{output}\n"), "finishedAt": NOW});
        let compute = json!({"name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": end}});
        let status = json!({"phase": "Failed", "containerStatuses": [compute]});
        with(Self::counted(), json!({"vmi": vmi("Failed", ended), "pods": pod(json!("node-1"), status)}))
    }

    fn gone(&self) -> Value {
        with(Self::counted(), json!({"runs": record(self.reason, self.message, self.output, AGO)}))
    }
}

/// A start that Garboard gave up.
fn unprepared(name: &'static str, induced: &'static str, why: &str) -> Failure {
    let message = format!("the guest was not started: {why}");
    let start = Start { reason: "NotStarted", message: &message, output: "" };
    failure(name, induced, DiagnosisVerdict::BackOff).seen(start.seen()).gone(start.gone())
}

/// One that QEMU gave up, with its last line.
fn given_up(name: &'static str, induced: &'static str, line: &str) -> Failure {
    let message = format!("QEMU gave up with exit code 1: {line}");
    let start = Start { reason: "QemuFailed", message: &message, output: line };
    failure(name, induced, DiagnosisVerdict::BackOff).seen(start.seen()).gone(start.gone())
}

pub(super) fn all() -> Vec<Failure> {
    images().into_iter().chain(volumes()).chain(iscsi()).chain(host()).collect()
}

fn images() -> Vec<Failure> {
    let of_image = "volume `root` cannot be used: the image /disk/disk.img cannot be used";
    let refused = "volume `root` cannot be used: the container of its image refused";
    vec![
        unprepared(
            "container disk without a disk",
            "an image without a file in /disk",
            &format!("{refused}: the container disk has no file under /disk; add one, or name it with `path`"),
        )
        .says(&["3 times in a row", "volume `root`", "the container disk has no file under /disk"])
        .next("name the disk in the image as containerDisk.path: kubectl edit vm hello"),
        unprepared(
            "container disk with a wrong path",
            "`containerDisk.path` of a file that is not in the image",
            &format!("{refused}: there is no /disk/none.qcow2; check the name, or create the file first"),
        )
        .says(&["there is no /disk/none.qcow2"])
        .next("correct the path, or what is in the image"),
        unprepared(
            "container disk of another format",
            "a VMDK image in /disk",
            &format!("{of_image}: the image is a VMDK image; convert it to raw or qcow2 first, for example with `qemu-img convert -O qcow2`"),
        )
        .says(&["the image is a VMDK image"])
        .next("qemu-img convert -O qcow2 OLD NEW"),
        unprepared(
            "qcow2 with a backing file",
            "a qcow2 image that names /etc/shadow as its backing file",
            &format!(
                "{of_image}: the qcow2 image cannot be used: the image names `/etc/shadow` as its backing file, which would be read from \
                 this host; flatten it with `qemu-img convert -O qcow2`"
            ),
        )
        .says(&["the image names `/etc/shadow` as its backing file"])
        .next("qemu-img convert -O qcow2 OLD NEW    # one file without another beneath it"),
        unprepared(
            "qcow2 that is damaged",
            "a qcow2 image of 72 bytes",
            &format!(
                "{of_image}: the qcow2 image cannot be used: the qcow2 header is cut off after 72 bytes; copy or download the image again"
            ),
        )
        .says(&["the qcow2 header is cut off after 72 bytes"])
        .next("qemu-img check IMAGE    # then build the image anew, or write the claim anew"),
        failure("kernel missing in its image", "`kernelPath` of a file that is not in the image", DiagnosisVerdict::BackOff)
            .says(&["volume `kernelBoot` cannot be used", "there is no /var/lib/garboard/kernel-boot/boot/none"])
            .next("correct the path, or what is in the image")
            .recorded("backOff.json")
            .gone(
                Start {
                    reason: "NotStarted",
                    message: "the guest was not started: volume `kernelBoot` cannot be used: there is no \
                              /var/lib/garboard/kernel-boot/boot/none; check the name, or create the file first",
                    output: "",
                }
                .gone(),
            ),
    ]
}

fn volumes() -> Vec<Failure> {
    vec![
        unprepared(
            "disk in use by another machine",
            "two machines with one claim on one node",
            "volume `data` cannot be used: /var/lib/garboard/volumes/data/disk.img is in use by another running VM; stop that one, or mark \
             the disk shareable in both",
        )
        .says(&["volume `data`", "is in use by another running VM"])
        .next("kubectl get vmi -A -o wide    # which one has the disk? stop it, or mark the disk shareable in both"),
        unprepared(
            "no room for a scratch disk",
            "an emptyDisk on a node whose disk is full",
            "volume `scratch` cannot be used: /var/lib/garboard/scratch has only 1048576 bytes free and 4194304 are needed to begin; free \
             some space or use another directory",
        )
        .says(&["/var/lib/garboard/scratch has only 1048576 bytes free"])
        .next("or ask for a smaller disk"),
        unprepared(
            "claim with something else than a disk",
            "a directory of the name disk.img in the claim",
            "volume `data` cannot be used: /var/lib/garboard/volumes/data/disk.img is a directory, where a regular file or a block device is \
             expected; point the volume at one",
        )
        .says(&["disk.img is a directory"])
        .next("kubectl get pvc -o custom-columns=NAME:.metadata.name,MODE:.spec.volumeMode    # Block or Filesystem"),
        unprepared(
            "Secret of cloud-init without its key",
            "a Secret with `userData` instead of `userdata`",
            "volume `seed` cannot be used: the Secret of `cloudInitNoCloud.secretRef` has no key `userdata`; add it",
        )
        .says(&["has no key `userdata`"])
        .next("kubectl edit secret NAME    # add the key that the message names"),
    ]
}

/// With the volume that names the Secret `chap`, in the machine and in its instance.
fn with_chap(failure: Failure) -> Failure {
    let volume = json!([{"name": "data", "iscsi": {"targetPortal": "10.0.0.5:3260", "iqn": "iqn.2017-01.dev.garboard:secured", "lun": 1,
        "secretRef": {"name": "chap"}}}]);
    let named = |seen: Option<super::Seen>| match seen {
        Some(super::Seen::Built(differs)) => {
            let spec = json!({"vm": {"spec": {"template": {"spec": {"volumes": volume}}}}});
            let mut differs = with(differs, spec);
            if !differs["vmi"].is_null() {
                differs["vmi"]["spec"]["volumes"] = volume.clone();
            }
            Some(super::Seen::Built(differs))
        }
        other => other,
    };
    let Failure { seen, gone, .. } = failure;
    Failure { seen: named(seen), gone: named(gone), ..failure }
}

fn iscsi() -> Vec<Failure> {
    let argument = "qemu-system-x86_64: -blockdev {\"driver\":\"iscsi\",\"node-name\":\"file-data\",\"transport\":\"tcp\",\"portal\":\
                    \"10.0.0.5:3260\",\"target\":\"iqn.2017-01.dev.garboard:secured\",\"lun\":1,\"user\":\"ada\",\"password-secret\":\
                    \"chap-data\",\"read-only\":false}: iSCSI: Failed to connect to LUN : ";
    // As the message of an end has a long line.
    let line = |why: &str| format!("{} … {}{why}", &argument[..100], &argument[argument.len() - 60..]);
    vec![
        given_up(
            "iSCSI target not reached",
            "a disk on a target that is switched off",
            &line("Failed to connect to iSCSI socket. connect: Connection refused(111)"),
        )
        .says(&["iSCSI: Failed to connect to LUN", "Connection refused"])
        .next("reaches the portal, and that iqn and lun are those of the target"),
        given_up(
            "iSCSI target without this unit",
            "an iqn that the target does not have",
            &line("Failed to log in to target. Status: Target not found(515)"),
        )
        .says(&["Target not found"])
        .next("iqn and lun are those of the target"),
        with_chap(given_up(
            "CHAP refused",
            "a Secret with another password than the target's",
            &line("Failed to log in to target. Status: Authentication failure(513)"),
        ))
        .says(&["Authentication failure"])
        .next("kubectl edit secret chap    # check node.session.auth.username and node.session.auth.password"),
        with_chap(unprepared(
            "CHAP's Secret without its key",
            "a Secret without `node.session.auth.password`",
            "volume `data` cannot be used: the Secret of `iscsi.secretRef` has no key `node.session.auth.password` with a text of one line \
             and at most 255 bytes; add it",
        ))
        .says(&["has no key `node.session.auth.password`"])
        .next("kubectl edit secret chap    # add the key that the message names"),
    ]
}

fn host() -> Vec<Failure> {
    vec![
        unprepared(
            "tap cannot be made",
            "the module `tun` was unloaded after the pod had its device",
            "the shim (or node agent) failed: could not create the machine's interfaces: could not create the tap `tap-default`; check that \
             /dev/net/tun exists and the module `tun` is loaded: No such device (os error 19)",
        )
        .says(&["could not create the tap `tap-default`"])
        .next("modprobe tun    # on"),
        unprepared(
            "KVM lost at the start",
            "/dev/kvm was removed after the pod had its device",
            "this host has no /dev/kvm, and the guest is to run under KVM; use another host, or set the annotation \
             `garboard.dev/accelerator: tcg` for QEMU's slower translator",
        )
        .says(&["this host has no /dev/kvm"])
        .next("load kvm_intel or kvm_amd on"),
        given_up(
            "runtime gives devices to root only",
            "containerd without `device_ownership_from_security_context`",
            "qemu-system-x86_64: failed to initialize kvm: Permission denied",
        )
        .says(&["failed to initialize kvm: Permission denied"])
        .next("write device_ownership_from_security_context = true into the configuration of containerd"),
        given_up(
            "processor lacks what was asked for",
            "`cpu.model: Skylake-Server` with the node label set by hand",
            "qemu-system-x86_64: Host doesn't support requested features",
        )
        .says(&["Host doesn't support requested features"])
        .next("ask for a CPU model and features that the processor of"),
        unprepared(
            "guest's memory cannot be had",
            "a node whose memory was used up between scheduling and start",
            "could not create the guest's memory, a memfd of 8589934592 bytes: ENOMEM: Out of memory",
        )
        .says(&["a memfd of 8589934592 bytes"])
        .next("or ask for less"),
        unprepared(
            "start that is asked to fail",
            "the annotation of KubeVirt's tests that makes a launcher fail",
            "metadata.annotations[kubevirt.io/func-test-virt-launcher-fail-fast] asks for a start that fails; remove it",
        )
        .says(&["func-test-virt-launcher-fail-fast"])
        .next("kubectl garboard explain hello"),
        unprepared(
            "node agent does not answer in time",
            "the agent is killed again and again while the guest's network is made",
            "the shim (or node agent) failed: no shim or node agent answers at /run/garboard-agent/agent.sock: Connection refused (os error 111)",
        )
        .says(&["no shim or node agent answers at /run/garboard-agent/agent.sock"])
        .next("kubectl garboard explain hello"),
    ]
}
