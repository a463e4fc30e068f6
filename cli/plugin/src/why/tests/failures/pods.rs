//! Pods that have a node, and do not come up.

use serde_json::{Value, json};

use super::super::super::diagnosis::DiagnosisVerdict;
use super::super::{event, pod, vmi, waiting, with};
use super::{Failure, failure, unsynchronized};

fn unpulled(error: &str) -> Value {
    let text =
        format!("Failed to pull image \"registry.example/team/disk:1\": failed to pull and unpack image: {error}");
    with(waiting("launcher", "PodInitializing", ""), json!({"events": event("Pod", "Failed", "Warning", &text)}))
}

fn unmounted(message: &str) -> Value {
    let events = event("Pod", "FailedMount", "Warning", message);
    with(waiting("launcher", "PodInitializing", ""), json!({"events": events}))
}

pub(super) fn all() -> Vec<Failure> {
    images().into_iter().chain(objects()).chain(node()).collect()
}

fn images() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::ImagePull;
    vec![
        failure("registry not reached", "an image of a registry whose name does not resolve", verdict)
            .says(&["registry.garboard.invalid/none:1 cannot be had"])
            .next("load the image on it, or check its network and DNS")
            .recorded("imagePull.json"),
        failure("pull secret missing", "an image of a private registry, without `imagePullSecret`", verdict)
            .says(&["the image registry.example/team/disk:1 cannot be had", "401 Unauthorized"])
            .next("give a pull secret (imagePullSecret of the containerDisk), or correct the name")
            .seen(unpulled("failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized: authorization failed")),
        failure("image without this tag", "a tag that was never pushed", verdict)
            .says(&["the image registry.example/team/disk:1 cannot be had", "disk:1: not found"])
            .next("correct its name or its tag")
            .seen(unpulled("failed to resolve reference \"registry.example/team/disk:1\": registry.example/team/disk:1: not found")),
        failure("image name that is none", "`image: REGISTRY/Disk`", verdict)
            .says(&["the image REGISTRY/Disk cannot be had"])
            .next("correct the image, or give a pull secret")
            .seen(waiting("volumeroot", "InvalidImageName", "Failed to apply default image tag \"REGISTRY/Disk\": couldn't parse image \"REGISTRY/Disk\": invalid reference format")),
        failure("launcher's image not loaded", "a node without Garboard's images", verdict)
            .says(&["the image garboard/launcher:0.1.0 cannot be had"])
            .next("load the launcher's image on the node, or install with --image-registry")
            .seen(waiting(
                "launcher",
                "ErrImageNeverPull",
                "Container image \"garboard/launcher:0.1.0\" is not present with pull policy of Never",
            )),
    ]
}

fn objects() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::VolumeMount;
    vec![
        failure("Secret of cloud-init missing", "`cloudInitNoCloud.secretRef` of a Secret that is not there", verdict)
            .says(&["the Secret hello-cloudinit, of which its volume seed is made, is not there"])
            .next("create it, and the start goes on by itself")
            .seen(unmounted("MountVolume.SetUp failed for volume \"seed\" : secret \"hello-cloudinit\" not found")),
        failure("ConfigMap missing", "a configMap volume of a ConfigMap that was deleted", verdict)
            .says(&["the ConfigMap app, of which its volume config is made, is not there"])
            .next("create it, and the start goes on by itself")
            .seen(unmounted("MountVolume.SetUp failed for volume \"config\" : configmap \"app\" not found")),
        failure("Secret of access credentials missing", "`accessCredentials` of a Secret that is not there", verdict)
            .says(&["the Secret keys, of which its volume access-0 is made, is not there"])
            .next("create it, and the start goes on by itself")
            .seen(unmounted("MountVolume.SetUp failed for volume \"access-0\" : secret \"keys\" not found")),
    ]
}

fn node() -> Vec<Failure> {
    let rejected = |reason: &str, message: &str| {
        let status = json!({"phase": "Failed", "reason": reason, "message": message});
        json!({"vmi": vmi("Scheduling", json!([])), "pods": pod(json!("node-1"), status)})
    };
    let mut crashes = waiting("launcher", "CrashLoopBackOff", "back-off 5m0s restarting failed container=launcher");
    crashes["pods"][0]["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 1, "message": "garboard-launcher: could not read /run/garboard/order/vmi.json"}});
    vec![
        failure("no addresses left for pods", "a node whose network plug-in has given away its range", DiagnosisVerdict::PodNetwork)
            .says(&["node-1 cannot make the network of its pod", "no IP addresses available in range set"])
            .next("look at the network plug-in on node-1: is its pod well, are there addresses left?")
            .seen(with(
                waiting("launcher", "PodInitializing", ""),
                json!({"events": event("Pod", "FailedCreatePodSandBox", "Warning",
                    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"8f1c\": plugin \
                     type=\"host-local\" failed (add): no IP addresses available in range set: 10.244.1.1-10.244.1.254")}),
            )),
        failure("network plug-in missing", "the plug-in's binary was removed from the node", DiagnosisVerdict::PodNetwork)
            .says(&["node-1 cannot make the network of its pod", "failed to find plugin \"bridge\""])
            .next("kubectl get pods -n kube-system -o wide")
            .seen(with(
                waiting("launcher", "PodInitializing", ""),
                json!({"events": event("Pod", "FailedCreatePodSandBox", "Warning",
                    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"8f1c\": failed to \
                     find plugin \"bridge\" in path [/opt/cni/bin]")}),
            )),
        failure("kubelet without devices", "a kubelet that was started again, with a /dev/kvm that does not open", DiagnosisVerdict::PodRejected)
            .says(&["the kubelet of node-1 does not take its pod", "unhealthy devices devices.kubevirt.io/kvm"])
            .next("kubectl describe node node-1    # devices, room and state of its kubelet")
            .seen(rejected(
                "UnexpectedAdmissionError",
                "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices \
                 devices.kubevirt.io/kvm, which is unexpected",
            )),
        failure("node filled up meanwhile", "a static pod took the memory that the scheduler had seen", DiagnosisVerdict::PodRejected)
            .says(&["the kubelet does not take its pod", "Node didn't have enough resource: memory"])
            .next("kubectl describe nodes    # devices, room and state of their kubelets")
            .seen(unsynchronized(
                "FailedCreate",
                "Pod was rejected: Node didn't have enough resource: memory, requested: 1073741824, used: 7600000000, capacity: 8000000000",
            )),
        failure("container cannot be made", "a runtime whose hook fails", DiagnosisVerdict::ContainerRefused)
            .says(&["its container compute cannot be made", "error running hook #0"])
            .next("kubectl describe pod virt-launcher-hello-u")
            .seen(waiting(
                "compute",
                "CreateContainerError",
                "failed to create containerd task: OCI runtime create failed: error running hook #0: exit status 1",
            )),
        failure("supervisor ends repeatedly", "a launcher's image that is damaged", DiagnosisVerdict::ContainerRefused)
            .says(&["its launcher ends repeatedly (3 times so far)", "could not read /run/garboard/order/vmi.json"])
            .next("kubectl garboard logs hello --previous")
            .seen(crashes),
    ]
}
