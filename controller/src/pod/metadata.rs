//! Labels, annotations and owner of the pod: KubeVirt's names, by which other programs find a machine.

use std::collections::BTreeMap;

use garboard_api::VirtualMachineInstance;
use garboard_api::metadata::{annotation, label};
use garboard_plan::Resources;
use garboard_protocol::agent::BRIDGE;
use garboard_protocol::backup_hook;
use garboard_protocol::control::BackupStep;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{PodInput, claims, name};

/// On a launcher pod: the image that was written into both of its containers. Where something changes images before they are stored,
/// the image of `compute` is what it was stored as.
pub const WRITTEN_IMAGE: &str = "garboard.dev/launcher-image";
/// A label's value has at most this many bytes.
const LONGEST_LABEL: usize = 63;
/// Of a digest this many digits are enough to make names differ.
const DIGEST: usize = 8;

pub(super) fn of(input: &PodInput<'_>, resources: &Resources, order: String) -> ObjectMeta {
    let vmi = &input.vmi.metadata;
    let name_of_vmi = vmi.name.clone().unwrap_or_default();
    let uid = vmi.uid.clone().unwrap_or_default();
    ObjectMeta {
        name: name(input.vmi),
        namespace: vmi.namespace.clone(),
        labels: Some(labels(input.vmi, &name_of_vmi, &uid)),
        annotations: Some(annotations(input, &name_of_vmi, resources, order)),
        owner_references: Some(vec![OwnerReference {
            api_version: garboard_api::v1::API_VERSION.to_owned(),
            kind: "VirtualMachineInstance".to_owned(),
            name: name_of_vmi,
            uid,
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

fn labels(vmi: &VirtualMachineInstance, name: &str, uid: &str) -> BTreeMap<String, String> {
    let mut all = vmi.metadata.labels.clone().unwrap_or_default();
    all.insert(label::COMPONENT.to_owned(), "virt-launcher".to_owned());
    all.insert(label::CREATED_BY.to_owned(), uid.to_owned());
    all.insert(label::VM_NAME.to_owned(), hostname(vmi).unwrap_or_default());
    all.insert("vmi.kubevirt.io/id".to_owned(), id(name));
    all
}

fn annotations(input: &PodInput<'_>, name: &str, resources: &Resources, order: String) -> BTreeMap<String, String> {
    let own = [
        ("descheduler.alpha.kubernetes.io/request-evict-only", String::new()),
        ("kubectl.kubernetes.io/default-container", "compute".to_owned()),
        ("kubevirt.io/domain", name.to_owned()),
        ("kubevirt.io/memory-overhead-bytes", resources.overhead.total_bytes.to_string()),
        ("kubevirt.io/migrationTransportUnix", "true".to_owned()),
        (garboard_protocol::pod::ORDER_ANNOTATION, order),
        (WRITTEN_IMAGE, input.launcher_image.reference.clone()),
    ];
    let vmi = input.vmi;
    let mut all = vmi.metadata.annotations.clone().unwrap_or_default();
    // Supervisor and agent trust what a pod has under our own domain: only the controller writes it.
    let trace = all.remove(annotation::TRACE);
    all.retain(|key, _| !["kubectl.kubernetes.io/", "garboard.dev/"].iter().any(|domain| key.starts_with(domain)));
    // It decides nothing but to which trace the agent's spans belong.
    all.extend(trace.map(|trace| (annotation::TRACE.to_owned(), trace)));
    // They are about the instance.
    annotation::OBSERVED_API_VERSIONS.iter().for_each(|key| drop(all.remove(*key)));
    all.extend(own.into_iter().map(|(key, value)| (key.to_owned(), value)));
    if !skips_backup_hooks(vmi) {
        all.extend(backup_hooks());
    }
    let claims = serde_json::to_string(&claims::of(input)).ok().filter(|text| text != "{}");
    all.extend(claims.map(|claims| (garboard_cluster::report::claims::ANNOTATION.to_owned(), claims)));
    if has_masquerade(vmi) {
        // Istio redirects what comes from the guest's side of the bridge only if this annotation names it.
        for key in ["istio.io/reroute-virtual-interfaces", "traffic.sidecar.istio.io/kubevirtInterfaces"] {
            all.insert(key.to_owned(), BRIDGE.to_owned());
        }
    }
    all
}

/// What Velero runs around its copy of the volumes, by its own documentation of annotations of pods. KubeVirt's are of the same
/// container, with the same time limit; its program has another name.
fn backup_hooks() -> impl Iterator<Item = (String, String)> {
    let command = |step| serde_json::to_string(&backup_hook::command(step)).unwrap_or_default();
    let all = [
        ("pre.hook.backup.velero.io/container", "compute".to_owned()),
        ("pre.hook.backup.velero.io/command", command(BackupStep::Freeze)),
        ("pre.hook.backup.velero.io/timeout", format!("{}s", backup_hook::WITHIN_SECONDS)),
        ("post.hook.backup.velero.io/container", "compute".to_owned()),
        ("post.hook.backup.velero.io/command", command(BackupStep::Thaw)),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value))
}

/// Whether the instance wants none; the values are those of Go's `strconv.ParseBool`.
fn skips_backup_hooks(vmi: &VirtualMachineInstance) -> bool {
    let written = vmi.metadata.annotations.as_ref().and_then(|all| all.get(annotation::SKIP_BACKUP_HOOKS));
    written.is_some_and(|value| ["1", "t", "T", "TRUE", "true", "True"].contains(&value.as_str()))
}

fn has_masquerade(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.domain.devices.interfaces.iter().any(|interface| interface.masquerade.is_some())
}

/// The name of the instance as the value of a label: one that is too long for that ends with a digest of itself, as the
/// reference has it.
fn id(name: &str) -> String {
    if name.len() <= LONGEST_LABEL {
        return name.to_owned();
    }
    let digest = sha1_smol::Sha1::from(name).digest().to_string();
    let (begin, end) =
        (name.get(..LONGEST_LABEL - DIGEST - 1).unwrap_or(name), digest.get(..DIGEST).unwrap_or_default());
    format!("{begin}-{end}")
}

/// What the guest's name begins with, as far as a host name goes: also a label of KubeVirt's.
pub(super) fn hostname(vmi: &VirtualMachineInstance) -> Option<String> {
    let name = vmi.metadata.name.as_deref()?;
    let first = name.split('.').next().unwrap_or(name);
    Some(first.get(..63).unwrap_or(first).trim_end_matches('-').to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::id;

    #[test]
    fn a_name_that_is_too_long_for_a_label_ends_with_a_digest_of_itself() {
        let long = "a".repeat(62) + ".b";
        assert_eq!(id("web.prod"), "web.prod");
        assert_eq!(id(&long), format!("{}-{}", "a".repeat(54), "468ae709"));
    }
}
