//! The only unsafe code of this crate: descriptors that this process was started with are plain numbers to it, and `pidfd_open(2)`
//! and `pidfd_send_signal(2)` are wrapped by no crate that we use.
#![allow(unsafe_code)]

pub(crate) mod descriptors;
pub(crate) mod pidfd;
