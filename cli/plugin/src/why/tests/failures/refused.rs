//! What is refused before there is a pod.

use serde_json::{Value, json};

use super::super::super::diagnosis::DiagnosisVerdict;
use super::super::{AGO, unfilled};
use super::{Failure, failure, unsynchronized};

/// The condition of a machine whose instance the API server refused.
fn instance(answer: &str) -> Value {
    unfilled("Failure", "FailedCreate", &format!("could not make the VirtualMachineInstance: {answer}"))
}

/// The same of the pod of an instance.
fn pod(answer: &str) -> Value {
    unsynchronized("FailedCreate", answer)
}

pub(super) fn all() -> Vec<Failure> {
    sizes().into_iter().chain(of_machines()).chain(of_instances()).chain(of_pods()).collect()
}

fn sizes() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::Instancetype;
    vec![
        failure("instancetype missing", "the machine names an instancetype that does not exist", verdict)
            .says(&["VirtualMachineClusterInstancetype u1.medium does not exist"])
            .next("create it, and the machine starts by itself; or name another one")
            .seen(unfilled(
                "Failure",
                "FailedFindInstancetype",
                "spec.instancetype.name: VirtualMachineClusterInstancetype u1.medium does not exist; make it, or name another one",
            )),
        failure("preference missing", "the machine names a preference that was deleted", verdict)
            .says(&["VirtualMachinePreference fedora does not exist"])
            .next("kubectl get virtualmachinepreferences,virtualmachineclusterpreferences    # what there is")
            .seen(unfilled(
                "Failure",
                "FailedFindPreference",
                "spec.preference.name: VirtualMachinePreference fedora does not exist; make it, or name another one",
            )),
        failure("copy of an instancetype missing", "the ControllerRevision that the machine names was deleted", verdict)
            .says(&["the ControllerRevision hello-u1.medium-1 does not exist"])
            .next("or name another one: kubectl edit vm hello")
            .seen(unfilled(
                "Failure",
                "FailedFindInstancetype",
                "spec.instancetype.name: the ControllerRevision hello-u1.medium-1 does not exist; make it, or name another one",
            )),
        failure("preference's requirement not met", "a preference that requires 4 vCPUs, an instancetype of one", verdict)
            .says(&["the preference requires 4 vCPUs, and the instancetype has 1"])
            .next("correct the machine, or name another one: kubectl edit vm hello")
            .seen(unfilled(
                "Failure",
                "FailedCreate",
                "spec.instancetype: the preference requires 4 vCPUs, and the instancetype has 1; name a larger instancetype, or another preference",
            )),
        failure("instancetype contradicts the machine", "an instancetype, and memory in the template as well", verdict)
            .says(&["spec.template.spec.domain.memory: the instancetype sets this too"])
            .next("correct the machine, or name another one")
            .seen(unfilled(
                "Failure",
                "FailedCreate",
                "spec.template.spec.domain.memory: the instancetype sets this too, in its `spec.memory`; remove it here, or name another instancetype",
            )),
    ]
}

fn of_machines() -> Vec<Failure> {
    let conflict = "admission webhook \"mutate-virtualmachineinstances.kubevirt.io\" denied the request: metadata.labels: the presets \
                    big and small both select it, and differ in spec.domain.cpu; change one of them, or annotate the instance with \
                    `virtualmachineinstancepresets.admission.kubevirt.io/exclude: \"true\"`";
    let away = "Internal error occurred: failed calling webhook \"mutate-virtualmachineinstances.kubevirt.io\": failed to call webhook: \
                Post \"https://garboard-webhook.garboard.svc:443/mutate?timeout=10s\": context deadline exceeded";
    vec![
        failure("presets contradict each other", "two presets select the machine and differ in `cpu`", DiagnosisVerdict::PresetConflict)
            .says(&["the presets big and small both select it, and differ in spec.domain.cpu."])
            .next("kubectl get vmipreset big small -o yaml    # correct one of them, or its selector")
            .seen(instance(conflict)),
        failure("quota of machines used up", "a quota of three VirtualMachineInstances, and a fourth", DiagnosisVerdict::QuotaExceeded)
            .says(&["exceeded quota: machines", "count/virtualmachineinstances.kubevirt.io=3"])
            .next("kubectl describe quota -n tenant")
            .seen(instance(
                "virtualmachineinstances.kubevirt.io \"hello\" is forbidden: exceeded quota: machines, requested: \
                 count/virtualmachineinstances.kubevirt.io=1, used: count/virtualmachineinstances.kubevirt.io=3, limited: \
                 count/virtualmachineinstances.kubevirt.io=3",
            )),
        failure("policy refuses the instance", "a policy of Kyverno that wants a label", DiagnosisVerdict::InstanceRefused)
            .says(&["its instance cannot be made", "require-team"])
            .next("kubectl edit vm hello")
            .seen(instance(
                "admission webhook \"validate.kyverno.svc-fail\" denied the request: resource VirtualMachineInstance/tenant/hello was \
                 blocked due to the following policies require-team: check-label: 'the label team is required'",
            )),
        failure("Garboard's webhooks do not answer", "the controllers' pods are cut off from the API server", DiagnosisVerdict::WebhookDown)
            .says(&["the controllers do not answer the API server", "context deadline exceeded"])
            .next("kubectl garboard cluster status")
            .seen(instance(away)),
        failure("record of the start taken", "a ControllerRevision of another owner has its name", DiagnosisVerdict::InstanceRefused)
            .says(&["revision-start-vm-m-1 exists and belongs to another owner"])
            .next("kubectl edit vm hello")
            .seen(unfilled(
                "Failure",
                "FailedCreate",
                "could not create the ControllerRevision of the machine: revision-start-vm-m-1 exists and belongs to another owner; delete it",
            )),
        failure("machine waits for a receiver", "`runStrategy: WaitAsReceiver`, stored before the move from KubeVirt", DiagnosisVerdict::FieldRefused)
            .says(&["WaitAsReceiver", "no guest is moved here"])
            .next("kubectl edit vm hello")
            .seen(json!({"vm": {"spec": {"runStrategy": "WaitAsReceiver"}, "status": {"printableStatus": "Stopped"}}})),
    ]
}

fn of_instances() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::FieldRefused;
    vec![
        failure("CPU model that QEMU does not have", "`cpu.model` of a newer QEMU", verdict)
            .says(&["Nonesuch"])
            .next("kubectl edit vm")
            .recorded("fieldRefused.json"),
        failure("memory that does not fit its limit", "a guest of 4Gi with a limit of 1Gi, stored while no webhook judged", verdict)
            .says(&["spec.domain.memory.guest: `4Gi` does not fit the limit `1Gi`"])
            .next("kubectl edit vm hello")
            .seen(pod("spec.domain.memory.guest: `4Gi` does not fit the limit `1Gi`; write a size that is at most `resources.limits.memory`")),
        failure("more vCPUs than its machine type has", "512 sockets on q35", verdict)
            .says(&["512 sockets of 1 cores of 1 threads are more than pc-q35-7.2 can address"])
            .next("kubectl edit vm hello")
            .seen(pod(
                "spec.domain.cpu: 512 sockets of 1 cores of 1 threads are more than pc-q35-7.2 can address; ask for at most 255 vCPUs, \
                 fewer if cores or threads are no powers of two",
            )),
    ]
}

fn of_pods() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::PodRefused;
    vec![
        failure("quota of memory used up", "a quota of 1Mi of memory", DiagnosisVerdict::QuotaExceeded)
            .says(&["exceeded quota: small"])
            .next("kubectl describe quota")
            .recorded("quotaExceeded.json"),
        failure("Pod Security refuses the pod", "a hostDisk in a namespace of the level `restricted`", DiagnosisVerdict::PodSecurity)
            .says(&["Pod Security refuses its pod", "hostPath volumes"])
            .next("kubectl get namespace tenant --show-labels")
            .seen(pod(
                "pods \"virt-launcher-hello-u\" is forbidden: violates PodSecurity \"restricted:latest\": hostPath volumes (volume \"disk\")",
            )),
        failure("service account missing", "`serviceAccountName` of an account that is not there", verdict)
            .says(&["serviceaccount \"builder\" not found"])
            .next("kubectl get serviceaccounts -n tenant    # create it, or name another one")
            .seen(pod(
                "pods \"virt-launcher-hello-u\" is forbidden: error looking up service account tenant/builder: serviceaccount \"builder\" not found",
            )),
        failure("priority class missing", "`priorityClassName` of a class that is not there", verdict)
            .says(&["no PriorityClass with name gold was found"])
            .next("kubectl get priorityclasses    # create it, or name another one")
            .seen(pod("pods \"virt-launcher-hello-u\" is forbidden: no PriorityClass with name gold was found")),
        failure("LimitRange refuses the pod", "a LimitRange of 1Gi for each container", verdict)
            .says(&["maximum memory usage per Container is 1Gi, but limit is 4Gi"])
            .next("kubectl describe limitrange -n tenant    # what a container may ask for")
            .seen(pod("pods \"virt-launcher-hello-u\" is forbidden: maximum memory usage per Container is 1Gi, but limit is 4Gi")),
        failure("namespace is being deleted", "`kubectl delete namespace` while the machine is to run", verdict)
            .says(&["unable to create new content in namespace tenant because it is being terminated"])
            .next("kubectl get namespace tenant    # it is being deleted")
            .seen(pod(
                "pods \"virt-launcher-hello-u\" is forbidden: unable to create new content in namespace tenant because it is being terminated",
            )),
        failure("policy refuses the pod", "a policy that permits images of one registry", verdict)
            .says(&["only images of registry.example are permitted"])
            .next("kubectl describe vmi hello")
            .seen(pod("admission webhook \"validation.gatekeeper.sh\" denied the request: [registries] only images of registry.example are permitted")),
        failure("another webhook does not answer", "the pods of a service mesh's injector are gone", DiagnosisVerdict::WebhookDown)
            .says(&["the webhook rev.namespace.sidecar-injector.istio.io", "no endpoints available for service \"istiod\""])
            .next("bring back what serves the webhook rev.namespace.sidecar-injector.istio.io")
            .seen(pod(
                "Internal error occurred: failed calling webhook \"rev.namespace.sidecar-injector.istio.io\": failed to call webhook: Post \
                 \"https://istiod.istio-system.svc:443/inject?timeout=10s\": no endpoints available for service \"istiod\"",
            )),
        failure("an event is all that is known of a refusal", "a quota, and a controller of a version before", DiagnosisVerdict::QuotaExceeded)
            .says(&["exceeded quota: old"])
            .next("kubectl describe quota -n tenant")
            .seen(json!({
                "vmi": {"metadata": {"name": "hello", "namespace": "tenant", "uid": "u"}, "spec": {"domain": {"devices": {}}},
                    "status": {"phase": "Pending"}},
                "events": [{"metadata": {}, "involvedObject": {"kind": "VirtualMachineInstance", "name": "hello"}, "reason": "FailedCreate",
                    "type": "Warning", "message": "could not make the pod: exceeded quota: old, requested: memory=1Gi",
                    "eventTime": AGO.replace('Z', ".000000Z")}],
            })),
    ]
}
