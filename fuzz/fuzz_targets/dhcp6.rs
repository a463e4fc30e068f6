//! The target `dhcp6` for libFuzzer; what it does is in `src/dhcp.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| garboard_fuzz::dhcp::dhcp6(data));
