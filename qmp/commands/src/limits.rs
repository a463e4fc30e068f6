//! How long a command may take: one table, for the supervisor's monitor. Three other clients of QMP have a limit of their own: PID 1's
//! last resort (`launcher/src/init/last_resort.rs`), a QEMU that is asked what it offers (`host/src/qemu/session.rs`), and the greeting
//! (`qmp/src/connection/mod.rs`).
//!
//! A limit protects the caller, not QEMU: a command that ran out of time may still take effect, and its late reply
//! is dropped. The classes are generous because QEMU answers nothing while its main loop is busy, for instance with a
//! slow file server or on an overloaded machine; an idle QEMU 7.2 answers in 0.2 to 0.5 ms.

use std::time::Duration;

/// How much work a command is for QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandClass {
    /// Memory only. Whatever the table does not name.
    Quick,
    /// Opens, closes or flushes images, plugs devices, waits for the other end of something.
    Storage,
    /// Resets a passed-through device, allocates guest memory, writes memory out.
    Slow,
}

impl CommandClass {
    /// The class of the commands that may take longest.
    pub const LONGEST: Self = Self::Slow;

    /// The class of a command.
    pub fn of(command: &str) -> Self {
        CLASSES.iter().find(|(name, _)| *name == command).map_or(Self::Quick, |(_, class)| *class)
    }

    /// The time limit: 10 s, 30 s or 120 s.
    pub const fn limit(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(10),
            Self::Storage => Duration::from_secs(30),
            Self::Slow => Duration::from_secs(120),
        }
    }
}

/// Every command that is not quick.
const CLASSES: &[(&str, CommandClass)] = &[
    ("block_resize", CommandClass::Storage),
    ("blockdev-add", CommandClass::Storage),
    ("blockdev-backup", CommandClass::Storage),
    ("blockdev-change-medium", CommandClass::Storage),
    ("blockdev-close-tray", CommandClass::Storage),
    ("blockdev-del", CommandClass::Storage),
    ("blockdev-insert-medium", CommandClass::Storage),
    ("blockdev-mirror", CommandClass::Storage),
    ("blockdev-open-tray", CommandClass::Storage),
    ("blockdev-remove-medium", CommandClass::Storage),
    ("blockdev-reopen", CommandClass::Storage),
    ("blockdev-snapshot", CommandClass::Storage),
    ("blockdev-snapshot-delete-internal-sync", CommandClass::Storage),
    ("blockdev-snapshot-internal-sync", CommandClass::Storage),
    ("blockdev-snapshot-sync", CommandClass::Storage),
    ("block-commit", CommandClass::Storage),
    ("block-dirty-bitmap-merge", CommandClass::Storage),
    ("block-export-add", CommandClass::Storage),
    ("block-job-complete", CommandClass::Storage),
    ("block-job-finalize", CommandClass::Storage),
    ("block-stream", CommandClass::Storage),
    ("change-backing-file", CommandClass::Storage),
    ("chardev-add", CommandClass::Storage),
    ("cont", CommandClass::Storage),
    ("device_add", CommandClass::Slow),
    ("device_del", CommandClass::Storage),
    ("drive-backup", CommandClass::Storage),
    ("drive-mirror", CommandClass::Storage),
    ("dump-guest-memory", CommandClass::Slow),
    ("eject", CommandClass::Storage),
    ("human-monitor-command", CommandClass::Slow),
    ("job-complete", CommandClass::Storage),
    ("job-finalize", CommandClass::Storage),
    ("memsave", CommandClass::Slow),
    ("migrate", CommandClass::Storage),
    ("migrate-incoming", CommandClass::Storage),
    ("migrate-recover", CommandClass::Storage),
    ("nbd-server-start", CommandClass::Storage),
    ("nbd-server-stop", CommandClass::Storage),
    ("netdev_add", CommandClass::Storage),
    ("netdev_del", CommandClass::Storage),
    ("object-add", CommandClass::Slow),
    ("object-del", CommandClass::Storage),
    ("pmemsave", CommandClass::Slow),
    ("query-qmp-schema", CommandClass::Storage),
    ("screendump", CommandClass::Storage),
    ("snapshot-delete", CommandClass::Storage),
    ("snapshot-load", CommandClass::Storage),
    ("snapshot-save", CommandClass::Storage),
    ("stop", CommandClass::Storage),
    ("system_reset", CommandClass::Storage),
    ("transaction", CommandClass::Storage),
    ("x-exit-preconfig", CommandClass::Slow),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_is_listed_twice() {
        let mut names: Vec<_> = CLASSES.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), CLASSES.len());
    }

    #[test]
    fn unknown_commands_are_quick_and_slow_ones_get_more_time() {
        assert_eq!(CommandClass::of("query-status"), CommandClass::Quick);
        assert!(CommandClass::of("device_add").limit() > CommandClass::of("blockdev-add").limit());
        assert!(CommandClass::of("blockdev-add").limit() > CommandClass::of("no-such-command").limit());
    }
}
