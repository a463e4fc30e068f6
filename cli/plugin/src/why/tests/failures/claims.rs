//! Claims and DataVolumes that keep a machine from its start.

use serde_json::{Value, json};

use super::super::super::diagnosis::DiagnosisVerdict;
use super::super::{AGO, event, unfilled, unscheduled, waiting, with};
use super::{Failure, failure, unsynchronized};

/// A pod that waits for a claim which has no volume, and the last event about the claim.
fn unbound(reason: &str, message: &str) -> Value {
    let differs = json!({
        "claims": [{"metadata": {"name": "data", "creationTimestamp": AGO}, "spec": {}, "status": {"phase": "Pending"}}],
        "events": [{"metadata": {}, "involvedObject": {"kind": "PersistentVolumeClaim", "name": "data"}, "reason": reason,
            "type": "Warning", "message": message, "eventTime": AGO.replace('Z', ".000000Z")}],
    });
    with(unscheduled("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."), differs)
}

/// A pod that no node takes although its claim has a volume.
fn bound(message: &str) -> Value {
    with(
        unscheduled(message),
        json!({"claims": [{"metadata": {"name": "data"}, "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}]}),
    )
}

fn unmounted(reason: &str, message: &str) -> Value {
    with(waiting("launcher", "PodInitializing", ""), json!({"events": event("Pod", reason, "Warning", message)}))
}

pub(super) fn all() -> Vec<Failure> {
    let of_claims = missing().into_iter().chain(without_volume()).chain(elsewhere());
    of_claims.chain(data_volumes()).chain(others_data_volumes()).collect()
}

fn missing() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::ClaimMissing;
    vec![
        failure("claim missing", "the machine names a claim that is not there", verdict)
            .says(&["the PersistentVolumeClaim data does not exist"])
            .next("create the claim, or name another one")
            .recorded("claimMissing.json"),
        failure("claim deleted after the pod was made", "`kubectl delete pvc` while the pod waits for a node", verdict)
            .says(&["its claim data is not there"])
            .next("kubectl get pvc")
            .seen(unscheduled("0/2 nodes are available: persistentvolumeclaim \"data\" not found.")),
        failure("claim is being deleted", "a finalizer holds a claim that was deleted", verdict)
            .says(&["its claim data is being deleted"])
            .next("kubectl get pvc")
            .seen(unscheduled("0/2 nodes are available: persistentvolumeclaim \"data\" is being deleted.")),
        failure("firmware's claim of an earlier machine", "a machine of the same name was deleted a moment ago", DiagnosisVerdict::ClaimUnbound)
            .waits()
            .says(&["persistent-state-for-hello belongs to an earlier machine and is being deleted"])
            .next("kubectl get pvc -w")
            .seen(unsynchronized(
                "BackendStorageNotReady",
                "the PersistentVolumeClaim persistent-state-for-hello belongs to an earlier machine and is being deleted; this machine \
                 starts when it is gone",
            )),
        failure("firmware's claim refused", "a quota of claims, and a machine with persistent EFI variables", DiagnosisVerdict::QuotaExceeded)
            .says(&["exceeded quota: claims"])
            .next("kubectl describe quota -n tenant")
            .seen(unsynchronized(
                "FailedBackendStorageCreate",
                "persistentvolumeclaims \"persistent-state-for-hello\" is forbidden: exceeded quota: claims, requested: \
                 persistentvolumeclaims=1, used: persistentvolumeclaims=2, limited: persistentvolumeclaims=2",
            )),
    ]
}

fn without_volume() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::ClaimUnbound;
    vec![
        failure("claim without a volume", "a claim, and no storage class or volume for it", verdict)
            .says(&["its claim data has no volume", "no storage class is set"])
            .next("kubectl describe pvc data")
            .recorded("claimUnbound.json"),
        failure("provisioner fails", "a storage class whose pool is full", verdict)
            .says(&["its claim data has no volume", "not enough free space"])
            .next("kubectl describe pvc data")
            .seen(unbound(
                "ProvisioningFailed",
                "failed to provision volume with StorageClass \"fast\": rpc error: code = ResourceExhausted desc = not enough free space",
            )),
        failure("claim and volume of different modes", "a claim of the mode Filesystem for a volume of the mode Block", verdict)
            .says(&["incompatible volumeMode"])
            .next("kubectl get storageclass,pv")
            .seen(unbound("VolumeMismatch", "Cannot bind to requested volume \"pv-block\": incompatible volumeMode")),
        failure("no volume near its node", "local volumes that are all taken, bound at the first consumer", verdict)
            .says(&["its claim data has no volume", "waiting for first consumer"])
            .next("kubectl describe pvc data")
            .seen(with(
                unbound("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
                unscheduled("0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."),
            )),
    ]
}

fn elsewhere() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::ClaimElsewhere;
    vec![
        failure("volume on another node", "a local volume of node-2, and a node selector for node-1", verdict)
            .says(&["the volume of one of its claims (data) is on nodes that do not take it"])
            .next("see what keeps the machine from the nodes that have the volume")
            .seen(bound("0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 node(s) didn't match Pod's node affinity/selector.")),
        failure("volume attached to another node", "a machine on node-2 has the claim, which is ReadWriteOnce", verdict)
            .says(&["is attached to another node", "virt-launcher-other-8f1c"])
            .next("stop what uses it there")
            .seen(unmounted(
                "FailedAttachVolume",
                "Multi-Attach error for volume \"pvc-1\" Volume is already used by pod(s) virt-launcher-other-8f1c",
            )),
        failure("claim for one pod in use", "a second machine names a claim that is ReadWriteOncePod", verdict)
            .says(&["another pod has one of its claims (data)", "ReadWriteOncePod"])
            .next("stop the other machine first")
            .seen(bound(
                "0/2 nodes are available: 2 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode.",
            )),
        failure("claim replaced by one of another mode", "the claim was deleted and made anew as a block device meanwhile", DiagnosisVerdict::VolumeMount)
            .says(&["a claim is a block device where its pod was made for a file system", "volume data has volumeMode Block"])
            .next("kubectl garboard restart hello")
            .seen(unmounted(
                "FailedMount",
                "Unable to attach or mount volumes: volume data has volumeMode Block, but is specified in volumeMounts",
            )),
        failure("storage of a node does not answer", "the NFS server is switched off", DiagnosisVerdict::VolumeMount)
            .says(&["a volume cannot be mounted", "mount.nfs: Connection timed out"])
            .next("kubectl get pvc,secret,configmap")
            .seen(unmounted(
                "FailedMount",
                "MountVolume.SetUp failed for volume \"pv-1\" : mount failed: exit status 32 Output: mount.nfs: Connection timed out",
            )),
    ]
}

fn data_volumes() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::DataVolume;
    let filled = |phase: &str| json!({"dataVolumes": [{"metadata": {"name": "root"}, "status": {"phase": phase}}]});
    vec![
        failure("no importer", "dataVolumeTemplates on a cluster without the Containerized Data Importer", verdict)
            .says(&["this cluster has no Containerized Data Importer"])
            .next("kubectl api-resources --api-group=cdi.kubevirt.io")
            .seen(unfilled(
                "Failure",
                "FailedDataVolumeCreate",
                "could not create the DataVolume root: this cluster has no Containerized Data Importer, which fills DataVolumes; install \
                 it, or make a PersistentVolumeClaim of the same name",
            )),
        failure("import fails", "a DataVolume whose address answers 404", verdict)
            .says(&["the DataVolume root cannot be filled", "got 404"])
            .next("kubectl describe datavolume root")
            .seen(with(
                unfilled(
                    "Failure",
                    "FailedDataVolumeImport",
                    "the DataVolume root cannot be filled: Unable to connect to http data source: expected status code 200, got 404",
                ),
                filled("ImportInProgress"),
            )),
        failure("DataVolume waits for its first consumer", "a storage class that binds at the first consumer", verdict)
            .says(&["waits for a first consumer", "bind.immediate.requested"])
            .next("kubectl describe datavolume root")
            .seen(with(
                unfilled(
                    "DataVolumesReady",
                    "NotAllDVsReady",
                    "the DataVolume root waits for a first consumer, which a machine cannot be before it is filled; annotate it with \
                     cdi.kubevirt.io/storage.bind.immediate.requested",
                ),
                filled("WaitForFirstConsumer"),
            )),
        failure("source of a copy may not be read", "a DataVolume that copies a claim of a namespace without that right", verdict)
            .says(&["has insufficient permissions in clone source namespace images"])
            .next("kubectl create rolebinding copy-images -n images --role=copy-images --serviceaccount=garboard:garboard-datavolumes")
            .seen(unfilled(
                "Failure",
                "FailedDataVolumeCreate",
                "could not create the DataVolume root: admission webhook \"datavolume-mutate.cdi.kubevirt.io\" denied the request: User \
                 system:serviceaccount:garboard:garboard-datavolumes has insufficient permissions in clone source namespace images",
            )),
    ]
}

fn others_data_volumes() -> Vec<Failure> {
    let verdict = DiagnosisVerdict::DataVolume;
    vec![
        failure("DataVolume of another machine", "a copy of a machine whose dataVolumeTemplates were not renamed", verdict)
            .says(&["belongs to the VirtualMachine original", "write a name there that no other machine or pool uses"])
            .next("OWNER:.metadata.ownerReferences")
            .seen(unfilled(
                "Failure",
                "FailedDataVolumeCreate",
                "spec.dataVolumeTemplates[0].metadata.name: the DataVolume root belongs to the VirtualMachine original; write a name \
                 there that no other machine or pool uses, such as one that begins with `hello-`",
            )),
        failure("DataVolume of an earlier machine", "a machine was deleted and made again under the same name", verdict)
            .waits()
            .says(&["belongs to an earlier VirtualMachine hello and is being removed"])
            .next("kubectl describe datavolumes")
            .seen(unfilled(
                "DataVolumesReady",
                "NotAllDVsReady",
                "the DataVolume root belongs to an earlier VirtualMachine hello and is being removed; this machine gets one of its own \
                 when it is gone",
            )),
    ]
}
