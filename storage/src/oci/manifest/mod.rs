//! Manifests and indexes: which layers an image has, and which of several images fits this machine.

use oci_spec::image::{Arch, Descriptor, ImageIndex, ImageManifest, Os};

use super::ImageLimits;
use super::digest::{Digest, DigestError};

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// No JSON, or of another shape.
    #[error("the manifest of the image cannot be read; push or build the image again")]
    Shape(#[source] serde_json::Error),
    /// Neither layers nor images in it.
    #[error("the image's manifest is of an old or unknown kind; push it again with a current tool")]
    Kind,
    /// A digest in it is none.
    #[error("the manifest of the image has a descriptor that cannot be parsed")]
    Digest(#[source] DigestError),
    /// No image for this machine.
    #[error("the image is not made for linux/{wanted}, only for {offered}; use another image")]
    Platform {
        /// What this machine is.
        wanted: String,
        /// What there is.
        offered: String,
    },
    /// Several images, and no name selects one.
    #[error("there are several images ({names}); name one, as oci:DIRECTORY:NAME")]
    Ambiguous {
        /// Their names, cut after a few.
        names: String,
    },
    /// No image of that name.
    #[error("there is no image `{name}`, only {names}; check the name behind the path")]
    NoSuchName {
        /// The name asked for.
        name: String,
        /// Names there are, cut after a few.
        names: String,
    },
    /// Indexes within indexes.
    #[error("the image's indexes are nested too deeply; build it again")]
    TooDeep,
    /// More than [`ImageLimits::layers`].
    #[error("the image has {layers} layers, more than the {most} allowed; flatten it")]
    TooManyLayers {
        /// How many.
        layers: usize,
        /// The limit.
        most: usize,
    },
    /// A layer beyond [`ImageLimits::layer_bytes`].
    #[error("a layer of the image has {bytes} bytes, more than the {most_bytes} allowed; make the disk smaller")]
    LayerTooLarge {
        /// Its size as transferred.
        bytes: u64,
        /// The limit.
        most_bytes: u64,
    },
    /// A manifest beyond [`ImageLimits::manifest_bytes`].
    #[error("the manifest of the image has {bytes} bytes, more than the {most_bytes} allowed; build the image again")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        most_bytes: u64,
    },
    /// An encrypted or foreign layer.
    #[error(
        "a layer of the image is of the kind {media_type}, which is not supported; push it as a plain or packed tar"
    )]
    LayerKind {
        /// Its media type, escaped and cut.
        media_type: String,
    },
}

/// Names of images in an index: what tools write there, the last also by containerd.
const NAME_ANNOTATIONS: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];
/// Marks entries that describe another image instead of being one.
const ATTESTATION_ANNOTATION: &str = "vnd.docker.reference.type";
/// Names shown in a refusal.
const MOST_NAMES: usize = 8;

/// Content to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
}

/// A manifest, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Document {
    /// An image: its layers, topmost first.
    Image(Vec<Part>),
    /// A choice of images.
    Index(Vec<Choice>),
}

/// One image of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) part: Part,
    /// `linux/amd64`, if it states one.
    platform: Option<(Os, Arch)>,
    name: Option<String>,
}

/// Understands a manifest or index, whose digest was checked before.
pub(super) fn parse(bytes: &[u8], limits: &ImageLimits) -> Result<Document, ManifestError> {
    let length = bytes.len() as u64;
    if length > limits.manifest_bytes {
        return Err(ManifestError::TooLarge { bytes: length, most_bytes: limits.manifest_bytes });
    }
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(ManifestError::Shape)?;
    if value.get("manifests").is_some() {
        let index: ImageIndex = serde_json::from_value(value).map_err(ManifestError::Shape)?;
        let choices = index.manifests().iter().filter(|entry| !is_attestation(entry)).map(choice);
        return choices.collect::<Result<_, _>>().map(Document::Index);
    }
    if value.get("layers").is_none() {
        return Err(ManifestError::Kind);
    }
    let manifest: ImageManifest = serde_json::from_value(value).map_err(ManifestError::Shape)?;
    let layers = manifest.layers();
    if layers.len() > limits.layers {
        return Err(ManifestError::TooManyLayers { layers: layers.len(), most: limits.layers });
    }
    layers.iter().rev().map(|layer| layer_part(layer, limits)).collect::<Result<_, _>>().map(Document::Image)
}

fn layer_part(layer: &Descriptor, limits: &ImageLimits) -> Result<Part, ManifestError> {
    let media_type = layer.media_type().to_string();
    if media_type.contains("encrypted") || media_type.contains("foreign") || media_type.contains("nondistributable") {
        return Err(ManifestError::LayerKind { media_type: crate::beneath::shown(&media_type) });
    }
    if layer.size() > limits.layer_bytes {
        return Err(ManifestError::LayerTooLarge { bytes: layer.size(), most_bytes: limits.layer_bytes });
    }
    part(layer)
}

fn part(descriptor: &Descriptor) -> Result<Part, ManifestError> {
    let digest = Digest::parse(descriptor.digest().as_ref()).map_err(ManifestError::Digest)?;
    Ok(Part { digest, bytes: descriptor.size() })
}

fn is_attestation(entry: &Descriptor) -> bool {
    entry.annotations().as_ref().is_some_and(|annotations| annotations.contains_key(ATTESTATION_ANNOTATION))
}

fn choice(entry: &Descriptor) -> Result<Choice, ManifestError> {
    let platform = entry.platform().as_ref().map(|platform| (platform.os().clone(), platform.architecture().clone()));
    let name = NAME_ANNOTATIONS.iter().find_map(|key| entry.annotations().as_ref()?.get(*key).cloned());
    Ok(Choice { part: part(entry)?, platform, name })
}

/// The image for linux on an architecture; the only one, if it states no platforms.
pub(super) fn for_platform(choices: &[Choice], architecture: &str) -> Result<Part, ManifestError> {
    let fits = |choice: &&Choice| {
        choice.platform.as_ref().is_some_and(|(os, arch)| *os == Os::Linux && arch.to_string() == architecture)
    };
    if let Some(choice) = choices.iter().find(fits) {
        return Ok(choice.part.clone());
    }
    match choices {
        [Choice { platform: None, part, .. }] => Ok(part.clone()),
        _ => {
            let shown = choices.iter().take(MOST_NAMES).map(|choice| match &choice.platform {
                Some((os, arch)) => format!("{os}/{arch}"),
                None => "an unnamed platform".to_owned(),
            });
            let offered = crate::beneath::shown(&shown.collect::<Vec<_>>().join(", "));
            let offered = if offered.is_empty() { "nothing".to_owned() } else { offered };
            Err(ManifestError::Platform { wanted: architecture.to_owned(), offered })
        }
    }
}

/// The image of a layout: by name, or the only one. Several images that differ in platform only are one.
pub(super) fn by_name(choices: &[Choice], name: Option<&str>, architecture: &str) -> Result<Part, ManifestError> {
    let names = || {
        let known = choices.iter().map(|choice| choice.name.as_deref().unwrap_or("one without a name"));
        let names = crate::beneath::shown(&known.take(MOST_NAMES).collect::<Vec<_>>().join(", "));
        if names.is_empty() { "none at all".to_owned() } else { names }
    };
    let named: Vec<Choice> = match name {
        Some(name) => choices.iter().filter(|choice| choice.name.as_deref() == Some(name)).cloned().collect(),
        None => choices.to_vec(),
    };
    match (named.as_slice(), name) {
        ([], Some(name)) => Err(ManifestError::NoSuchName { name: crate::beneath::shown(name), names: names() }),
        ([], None) => Err(ManifestError::NoSuchName { name: String::new(), names: names() }),
        // Only one: its own manifest states its platform, as tools often state none here.
        ([only], _) if only.platform.is_none() => Ok(only.part.clone()),
        (several, _)
            if several.iter().all(|choice| choice.name == several.first().and_then(|first| first.name.clone())) =>
        {
            for_platform(several, architecture)
        }
        _ => Err(ManifestError::Ambiguous { names: names() }),
    }
}

#[cfg(test)]
mod tests;
