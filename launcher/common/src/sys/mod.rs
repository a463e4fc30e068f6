//! The only unsafe code of this crate: descriptors that this process was started with are plain numbers to it.
#![allow(unsafe_code)]

pub(crate) mod descriptors;
