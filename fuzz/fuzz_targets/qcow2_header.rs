//! The target `qcow2_header` for libFuzzer; what it does is in `src/qcow2.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| garboard_fuzz::qcow2::qcow2_header(data));
