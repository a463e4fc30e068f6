//! Landlock: whether a process of this kernel can give up parts of the file system for good.

use nix::errno::Errno;

/// What the kernel answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landlock {
    /// Version of the interface, 1 and up (`Documentation/userspace-api/landlock.rst` lists what each adds).
    Version(u32),
    /// Built in, but not among the active security modules.
    Off,
    /// Not built in, or older than Linux 5.13.
    Absent,
}

impl Landlock {
    /// Asks this kernel.
    #[must_use]
    pub fn probe() -> Self {
        match crate::sys::landlock::version() {
            Ok(version) => Self::Version(version),
            Err(Errno::EOPNOTSUPP) => Self::Off,
            Err(_) => Self::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_agrees_with_the_list_of_active_security_modules() {
        let Ok(active) = std::fs::read_to_string("/sys/kernel/security/lsm") else {
            eprintln!("skipped: securityfs is not mounted");
            return;
        };
        let listed = active.split(',').any(|name| name.trim() == "landlock");
        assert_eq!(matches!(Landlock::probe(), Landlock::Version(1..)), listed, "{active}");
    }
}
