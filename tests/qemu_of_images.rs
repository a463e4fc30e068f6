//! Where `scripts/fetch-qemu10` puts the QEMU that the images have. Tests of several crates include this file.

use std::path::PathBuf;

/// Its directory; it may not be there. The version is that of `scripts/lib.sh`.
pub(crate) fn directory() -> PathBuf {
    let mut lines = include_str!("../scripts/lib.sh").lines();
    let version =
        lines.find_map(|line| line.strip_prefix("export qemu_version=")).expect("scripts/lib.sh has a version");
    let cache = std::env::var_os("GARBOARD_CACHE").map(PathBuf::from);
    cache.unwrap_or_else(|| "/var/cache/garboard-test".into()).join(format!("qemu-{version}"))
}
