//! `garboard validate`: every mistake of every file, by the same code as admission.

use garboard_api::cluster::ClusterConfig;
use garboard_api::fault::Fault;
use garboard_api::validate::review;
use serde::Serialize;

use crate::args::{Output, ValidateArgs};
use crate::exit::{self, BAD_INPUT, complaint};
use crate::manifest::{self, Document};

/// The verdict on one document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    origin: String,
    kind: String,
    name: String,
    faults: Vec<Fault>,
    warnings: Vec<String>,
}

/// `garboard validate FILE…`.
pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<u8> {
    let (documents, problems) = manifest::load_what_can_be(&args.files);
    let config = ClusterConfig::default();
    let verdicts: Vec<Verdict> = documents.iter().filter_map(|document| judge(document, &config)).collect();
    let bad = verdicts.iter().filter(|verdict| !verdict.faults.is_empty()).count();
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&verdicts)?),
        Output::Text => verdicts.iter().for_each(print),
    }
    if !problems.is_empty() {
        return Err(complaint(BAD_INPUT, problems.join("\n")));
    }
    if documents.is_empty() {
        let files: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
        return Err(complaint(
            BAD_INPUT,
            format!("there is nothing in {}; write a manifest into it", files.join(", ")),
        ));
    }
    Ok(if bad == 0 { exit::OK } else { BAD_INPUT })
}

/// Objects of other kinds are the concern of whoever uses them, unless they claim to be of ours or say nothing.
fn judge(document: &Document, config: &ClusterConfig) -> Option<Verdict> {
    let claims_to_be_ours = document.value["apiVersion"].as_str().is_none_or(|group| group.starts_with("kubevirt.io/"));
    if !document.is_machine() && (!claims_to_be_ours || document.is_given_to_machines()) {
        return None;
    }
    let admission = review(&document.value, config);
    Some(Verdict {
        origin: document.origin.clone(),
        kind: document.kind().to_owned(),
        name: document.name().to_owned(),
        faults: admission.faults,
        warnings: admission.warnings.iter().map(ToString::to_string).collect(),
    })
}

fn print(verdict: &Verdict) {
    let Verdict { origin, kind, name, faults, warnings } = verdict;
    for fault in faults {
        println!("{origin}: {kind} {name}: {fault}");
    }
    for warning in warnings {
        println!("{origin}: {kind} {name}: warning: {warning}");
    }
    if faults.is_empty() {
        println!("{origin}: {kind} {name}: ok");
    }
}
