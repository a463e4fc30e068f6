//! The committed CustomResourceDefinitions are those of the types. `GARBOARD_GOLDEN=update` writes them anew.

use std::path::PathBuf;

use garboard_api::crd;

fn directory() -> PathBuf {
    PathBuf::from("../deploy/base/crds")
}

#[test]
fn the_committed_definitions_are_those_of_the_types() {
    for kind in crd::KINDS {
        let definition = crd::definition(kind).unwrap();
        let path = directory().join(format!("{}.yaml", definition["metadata"]["name"].as_str().unwrap()));
        let text = format!(
            "# Generated from the types in api/; `GARBOARD_GOLDEN=update cargo test -p garboard-api --test crds` writes it anew.\n{}",
            serde_saphyr::to_string(&definition).unwrap()
        );
        if std::env::var("GARBOARD_GOLDEN").as_deref() == Ok("update") {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} differs from the types: update it (see the head of the file)", path.display());
    }
}

#[test]
fn definitions_fit_into_the_annotation_of_kubectl_apply() {
    /// `TotalAnnotationSizeLimitB` of Kubernetes, less what others may annotate.
    const MOST_BYTES: usize = 256 * 1024 - 16 * 1024;
    for kind in crd::KINDS {
        let bytes = serde_json::to_vec(&crd::definition(kind).unwrap()).unwrap().len();
        assert!(bytes < MOST_BYTES, "{} has {bytes} bytes", kind.name());
    }
}
