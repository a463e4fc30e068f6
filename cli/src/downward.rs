//! The downward API on a bare host: fields of the machine itself as files.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::DownwardAPIVolumeFile;

/// The files of a downwardAPI volume, base64.
pub(crate) fn files(
    vmi: &VirtualMachineInstance,
    fields: &[DownwardAPIVolumeFile],
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for (index, field) in fields.iter().enumerate() {
        let Some(reference) = &field.field_ref else {
            anyhow::bail!(
                "downwardAPI.fields[{index}]: only fieldRef is supported on a bare host; remove resourceFieldRef"
            );
        };
        let text = value(vmi, &reference.field_path).ok_or_else(|| {
            let known = "metadata.name, metadata.namespace, metadata.uid, metadata.labels, metadata.annotations";
            anyhow::anyhow!(
                "downwardAPI.fields[{index}].fieldRef.fieldPath: `{}` is none of {known}",
                reference.field_path
            )
        })?;
        files.insert(field.path.clone(), STANDARD.encode(text));
    }
    Ok(files)
}

/// As Kubernetes writes them: maps one `key="value"` a line, sorted.
fn value(vmi: &VirtualMachineInstance, path: &str) -> Option<String> {
    let metadata = &vmi.metadata;
    let lines = |map: &Option<BTreeMap<String, String>>| {
        let entries = map.iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
        entries.collect::<Vec<_>>().join("\n")
    };
    let entry = |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
    let in_brackets = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']").map(str::to_owned);
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => Some(metadata.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())),
        "metadata.uid" => Some(metadata.uid.clone().unwrap_or_default()),
        "metadata.labels" => Some(lines(&metadata.labels)),
        "metadata.annotations" => Some(lines(&metadata.annotations)),
        _ => {
            let label = in_brackets("metadata.labels['").and_then(|key| entry(&metadata.labels, &key));
            label.or_else(|| in_brackets("metadata.annotations['").and_then(|key| entry(&metadata.annotations, &key)))
        }
    }
}
