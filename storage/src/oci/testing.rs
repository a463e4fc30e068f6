//! Builders of archives and layouts for the tests of this directory.

use std::io::Write;
use std::path::Path;

use super::Digest;
use super::cache::CacheError;

/// What is done once the cache has no holder any more. Another test of this program may have started a process while a lock
/// was held; until its child has executed something, the child holds the lock, too.
pub(crate) fn when_free<T>(mut attempt: impl FnMut() -> Result<T, CacheError>) -> T {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match attempt() {
            Err(CacheError::Busy { .. }) if std::time::Instant::now() < deadline => std::thread::yield_now(),
            done => return done.unwrap(),
        }
    }
}

/// An entry for [`tar_of`].
#[derive(Debug, Clone)]
pub(crate) struct TarEntry<'a> {
    pub(crate) path: &'a str,
    pub(crate) flag: u8,
    pub(crate) content: &'a [u8],
    /// The header's length, where it is wrong.
    pub(crate) claimed_bytes: Option<u64>,
}

impl<'a> TarEntry<'a> {
    pub(crate) fn file(path: &'a str, content: &'a [u8]) -> Self {
        Self { path, flag: b'0', content, claimed_bytes: None }
    }

    pub(crate) fn of_kind(path: &'a str, flag: u8) -> Self {
        Self { path, flag, content: &[], claimed_bytes: None }
    }
}

/// A ustar archive with exactly these entries, sane or not.
pub(crate) fn tar_of(entries: &[TarEntry<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for entry in entries {
        let mut header = [0_u8; 512];
        header[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        let bytes = entry.claimed_bytes.unwrap_or(entry.content.len() as u64);
        if bytes < 1 << 33 {
            header[124..135].copy_from_slice(format!("{bytes:011o}").as_bytes());
        } else {
            header[124] = 0x80;
            header[128..136].copy_from_slice(&bytes.to_be_bytes());
        }
        header[156] = entry.flag;
        header[257..263].copy_from_slice(b"ustar\0");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(header);
        tar.extend(entry.content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Writes an OCI layout with one image of these layers (bottom first) and returns its manifest's digest.
pub(crate) fn layout_of(root: &Path, name: &str, layers: &[Vec<u8>]) -> Digest {
    let blobs = root.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(root.join("blobs").join(digest.place()), bytes).unwrap();
        digest
    };
    let described: Vec<serde_json::Value> = layers
        .iter()
        .map(|layer| {
            serde_json::json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": put(layer).to_string(),
                "size": layer.len(),
            })
        })
        .collect();
    let config = br#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
    let manifest = serde_json::to_vec(&serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": put(config).to_string(),
            "size": config.len(),
        },
        "layers": described,
    }))
    .unwrap();
    let digest = put(&manifest);
    let index = serde_json::json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest.to_string(),
            "size": manifest.len(),
            "annotations": { "org.opencontainers.image.ref.name": name },
        }],
    });
    std::fs::write(root.join("index.json"), index.to_string()).unwrap();
    std::fs::write(root.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    digest
}
