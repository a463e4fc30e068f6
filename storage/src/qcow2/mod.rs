//! qcow2 without trust: reads headers that strangers wrote, writes the empty images we need.
//!
//! Why own code and not `imago` or a `qemu-img` per disk: the supervisor has a budget of about 2 MiB and needs 100 bytes of
//! one header; imago is asynchronous, brings a second nix and reads whole images. `qemu-img` costs a process of about
//! 30 ms for each disk, and must itself be protected from the image. What needs the image's *content* (convert, resize,
//! repair) stays with `qemu-img`, see [`crate::image`].
//!
//! # When is an image probed?
//!
//! Guessing the format of a disk the guest can write is a hole: a guest that writes a qcow2 header naming `/etc/shadow` as
//! its backing file onto a *raw* disk is served that file at the next start. So:
//!
//! | volume | format |
//! | --- | --- |
//! | containerDisk, and images given by the operator for one | probed: content comes from the image's author, the guest only ever writes to an overlay |
//! | PersistentVolumeClaim, DataVolume, ephemeral, hostDisk | raw, always; nothing in it is interpreted |
//! | emptyDisk, overlays | qcow2, written by us, never probed |
//!
//! A probed qcow2 that names a backing file or an external data file is refused: the name is the author's choice and
//! would be opened on our host. So is one that is encrypted, marked corrupt, or whose tables lie outside the file.
//!
//! Follows QEMU's `docs/interop/qcow2.txt` and the limits of `block/qcow2.h` (7.2 to 10.0).

mod create;
mod header;
mod probe;

pub use create::{CreateError, create_empty};
pub use garboard_machine::qcow2::{CLUSTER_BYTES, MOST_VIRTUAL_BYTES, host_bytes_of_empty};
pub use header::{Header, HeaderError, MAGIC, parse_header};
pub use probe::{Format, ImageFacts, ProbeError, inspect, looks_like_qcow2, raw_facts};
