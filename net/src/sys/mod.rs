//! The calls no safe crate wraps, each block with the reason why it is sound. Nothing here decides anything.
#![allow(unsafe_code)]

pub(crate) mod netns;
#[cfg(test)]
pub(crate) mod process;
#[cfg(feature = "plumbing")]
pub(crate) mod socket;
#[cfg(feature = "plumbing")]
pub(crate) mod tap;
