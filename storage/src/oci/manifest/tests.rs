use serde_json::json;

use super::*;

fn digest(letter: char) -> String {
    format!("sha256:{}", letter.to_string().repeat(64))
}

fn parsed(value: serde_json::Value) -> Result<Document, ManifestError> {
    parse(value.to_string().as_bytes(), &ImageLimits::default())
}

fn image(layers: serde_json::Value) -> serde_json::Value {
    json!({
        "schemaVersion": 2,
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest('0'), "size": 2 },
        "layers": layers,
    })
}

fn layer(media_type: &str, letter: char, size: u64) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": digest(letter), "size": size })
}

const TAR: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

fn index(entries: &[serde_json::Value]) -> Vec<Choice> {
    match parsed(json!({ "schemaVersion": 2, "manifests": entries })).unwrap() {
        Document::Index(choices) => choices,
        other => panic!("{other:?}"),
    }
}

fn entry(letter: char, platform: Option<&str>, name: Option<&str>) -> serde_json::Value {
    let mut entry =
        json!({ "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(letter), "size": 7 });
    if let Some((os, architecture)) = platform.and_then(|platform| platform.split_once('/')) {
        entry["platform"] = json!({ "os": os, "architecture": architecture });
    }
    if let Some(name) = name {
        entry["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    }
    entry
}

#[test]
fn layers_come_topmost_first() {
    let document = parsed(image(json!([layer(TAR, 'a', 1), layer(TAR, 'b', 2)]))).unwrap();
    let Document::Image(layers) = document else { panic!("{document:?}") };
    assert_eq!(layers.iter().map(|layer| layer.bytes).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn what_cannot_be_served_is_named() {
    let refused = |value| parsed(value).unwrap_err();
    assert!(matches!(refused(json!({ "schemaVersion": 1, "fsLayers": [] })), ManifestError::Kind));
    assert!(matches!(refused(json!([1, 2])), ManifestError::Kind));
    assert!(matches!(parse(b"<html>", &ImageLimits::default()), Err(ManifestError::Shape(_))));
    let foreign = layer("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", 'a', 1);
    assert!(matches!(refused(image(json!([foreign]))), ManifestError::LayerKind { .. }));
    assert!(matches!(refused(image(json!([layer(TAR, 'a', u64::MAX)]))), ManifestError::LayerTooLarge { .. }));
    let many: Vec<_> = (0..257).map(|_| layer(TAR, 'a', 1)).collect();
    assert!(matches!(refused(image(json!(many))), ManifestError::TooManyLayers { .. }));
    let climbing = json!([{ "mediaType": TAR, "digest": "sha256:../../../../etc/passwd", "size": 1 }]);
    assert!(matches!(refused(image(climbing)), ManifestError::Shape(_) | ManifestError::Digest(_)));
    let long = vec![b' '; 5 << 20];
    assert!(matches!(parse(&long, &ImageLimits::default()), Err(ManifestError::TooLarge { .. })));
}

#[test]
fn the_image_of_this_machine_is_chosen() {
    let mut attestation = entry('c', Some("unknown/unknown"), None);
    attestation["annotations"] = json!({ "vnd.docker.reference.type": "attestation-manifest" });
    let choices = index(&[entry('a', Some("linux/arm64"), None), entry('b', Some("linux/amd64"), None), attestation]);
    assert_eq!(choices.len(), 2);
    assert_eq!(for_platform(&choices, "amd64").unwrap().digest.to_string(), digest('b'));
    match for_platform(&choices, "s390x") {
        Err(ManifestError::Platform { offered, .. }) => assert_eq!(offered, "linux/arm64, linux/amd64"),
        other => panic!("{other:?}"),
    }
    assert!(for_platform(&index(&[entry('a', None, None)]), "amd64").is_ok());
    assert!(for_platform(&index(&[entry('a', Some("windows/amd64"), None)]), "amd64").is_err());
    assert!(for_platform(&[], "amd64").is_err());
}

#[test]
fn the_image_of_a_layout_is_chosen_by_name() {
    let choices = index(&[entry('a', None, Some("one")), entry('b', None, Some("two"))]);
    assert_eq!(by_name(&choices, Some("two"), "amd64").unwrap().digest.to_string(), digest('b'));
    assert!(matches!(by_name(&choices, None, "amd64"), Err(ManifestError::Ambiguous { .. })));
    match by_name(&choices, Some("three"), "amd64") {
        Err(ManifestError::NoSuchName { names, .. }) => assert_eq!(names, "one, two"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(by_name(&[], None, "amd64"), Err(ManifestError::NoSuchName { .. })));
    let platforms =
        index(&[entry('a', Some("linux/arm64"), Some("one")), entry('b', Some("linux/amd64"), Some("one"))]);
    assert_eq!(by_name(&platforms, None, "amd64").unwrap().digest.to_string(), digest('b'));
}
