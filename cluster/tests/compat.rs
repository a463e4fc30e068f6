//! What a controller has written on a launcher pod is read by the node agent and the controller of every later build
//! (`tests/compat`): the pod is as old as its machine's last start.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the whole file is a test")]

#[path = "../../tests/recorded.rs"]
mod recorded;

use std::collections::BTreeMap;

use garboard_api::Quantity;
use garboard_api::v1::PersistentVolumeClaimInfo;
use garboard_cluster::report::claims::{self, Claims};
use k8s_openapi::api::core::v1::Pod;

const CLAIMS: &str = "claims.json";

/// One with something in each field. Written out: a new field has to be thought of here.
fn sample() -> Claims {
    let bytes = BTreeMap::from([("storage".to_owned(), "1073741824".parse::<Quantity>().unwrap())]);
    let claim = PersistentVolumeClaimInfo {
        access_modes: vec!["ReadWriteOnce".to_owned()],
        capacity: bytes.clone(),
        claim_name: Some("root".to_owned()),
        filesystem_overhead: Some("0.055".to_owned()),
        preallocated: Some(true),
        requests: bytes,
        volume_mode: Some("Filesystem".to_owned()),
    };
    Claims::from([("root".to_owned(), claim)])
}

fn read(text: &str) -> Claims {
    let mut pod = Pod::default();
    pod.metadata.annotations = Some([(claims::ANNOTATION.to_owned(), text.to_owned())].into());
    claims::of(&pod)
}

#[test]
fn the_claims_of_every_build_are_read() {
    let written = serde_json::to_string_pretty(&sample()).unwrap();
    recorded::expect_listed([CLAIMS]);
    recorded::write(&[(CLAIMS, written.clone().into_bytes())]);
    for text in recorded::all(CLAIMS).into_iter().map(|file| String::from_utf8(file.bytes).unwrap()).chain([written]) {
        assert_eq!(read(&text), sample(), "{text}");
    }
}

#[test]
fn what_later_builds_add_is_ignored() {
    let mut more = serde_json::to_value(sample()).unwrap();
    more["root"]["aFieldOfALaterBuild"] = serde_json::json!({"with": ["anything", 7]});
    assert_eq!(read(&more.to_string()), sample());
}
