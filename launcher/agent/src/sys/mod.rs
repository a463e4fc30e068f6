//! The only unsafe code of this crate: descriptors that arrive from the kernel as plain numbers.
#![allow(unsafe_code)]

pub mod scm;
