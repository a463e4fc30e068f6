//! `garboard validate`: every mistake of every file, by the same code as admission. No object goes without a line: what is not
//! judged here is named.

use garboard_api::cluster::ClusterConfig;
use garboard_api::fault::Fault;
use garboard_api::validate::review_sized;
use serde::Serialize;

use crate::args::ValidateArgs;
use crate::exit::{self, BAD_INPUT, exit_error};
use crate::manifest::{self, Document};
use crate::output::outln;
use crate::sizes;

/// The verdict on one document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DocumentVerdict {
    origin: String,
    api_version: String,
    kind: String,
    name: String,
    /// Why it is not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<&'static str>,
    faults: Vec<Fault>,
    warnings: Vec<String>,
}

/// `garboard validate FILE…`.
pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<u8> {
    let (documents, problems) = manifest::load_what_can_be(&args.files);
    let config = ClusterConfig::default();
    let verdicts: Vec<DocumentVerdict> =
        documents.iter().map(|document| judge(document, &documents, &config)).collect();
    let bad = verdicts.iter().filter(|verdict| !verdict.faults.is_empty()).count();
    args.output.show(&verdicts, || verdicts.iter().flat_map(lines).try_for_each(|line| outln!("{line}")))?;
    if !problems.is_empty() {
        return Err(exit_error(BAD_INPUT, problems.join("\n")));
    }
    if documents.is_empty() {
        let files: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
        return Err(exit_error(
            BAD_INPUT,
            format!("there is nothing in {}; write a manifest into it", files.join(", ")),
        ));
    }
    Ok(if bad == 0 { exit::OK } else { BAD_INPUT })
}

fn judge(document: &Document, documents: &[Document], config: &ClusterConfig) -> DocumentVerdict {
    let mut verdict = DocumentVerdict {
        origin: document.origin.clone(),
        api_version: document.value["apiVersion"].as_str().unwrap_or_default().to_owned(),
        kind: document.kind().to_owned(),
        name: document.name().to_owned(),
        not_judged: not_judged(document),
        faults: Vec::new(),
        warnings: Vec::new(),
    };
    if verdict.not_judged.is_none() {
        let looked = sizes::look(document, documents);
        let admission = review_sized(&looked.manifest, config, &looked.sizing);
        verdict.faults = admission.faults;
        verdict.faults.extend(looked.fault);
        verdict.warnings = admission.warnings.iter().map(ToString::to_string).collect();
    }
    verdict
}

/// Why a document is judged elsewhere. Objects of a group of KubeVirt, objects with a machine's kind and objects without
/// a kind are judged here: those that no cluster with Garboard takes are refused.
fn not_judged(document: &Document) -> Option<&'static str> {
    if document.is_given_to_machines() {
        return Some("the API server judges it");
    }
    let group = document.value["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group);
    let is_of_kubevirt = group == "kubevirt.io" || group.ends_with(".kubevirt.io");
    match group {
        _ if document.is_machine() => None,
        "cdi.kubevirt.io" => Some("CDI judges it"),
        _ if is_of_kubevirt => None,
        "" if document.kind().is_empty() => None,
        _ => Some("it is not of a group of KubeVirt"),
    }
}

/// What a person reads of it.
fn lines(verdict: &DocumentVerdict) -> Vec<String> {
    let DocumentVerdict { origin, kind, name, faults, warnings, not_judged, .. } = verdict;
    let mut lines: Vec<String> = faults.iter().map(|fault| format!("{origin}: {kind} {name}: {fault}")).collect();
    lines.extend(warnings.iter().map(|warning| format!("{origin}: {kind} {name}: warning: {warning}")));
    match not_judged {
        Some(why) => lines.push(format!("{origin}: {kind} {name}: not judged: {why}")),
        None if faults.is_empty() => lines.push(format!("{origin}: {kind} {name}: ok")),
        None => {}
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_object_is_judged_or_named() {
        let table = [
            ("pool.kubevirt.io/v2", "VirtualMachinePool", "pool.kubevirt.io/v1beta1"),
            ("instancetype.kubevirt.io/v1beta1", "VirtualMachineInstancetype", "spec"),
            ("instancetype.kubevirt.io/v1alpha1", "VirtualMachineInstancetype", "apiVersion"),
            ("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot", "not supported"),
            ("migrations.kubevirt.io/v1alpha1", "MigrationPolicy", "not supported"),
            ("kubevirt.io/v1", "VirtualMachineInstanceMigration", "not supported"),
            ("kubevirt.io/v2", "VirtualMachine", "apiVersion"),
            ("example.org/v1", "VirtualMachine", "kubevirt.io/v1"),
            ("future.kubevirt.io/v1", "Something", "not supported"),
            ("cdi.kubevirt.io/v1beta1", "DataVolume", "not judged: CDI"),
            ("v1", "Secret", "not judged: the API server"),
            ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "not judged: it is not of a group of KubeVirt"),
        ];
        for (version, kind, expected) in table {
            let value = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
            let verdict = judge(&Document { origin: "x.yaml".into(), value }, &[], &ClusterConfig::default());
            let text = lines(&verdict).join("\n");
            assert!(text.starts_with(&format!("x.yaml: {kind} a: ")) && text.contains(expected), "{text}");
            assert_eq!(verdict.faults.is_empty(), expected.starts_with("not judged"), "{text}");
        }
    }

    #[test]
    fn a_machine_is_judged_with_what_it_names() {
        let files = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\nspec:\n  runStrategy: Always\n  \
                     instancetype: {name: small}\n  template: {spec: {domain: {cpu: {cores: 2}, devices: {}}}}\n---\n\
                     apiVersion: instancetype.kubevirt.io/v1\nkind: VirtualMachineClusterInstancetype\n\
                     metadata: {name: small}\nspec: {cpu: {guest: 2}, memory: {guest: 1Gi}}\n";
        let documents = manifest::parse("x.yaml", files).unwrap();
        let config = ClusterConfig::default();
        let both = judge(&documents[0], &documents, &config);
        assert_eq!(both.faults[0].path.as_str(), "spec.template.spec.domain.cpu.cores");
        let alone = judge(&documents[0], &documents[..1], &config);
        assert_eq!(alone.faults, []);
        assert!(alone.warnings.iter().any(|warning| warning.contains("add its manifest")), "{:?}", alone.warnings);
        assert_eq!(judge(&documents[1], &documents, &config).faults, []);
    }

    #[test]
    fn what_does_not_say_what_it_is_is_refused() {
        for value in [json!({}), json!({"kind": "Machine"}), json!(null)] {
            let verdict = judge(&Document { origin: "x.yaml".into(), value }, &[], &ClusterConfig::default());
            assert!(!verdict.faults.is_empty(), "{verdict:?}");
        }
    }
}
