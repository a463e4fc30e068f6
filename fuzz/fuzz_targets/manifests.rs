//! The target `manifests` for libFuzzer; what it does is in `src/manifests.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| garboard_fuzz::manifests::manifests(data));
