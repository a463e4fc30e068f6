//! Finds out what an image file is. Only for images that no guest can write: see the table in [`super`].

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::uio::pread;

use super::{Header, HeaderError, MAGIC, MOST_VIRTUAL_BYTES, parse_header};

/// The formats a disk may have; QEMU's driver names are in [`Format::driver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Bytes as they are.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

impl Format {
    /// The name of the block driver.
    pub fn driver(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// What is known of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageFacts {
    /// Its format.
    pub format: Format,
    /// Size of the disk the guest sees, in bytes; a multiple of 512, as QEMU rounds it.
    pub virtual_bytes: u64,
}

/// Why an image is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// An empty file.
    #[error("the image is empty; put a raw or qcow2 disk there")]
    Empty,
    /// A format we do not serve.
    #[error("the image is {found}; convert it to raw or qcow2 first, for example with {remedy}")]
    Unsupported {
        /// What it is.
        found: &'static str,
        /// A command that helps.
        remedy: &'static str,
    },
    /// Larger than [`MOST_VIRTUAL_BYTES`].
    #[error(
        "the image has {virtual_bytes} bytes; at most {MOST_VIRTUAL_BYTES} (64 TiB) are supported, make it smaller"
    )]
    TooLarge {
        /// Its size.
        virtual_bytes: u64,
    },
    /// qcow2, and not acceptable.
    #[error("the qcow2 image cannot be used")]
    Qcow2(#[source] HeaderError),
    /// Reading failed.
    #[error("could not read the image; see the cause")]
    Read {
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
}

/// First bytes of files that are disk images, or packed ones, and not for us.
const FOREIGN: [(&[u8], &str, &str); 9] = [
    (b"KDMV", "a VMDK image", "`qemu-img convert -O qcow2`"),
    (b"# Disk DescriptorFile", "a VMDK descriptor", "`qemu-img convert -O qcow2`"),
    (b"vhdxfile", "a VHDX image", "`qemu-img convert -O qcow2`"),
    (b"conectix", "a VHD image", "`qemu-img convert -O qcow2`"),
    (b"QED\0", "a QED image", "`qemu-img convert -O qcow2`"),
    (b"\x1f\x8b", "packed with gzip", "`gunzip`"),
    (b"\xfd7zXZ\0", "packed with xz", "`unxz`"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "`unzstd`"),
    (b"BZh", "packed with bzip2", "`bunzip2`"),
];
/// VirtualBox puts its mark behind a text of 64 bytes.
const VDI: (usize, [u8; 4]) = (0x40, [0x7f, 0x10, 0xda, 0xbe]);

/// Distinguishes raw from qcow2 and checks the latter's header. `file_bytes` is the length of the file.
///
/// # Errors
/// [`ProbeError`]: unreadable, empty, of a foreign format, or a qcow2 that is not acceptable.
pub fn inspect(image: impl AsFd, file_bytes: u64) -> Result<ImageFacts, ProbeError> {
    let image = image.as_fd();
    if file_bytes == 0 {
        return Err(ProbeError::Empty);
    }
    let start = head(image, 512)?;
    if start.starts_with(&MAGIC) {
        let Header { virtual_bytes, .. } = qcow2_header(image, &start, file_bytes).map_err(|error| match error {
            Failure::Header(header) => ProbeError::Qcow2(header),
            Failure::Probe(probe) => probe,
        })?;
        return Ok(ImageFacts { format: Format::Qcow2, virtual_bytes: whole_sectors(virtual_bytes) });
    }
    if let Some((_, found, remedy)) = FOREIGN.iter().find(|(magic, ..)| start.starts_with(magic)) {
        return Err(ProbeError::Unsupported { found, remedy });
    }
    if start.get(VDI.0..VDI.0 + VDI.1.len()) == Some(&VDI.1) {
        return Err(ProbeError::Unsupported { found: "a VDI image", remedy: "`qemu-img convert -O qcow2`" });
    }
    raw_facts(file_bytes)
}

/// The facts of an image that is raw by rule, without a look into it.
///
/// # Errors
/// [`ProbeError::Empty`] and [`ProbeError::TooLarge`].
pub fn raw_facts(file_bytes: u64) -> Result<ImageFacts, ProbeError> {
    match file_bytes {
        0 => Err(ProbeError::Empty),
        1..=MOST_VIRTUAL_BYTES => Ok(ImageFacts { format: Format::Raw, virtual_bytes: whole_sectors(file_bytes) }),
        virtual_bytes => Err(ProbeError::TooLarge { virtual_bytes }),
    }
}

/// Whether a disk that is raw by rule begins like a qcow2 image: this is a warning, because its owner probably meant to
/// convert it, and never a reason to treat it otherwise, because the guest may have written it.
pub fn looks_like_qcow2(image: impl AsFd) -> bool {
    head(image.as_fd(), 4).is_ok_and(|start| start == MAGIC)
}

fn whole_sectors(bytes: u64) -> u64 {
    bytes.next_multiple_of(512)
}

enum Failure {
    Header(HeaderError),
    Probe(ProbeError),
}

/// Reads the first cluster, whose size is in the header itself, and judges it.
fn qcow2_header(image: impl AsFd, start: &[u8], file_bytes: u64) -> Result<Header, Failure> {
    let bits = start.get(20..24).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    let cluster_bytes = match bits {
        Some(bits @ 9..=21) => 1_usize << bits,
        // Not sound, and the parser has its own error.
        _ => start.len(),
    };
    let cluster = head(image, cluster_bytes).map_err(Failure::Probe)?;
    parse_header(&cluster, file_bytes).map_err(Failure::Header)
}

/// The first bytes, fewer when the file is shorter. Independent of the descriptor's offset.
fn head(image: impl AsFd, most_bytes: usize) -> Result<Vec<u8>, ProbeError> {
    let mut bytes = vec![0; most_bytes];
    let mut have = 0;
    while have < most_bytes {
        let offset = i64::try_from(have).unwrap_or(i64::MAX);
        match pread(image.as_fd(), bytes.get_mut(have..).unwrap_or_default(), offset) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(ProbeError::Read { source: errno.into() }),
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

#[cfg(test)]
mod tests;
