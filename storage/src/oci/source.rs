//! Where an image comes from: a registry unless the operator names another source.

use std::path::{Path, PathBuf};

use oci_client::Reference;

/// Why a reference is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No reference.
    #[error("`{text}` is not an image reference; write it as registry/name:tag, or oci:DIRECTORY, or oci-archive:FILE")]
    Reference {
        /// The text, escaped and cut.
        text: String,
    },
    /// Nothing behind the colon.
    #[error("`{text}` names no path; write oci:DIRECTORY[:NAME] or oci-archive:FILE[:NAME]")]
    Path {
        /// The text, escaped and cut.
        text: String,
    },
}

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// In a registry.
    Registry(Reference),
    /// In an OCI layout: a directory with `index.json`.
    Layout {
        /// The directory.
        path: PathBuf,
        /// Which of its images; not needed when there is one.
        name: Option<String>,
    },
    /// In an OCI layout inside a tar archive.
    Archive {
        /// The archive.
        path: PathBuf,
        /// Which of its images; not needed when there is one.
        name: Option<String>,
    },
    /// A disk file or device in place of the image.
    File(PathBuf),
    /// A directory in place of the unpacked image.
    Unpacked(PathBuf),
}

impl ImageSource {
    /// Reads a reference of a manifest: `oci:DIRECTORY[:NAME]`, `oci-archive:FILE[:NAME]`, or one of a registry.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        if let Some(rest) = text.strip_prefix("oci-archive:") {
            let (path, name) = path_and_name(text, rest)?;
            return Ok(Self::Archive { path, name });
        }
        if let Some(rest) = text.strip_prefix("oci:") {
            let (path, name) = path_and_name(text, rest)?;
            return Ok(Self::Layout { path, name });
        }
        let text = text.strip_prefix("docker://").unwrap_or(text);
        let reference =
            Reference::try_from(text).map_err(|_| SourceError::Reference { text: crate::beneath::shown(text) })?;
        Ok(Self::Registry(reference))
    }

    /// Reads the right side of the operator's `--image REF=PATH`: any of [`ImageSource::parse`] with its prefix, else a
    /// path. Looks at the path: a directory with `index.json` is a layout, another one an unpacked image.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn of_operator(text: &str) -> Result<Self, SourceError> {
        if ["oci:", "oci-archive:", "docker://"].iter().any(|prefix| text.starts_with(prefix)) {
            return Self::parse(text);
        }
        if text.is_empty() {
            return Err(SourceError::Path { text: String::new() });
        }
        let path = PathBuf::from(text);
        Ok(match (path.is_dir(), path.join("index.json").is_file()) {
            (true, true) => Self::Layout { path, name: None },
            (true, false) => Self::Unpacked(path),
            (false, _) => Self::File(path),
        })
    }
}

impl std::fmt::Display for ImageSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = |f: &mut std::fmt::Formatter<'_>, kind: &str, path: &Path, name: &Option<String>| match name {
            Some(name) => write!(f, "{kind}:{}:{name}", path.display()),
            None => write!(f, "{kind}:{}", path.display()),
        };
        match self {
            Self::Registry(reference) => write!(f, "{reference}"),
            Self::Layout { path, name } => named(f, "oci", path, name),
            Self::Archive { path, name } => named(f, "oci-archive", path, name),
            Self::File(path) | Self::Unpacked(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A path, and the name behind the first colon that follows it. The name itself may contain colons: `oci:/dir:demo:1`.
fn path_and_name(text: &str, rest: &str) -> Result<(PathBuf, Option<String>), SourceError> {
    let (path, name) = match rest.split_once(':') {
        Some((path, name)) if !name.is_empty() => (path, Some(name.to_owned())),
        Some((path, _)) => (path, None),
        None => (rest, None),
    };
    if path.is_empty() {
        return Err(SourceError::Path { text: crate::beneath::shown(text) });
    }
    Ok((PathBuf::from(path), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_registries_are_completed() {
        let whole = |text: &str| ImageSource::parse(text).unwrap().to_string();
        assert_eq!(whole("alpine"), "docker.io/library/alpine:latest");
        assert_eq!(whole("quay.io/containerdisks/fedora:41"), "quay.io/containerdisks/fedora:41");
        assert_eq!(whole("docker://localhost:5000/a"), "localhost:5000/a:latest");
        let pinned = format!("quay.io/a@sha256:{}", "0".repeat(64));
        assert_eq!(whole(&pinned), pinned);
        for text in ["", "quay.io/UPPER", "a b", "quay.io/a:", "../../etc/passwd"] {
            assert!(matches!(ImageSource::parse(text), Err(SourceError::Reference { .. })), "{text}");
        }
    }

    #[test]
    fn layouts_and_archives_have_a_path_and_maybe_a_name() {
        let layout =
            |path: &str, name: Option<&str>| ImageSource::Layout { path: path.into(), name: name.map(str::to_owned) };
        assert_eq!(ImageSource::parse("oci:/a/b").unwrap(), layout("/a/b", None));
        assert_eq!(ImageSource::parse("oci:/a/b:demo:1").unwrap(), layout("/a/b", Some("demo:1")));
        assert_eq!(
            ImageSource::parse("oci-archive:a.tar:x").unwrap(),
            ImageSource::Archive { path: "a.tar".into(), name: Some("x".into()) }
        );
        assert!(matches!(ImageSource::parse("oci::x"), Err(SourceError::Path { .. })));
    }

    #[test]
    fn an_operators_path_is_taken_for_what_it_is() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().to_str().unwrap();
        assert_eq!(ImageSource::of_operator(path).unwrap(), ImageSource::Unpacked(path.into()));
        std::fs::write(room.path().join("index.json"), "{}").unwrap();
        assert_eq!(ImageSource::of_operator(path).unwrap(), ImageSource::Layout { path: path.into(), name: None });
        assert_eq!(ImageSource::of_operator("/x/disk.qcow2").unwrap(), ImageSource::File("/x/disk.qcow2".into()));
    }
}
