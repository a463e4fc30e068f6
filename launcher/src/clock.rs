//! The two clocks of a machine, read: the one that cannot be set and that goes on while the host sleeps (`CLOCK_BOOTTIME`,
//! `clock_gettime(2)`), and the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::vm::Now;

/// Where the kernel names the boot it is in (`proc_sys_kernel(5)`): clocks of two boots do not compare.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// This moment.
#[must_use]
pub fn now() -> Now {
    Now { boot_ms: boot_ms(), wall_ms: now_ms() }
}

/// Milliseconds since the host was booted. Without that clock, which every kernel since 2.6.39 has, nothing would ever be
/// due, so the time of day is used.
#[must_use]
pub fn boot_ms() -> i64 {
    match clock_gettime(ClockId::CLOCK_BOOTTIME) {
        Ok(time) => time.tv_sec().saturating_mul(1000).saturating_add(time.tv_nsec() / 1_000_000),
        Err(_) => now_ms(),
    }
}

/// Milliseconds since 1970 by the host's clock.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The boot this process runs in; empty where the kernel does not report it.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_go() {
        assert!(boot_ms() > 0 && now_ms() > 1_700_000_000_000);
        assert!(!boot_id().is_empty());
    }
}
