//! The target `broker_input` for libFuzzer; what it does is in `src/qmp.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| garboard_fuzz::qmp::broker_input(data));
