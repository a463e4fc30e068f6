//! Disks as descriptors: images, overlays, seed media, OCI images.
//!
//! Everything a guest reads or writes is opened (or made) here and handed to QEMU as a descriptor; QEMU opens no path.
//!
//! ```text
//!  manifest               here                                     QEMU gets
//!  containerDisk   ──► oci (CLI only) ──► source::container_disk ──► base (read-only) + overlay
//!  PVC, hostDisk   ──────────────────► source::{pvc,host_disk} ───► raw file or device
//!  emptyDisk       ──────────────────► source::empty_disk ────────► qcow2, written by qcow2::create_empty
//!  cloudInit…      ──► seed ──► iso ──► source::disc ─────────────► sealed memory file
//!  configMap, …    ──► iso ───────────► source::disc ─────────────► sealed memory file
//! ```
//!
//! What comes from outside is hostile: image headers, archives, registries, names in manifests, contents of volumes. Each
//! module documents what it bounds.
//!
//! Functions block; the supervisor calls them before the guest runs, or on a blocking thread. Only pulling from a registry
//! is asynchronous, and only there is TLS: feature `registry`, which the launcher leaves out.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::wildcard_enum_match_arm, clippy::type_complexity, reason = "tests panic on the rest"))]

pub mod beneath;
pub mod block_size;
pub mod direct;
pub mod directory;
pub mod image;
pub mod iso;
#[cfg(feature = "registry")]
pub mod oci;
pub mod open;
pub mod preflight;
pub mod qcow2;
pub mod seed;
pub mod source;
