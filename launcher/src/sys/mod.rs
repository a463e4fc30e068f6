//! The only unsafe code of this crate: descriptors that arrive from the kernel as plain numbers, what is done between
//! fork and exec, and two system calls that have no safe form.
#![allow(unsafe_code)]

pub(crate) mod capabilities;
pub(crate) mod descriptors;
pub(crate) mod fork;
pub(crate) mod landlock;
pub(crate) mod mounts;
pub(crate) mod signals;
