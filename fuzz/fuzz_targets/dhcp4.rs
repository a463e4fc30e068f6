//! The target `dhcp4` for libFuzzer; what it does is in `src/dhcp.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| garboard_fuzz::dhcp::dhcp4(data));
