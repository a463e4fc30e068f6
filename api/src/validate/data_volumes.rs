//! The data volumes that are made for a VirtualMachine: what fills them and who uses them.

use super::report::{Report, duplicate, invalid, required};
use super::subject::text;
use crate::fault::FieldPath;
use crate::v1::VirtualMachine;
use crate::v1::cdi::{DataVolumeSource, DataVolumeSpec};

/// Judges the data volumes of a machine.
pub(crate) fn check(vm: &VirtualMachine, at: &FieldPath, report: &mut Report) {
    let volumes = vm.spec.template.spec.as_ref().map(|spec| spec.volumes.as_slice()).unwrap_or_default();
    let templates = &vm.spec.data_volume_templates;
    for (index, template) in templates.iter().enumerate() {
        // KubeVirt leaves the plural and the step `spec` out of most paths it reports here.
        let sent = at.child("dataVolumeTemplate").index(index);
        let at = at.child("dataVolumeTemplates").index(index);
        let metadata = template.metadata.as_ref();
        let name = metadata.map_or("", |metadata| text(&metadata.name));
        let namespace = metadata.map_or("", |metadata| text(&metadata.namespace));
        let of_machine = text(&vm.metadata.namespace);
        if !namespace.is_empty() && !of_machine.is_empty() && namespace != of_machine {
            report.push(
                invalid(at.child("metadata.namespace"), format!("`{namespace}` is not the namespace of the machine"))
                    .instead("remove it")
                    .field(at.to_string()),
            );
        }
        if name.is_empty() {
            report.push(
                required(at.child("metadata.name"), "the data volume has no name")
                    .instead("write one")
                    .field(sent.child("name").to_string()),
            );
            continue;
        }
        let named_alike = |other: &crate::v1::cdi::DataVolumeTemplateSpec| {
            other.metadata.as_ref().is_some_and(|metadata| text(&metadata.name) == name)
        };
        if templates.iter().take(index).any(named_alike) {
            report.push(
                duplicate(at.child("metadata.name"), format!("another data volume is named `{name}` too"))
                    .instead("give each a name of its own"),
            );
        }
        if !storage_and_source(&template.spec, &at.child("spec"), &sent, report) {
            continue;
        }
        let used = volumes.iter().any(|volume| {
            volume.data_volume.as_ref().is_some_and(|source| source.name == name)
                || volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.claim_name == name)
        });
        if !used {
            report.push(
                required(at, format!("no volume uses the data volume `{name}`"))
                    .instead("name it in a volume with `dataVolume`, or remove it")
                    .field(sent.to_string()),
            );
        }
    }
}

/// Judges one data volume, and answers whether it is right.
fn storage_and_source(spec: &DataVolumeSpec, at: &FieldPath, sent: &FieldPath, report: &mut Report) -> bool {
    let storage = sent.child("PVC.Storage").to_string();
    if spec.pvc.is_some() == spec.storage.is_some() {
        let both = if spec.pvc.is_some() { "both are written" } else { "neither is written" };
        report.push(
            invalid(at.clone(), format!("a data volume has `storage` or `pvc`, and {both}"))
                .instead("write `storage` with `resources.requests.storage`")
                .field(storage),
        );
        return false;
    }
    let of_claim = spec.pvc.as_ref().is_some_and(|pvc| pvc.data_source.is_some() || pvc.data_source_ref.is_some());
    let of_storage =
        spec.storage.as_ref().is_some_and(|storage| storage.data_source.is_some() || storage.data_source_ref.is_some());
    let filled_by_others = of_claim || of_storage;
    let has_source = spec.source.is_some() || spec.source_ref.is_some();
    if filled_by_others && has_source {
        report.push(
            invalid(at.child("source"), "the data volume is filled by a populator, and has a source too")
                .instead("keep one of them")
                .field(sent.child("source").to_string()),
        );
        return false;
    }
    if !filled_by_others && !has_source {
        report.push(
            invalid(at.child("source"), "the data volume has no source")
                .instead("write `source: {blank: {}}`, or another source")
                .field(sent.child("source.sourceRef").to_string()),
        );
        return false;
    }
    let sources = spec.source.as_ref().map_or(1, count_sources);
    if sources != 1 {
        report.push(
            invalid(at.child("source"), format!("a data volume has one source, and {sources} are written"))
                .instead("write one")
                .field(sent.child("source").to_string()),
        );
        return false;
    }
    true
}

fn count_sources(source: &DataVolumeSource) -> usize {
    [
        source.blank.is_some(),
        source.gcs.is_some(),
        source.http.is_some(),
        source.imageio.is_some(),
        source.pvc.is_some(),
        source.registry.is_some(),
        source.s3.is_some(),
        source.snapshot.is_some(),
        source.upload.is_some(),
        source.vddk.is_some(),
    ]
    .into_iter()
    .filter(|set| *set)
    .count()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::testing::{machine_verdict, refused_machine};

    #[test]
    fn data_volumes_are_filled_and_used() {
        const FIRST: &str = "spec.dataVolumeTemplates[0]";
        let storage = json!({"resources": {"requests": {"storage": "1Gi"}}});
        let template = |spec: Value| json!({"metadata": {"name": "dv"}, "spec": spec});
        let blank = template(json!({"source": {"blank": {}}, "storage": storage}));
        let used = ("spec.template.spec.volumes[0]", json!({"name": "root", "dataVolume": {"name": "dv"}}));
        let right = machine_verdict(&[(FIRST, blank.clone()), used.clone()]);
        assert_eq!(right.faults, []);
        refused_machine(&[(FIRST, blank)], FIRST, "spec.dataVolumeTemplate[0]", "no volume uses");
        refused_machine(
            &[(FIRST, template(json!({"storage": storage}))), used.clone()],
            "spec.dataVolumeTemplates[0].spec.source",
            "spec.dataVolumeTemplate[0].source.sourceRef",
            "no source",
        );
        refused_machine(
            &[(FIRST, template(json!({"source": {"blank": {}}}))), used.clone()],
            "spec.dataVolumeTemplates[0].spec",
            "spec.dataVolumeTemplate[0].PVC.Storage",
            "neither",
        );
        refused_machine(
            &[(FIRST, template(json!({"source": {"blank": {}, "upload": {}}, "storage": storage}))), used.clone()],
            "spec.dataVolumeTemplates[0].spec.source",
            "spec.dataVolumeTemplate[0].source",
            "2 are written",
        );
        refused_machine(
            &[(FIRST, json!({"spec": {"source": {"blank": {}}, "storage": storage}})), used],
            "spec.dataVolumeTemplates[0].metadata.name",
            "spec.dataVolumeTemplate[0].name",
            "no name",
        );
    }
}
