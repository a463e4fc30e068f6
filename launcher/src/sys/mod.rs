//! The only unsafe code of this crate: descriptors that arrive from the kernel as plain numbers, and what is done between
//! fork and exec.
#![allow(unsafe_code)]

pub(crate) mod descriptors;
pub(crate) mod scm;
pub(crate) mod signals;
