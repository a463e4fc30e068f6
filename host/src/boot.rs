//! Which boot of which kernel this is: what answers are filed under that hold until the next boot.

use std::fmt;

use crate::root::HostRoot;

/// One boot of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootId(String);

impl BootId {
    /// Reads the kernel's random boot ID and its release. Where there is no boot ID the answer is different every time,
    /// so that nothing filed under it is found again.
    #[must_use]
    pub fn read(root: &HostRoot) -> Self {
        let id = root.read_trimmed("/proc/sys/kernel/random/boot_id");
        let release = root.read_trimmed("/proc/sys/kernel/osrelease").unwrap_or_default();
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            format!("unknown at {}.{:09}", now.as_secs(), now.subsec_nanos())
        });
        Self(format!("{id} {release}"))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    #[test]
    fn one_boot_has_one_id_and_no_id_is_never_the_same() {
        let (_directory, root) = host_of(&[("/proc/sys/kernel/random/boot_id", "abc\n")]);
        assert_eq!(BootId::read(&root), BootId::read(&root));
        let (_directory, empty) = host_of(&[]);
        assert_ne!(BootId::read(&empty), BootId::read(&empty));
    }
}
