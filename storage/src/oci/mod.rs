//! Container disks and boot kernels out of container images: from a registry, an OCI layout, an archive or a file.
//!
//! Nothing is unpacked. An image is a stack of tar archives; the wanted files are copied out of the stream into a cache
//! that is addressed by content, under names of our own making. No name of a stranger ever becomes a path, so there is
//! nothing to escape from: names are compared, not followed.
//!
//! ```text
//!  reference ─► manifest (digest) ─► layers, topmost first ─► wanted files ─► CACHE/files/sha256/…  ─► paths
//!               registry: HTTPS       download, resumed, verified   sparse, verified     0644, shared by all VMs
//!               layout:   file        read, verified
//! ```
//!
//! | stranger | may lie about | what holds |
//! | --- | --- | --- |
//! | registry | any content | everything is checked against its digest before it gets its final name |
//! | image's author | names, sizes, compression | bounded tar reader, limits on size and ratio ([`ImageLimits`]), links are never followed |
//! | network | to be there | downloads go on where they were cut, within one run and across runs |
//!
//! Not for: OCI artifacts whose layers are no tar archives, encrypted layers, `credHelpers`; each is refused by name.

mod cache;
mod credentials;
mod digest;
mod extract;
mod fetch;
mod layout;
mod manifest;
mod pull;
mod record;
mod source;
mod tar;
mod unpack;

pub use cache::{Cache, CacheError};
pub use credentials::{Credential, Credentials, CredentialsError};
pub use digest::{Digest, DigestError};
pub use extract::{ExtractError, Wanted};
pub use fetch::{FetchError, Fetched, OnProgress, Progress, PullPolicy, Request, Retry, WantedFiles, fetch};
pub use layout::LayoutError;
pub use manifest::ManifestError;
pub use pull::PullError;
pub use record::{FileRecord, ImageSummary, Pruned};
pub use source::{ImageSource, SourceError};
pub use tar::TarError;

/// What an image may cost. The defaults suit operating system images; a caller may set others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of a manifest or index: 4 MiB, as registries themselves limit them.
    pub manifest_bytes: u64,
    /// Layers of an image.
    pub layers: usize,
    /// Bytes of one layer as it is transferred.
    pub layer_bytes: u64,
    /// Bytes of one layer unpacked.
    pub unpacked_bytes: u64,
    /// How many times larger a layer may become. gzip cannot exceed 1032; zstd can, for disks of mostly zeros.
    pub ratio: u64,
    /// Unpacked bytes that are fine whatever the ratio.
    pub ratio_free_bytes: u64,
    /// Files kept of one image.
    pub files: usize,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self {
            manifest_bytes: 4 << 20,
            layers: 256,
            layer_bytes: 256 << 30,
            unpacked_bytes: 2 << 40,
            ratio: 1100,
            ratio_free_bytes: 4 << 30,
            files: 64,
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
