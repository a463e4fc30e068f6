//! A model of a network card has several places.

use std::collections::BTreeSet;
use std::path::Path;

use garboard_api::validate::NIC_MODELS;
use serde_json::{Value, json};

use crate::NicModel;

fn names() -> BTreeSet<String> {
    NicModel::ALL.iter().map(|model| model.name().to_owned()).collect()
}

#[test]
fn what_is_admitted_is_planned() {
    let admitted: BTreeSet<String> = NIC_MODELS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(admitted, names(), "MODELS of api/src/validate/interfaces.rs, and NicModel");
    for model in NicModel::ALL {
        assert_eq!(json!(model), model.name());
    }
}

#[test]
fn each_model_is_in_a_golden_machine() {
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden"));
    let plans = std::fs::read_dir(golden).unwrap().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.unwrap().path().join("plan.json")).ok()?;
        serde_json::from_str::<Value>(&text).ok()
    });
    let interfaces = plans.flat_map(|plan| plan["interfaces"].as_array().cloned().unwrap_or_default());
    let planned: BTreeSet<String> = interfaces.filter_map(|each| Some(each["model"].as_str()?.to_owned())).collect();
    assert_eq!(planned, names(), "tests/golden/*/plan.json");
}

#[test]
fn the_documents_name_each_model() {
    let page = include_str!("../../../../docs/networking.md");
    let (_, sentence) = page.split_once("Models are ").unwrap();
    let sentence = sentence.split_once(".\n").unwrap().0;
    let named: BTreeSet<String> = sentence.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(named, names(), "docs/networking.md");
}
