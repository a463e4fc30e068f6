//! `guestfs`: the image of libguestfs tools, of which `virtctl guestfs` makes a pod. There is none among the images of Garboard: it is
//! one that the administrator names. Pure.

use garboard_api::metadata::installation_annotation::GUESTFS_IMAGE;
use serde_json::{Value, json};

/// KubeVirt's name of the image. Clients that do not read `gsImage` put the reference together of registry, prefix, this name, and
/// tag or digest.
const USUAL_NAME: &str = "libguestfs-tools";

/// KubeVirt's `GuestfsInfo` for an image. The parts of its reference are empty where its name is another than KubeVirt's.
///
/// # Errors
/// No image is named. The text is for people.
pub fn info(image: Option<&str>) -> Result<Value, String> {
    let image = image.map(str::trim).filter(|image| !image.is_empty()).ok_or_else(|| {
        format!(
            "no image of libguestfs tools is configured: \
             name one in the annotation {GUESTFS_IMAGE} of the KubeVirt object, or use virtctl guestfs --image"
        )
    })?;
    let Parts { registry, prefix, tag, digest } = Parts::of(image).unwrap_or_default();
    Ok(json!({ "registry": registry, "tag": tag, "digest": digest, "imagePrefix": prefix, "gsImage": image }))
}

/// The parts of a reference.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts<'a> {
    registry: &'a str,
    prefix: &'a str,
    tag: &'a str,
    digest: &'a str,
}

impl<'a> Parts<'a> {
    /// Those of an image whose name ends as KubeVirt's does.
    fn of(image: &'a str) -> Option<Self> {
        let (tagged, digest) = image.split_once('@').unwrap_or((image, ""));
        let (registry, name) = tagged.rsplit_once('/').unwrap_or(("", tagged));
        let (name, tag) = name.split_once(':').unwrap_or((name, ""));
        let prefix = name.strip_suffix(USUAL_NAME)?;
        // Without either, no client would make a reference of them.
        (!tag.is_empty() || !digest.is_empty()).then_some(Self { registry, prefix, tag, digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client of KubeVirt makes of the answer: virtctl 1.7, and one that does not know `gsImage`.
    fn assembled(info: &Value) -> (String, String) {
        let part = |name: &str| info[name].as_str().unwrap().to_owned();
        let ending = match (part("digest"), part("tag")) {
            (digest, _) if !digest.is_empty() => format!("@{digest}"),
            (_, tag) => format!(":{tag}"),
        };
        let name = format!("{}{USUAL_NAME}{ending}", part("imagePrefix"));
        let registry = part("registry");
        let whole = if registry.is_empty() { name } else { format!("{registry}/{name}") };
        (part("gsImage"), whole)
    }

    #[test]
    fn clients_make_the_image_of_the_answer() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let images = [
            "quay.io/kubevirt/libguestfs-tools:v1.7.0".to_owned(),
            "registry.example:5000/team/my-libguestfs-tools:1".to_owned(),
            "libguestfs-tools:latest".to_owned(),
            format!("quay.io/kubevirt/libguestfs-tools@{digest}"),
        ];
        for image in images {
            assert_eq!(assembled(&info(Some(&image)).unwrap()), (image.clone(), image));
        }
    }

    #[test]
    fn an_image_of_another_name_is_answered_as_a_whole_alone() {
        for image in ["registry.example/tools/guestfs:9", "registry.example:5000/guestfs", "libguestfs-tools"] {
            let answer = info(Some(&format!(" {image}\n"))).unwrap();
            let parts = ["registry", "tag", "digest", "imagePrefix"].map(|part| answer[part].as_str().unwrap());
            assert_eq!((answer["gsImage"].as_str(), parts), (Some(image), [""; 4]));
        }
    }

    #[test]
    fn without_an_image_the_text_says_where_to_name_one() {
        for image in [None, Some(""), Some("  ")] {
            let text = info(image).unwrap_err();
            assert!(text.contains("garboard.dev/guestfs-image") && text.contains("--image"), "{text}");
        }
    }
}
