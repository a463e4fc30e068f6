//! What needs an image's content rather than its header: the seam to `qemu-img`.
//!
//! Empty images and overlays are written by [`crate::qcow2::create_empty`]; header checks are [`crate::qcow2::inspect`].
//! `qemu-img` is left with converting, resizing and checking, because these walk tables that only QEMU's own code
//! should interpret.
//!
//! Rules of the seam: images travel as open descriptors, never as names; the format is always given, never guessed; a
//! qcow2 is judged by our own header reader first, so that the tool never sees an image that names another file.

mod bounded;
mod qemu_img;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use bounded::{RunError, ToolLimits};
pub use qemu_img::QemuImg;

use std::fs::File;
use std::io;

use crate::qcow2::{Format, ImageFacts, ProbeError};

/// Why work on an image failed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Our own reader refused the image, so the tool never saw it.
    #[error("the image is not passed to qemu-img; see the cause")]
    Unacceptable(#[source] ProbeError),
    /// The tool did not do its work.
    #[error("could not {attempt} the image")]
    Tool {
        /// What was attempted.
        attempt: &'static str,
        /// How it ended.
        #[source]
        source: RunError,
    },
    /// The tool answered something that is no answer.
    #[error("qemu-img gave an unexpected answer; check that a QEMU of 7.2 or newer is installed")]
    Answer {
        /// What was wrong with its JSON.
        #[source]
        source: serde_json::Error,
    },
    /// Shrinking loses what the guest wrote.
    #[error("a disk of {have_bytes} bytes is not shrunk to {wanted_bytes}; ask for at least its present size")]
    Shrinks {
        /// Present size in bytes.
        have_bytes: u64,
        /// Size asked for in bytes.
        wanted_bytes: u64,
    },
    /// A size no disk can have.
    #[error("a disk of {wanted_bytes} bytes cannot be made; choose a multiple of 512 up to 64 TiB")]
    Size {
        /// Size asked for in bytes.
        wanted_bytes: u64,
    },
    /// Reading or writing a descriptor failed.
    #[error("could not use the image's descriptor; see the cause")]
    Descriptor {
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// An open image and its format. The file must be open for what is done to it.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// The image.
    pub file: &'a File,
    /// Its format, known beforehand.
    pub format: Format,
}

/// The state of an image's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// No errors.
    Sound,
    /// Clusters are marked used and are not: space is lost, no content.
    Leaks,
    /// Content may be lost.
    Damaged,
}

/// Work on images; done by `qemu-img`, or in memory by `testing::FakeImages`.
pub trait Images {
    /// Format and size, as QEMU sees them.
    ///
    /// # Errors
    /// [`ImageError`].
    fn facts(&self, image: Image<'_>) -> Result<ImageFacts, ImageError>;

    /// Makes `file` an empty image of `virtual_bytes`, whatever it held.
    ///
    /// # Errors
    /// [`ImageError::Size`] and what the tool gives.
    fn create(&self, image: Image<'_>, virtual_bytes: u64) -> Result<(), ImageError>;

    /// Grows an image to `virtual_bytes`. The same size is fine; a smaller one is refused.
    ///
    /// # Errors
    /// [`ImageError::Shrinks`], [`ImageError::Size`] and what the tool gives.
    fn grow(&self, image: Image<'_>, virtual_bytes: u64) -> Result<(), ImageError>;

    /// Copies the content of `from` into `to`, which becomes an image of `to`'s format without unused space.
    ///
    /// # Errors
    /// [`ImageError`].
    fn convert(&self, from: Image<'_>, to: Image<'_>) -> Result<(), ImageError>;

    /// Checks the tables of a qcow2 image without repairing; a raw image is always sound.
    ///
    /// # Errors
    /// [`ImageError`].
    fn check(&self, image: Image<'_>) -> Result<Consistency, ImageError>;
}

/// Refuses what no disk can be.
fn reasonable(wanted_bytes: u64) -> Result<(), ImageError> {
    if wanted_bytes == 0 || wanted_bytes > crate::qcow2::MOST_VIRTUAL_BYTES || !wanted_bytes.is_multiple_of(512) {
        return Err(ImageError::Size { wanted_bytes });
    }
    Ok(())
}
