//! Options about the QEMU process rather than the machine: name, sandbox, messages, what it does when the guest stops.

use crate::argv::{Arg, Argument, Options};

/// `-name`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Shown in VNC titles and in `query-name`.
    pub guest: String,
}

impl Arg for Name {
    fn argument(&self) -> Argument {
        // Thread names cost nothing and distinguish vCPUs from I/O threads in `top` and in the kernel's log.
        Argument::options("-name", Options::new().set("guest", &self.guest).set("debug-threads", true))
    }
}

/// `-sandbox`: seccomp filters QEMU installs in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sandbox;

impl Arg for Sandbox {
    fn argument(&self) -> Argument {
        let groups = ["obsolete", "elevateprivileges", "spawn", "resourcecontrol"];
        let options = groups.into_iter().fold(Options::led_by("on"), |options, group| options.set(group, "deny"));
        Argument::options("-sandbox", options)
    }
}

/// `-action`: what QEMU does when the guest does something.
///
/// `shutdown` is always `poweroff`: QEMU sends `SHUTDOWN` with its reason on every monitor and then exits. For a soft reboot by the
/// power button the supervisor needs it to stay, and sets `pause` for a while with `set-action` (`launcher/src/vm/step/soft_reboot/mod.rs`).
///
/// `panic` is always `pause`, and so is a watchdog that ends the run: a QEMU that leaves by itself would leave with the
/// same exit code as after a power-off, and a supervisor that was away could not distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The guest reboots.
    pub reboot: RebootAction,
    /// The guest's watchdog runs out.
    pub watchdog: WatchdogAction,
}

/// What a reboot of the guest means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootAction {
    /// Start over.
    Reset,
    /// End.
    Shutdown,
}

/// What a watchdog does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogAction {
    /// Reset the machine.
    Reset,
    /// Press the power button.
    Shutdown,
    /// End at once: the guest is held, and the supervisor ends QEMU.
    Poweroff,
}

impl Arg for Action {
    fn argument(&self) -> Argument {
        let reboot = match self.reboot {
            RebootAction::Reset => "reset",
            RebootAction::Shutdown => "shutdown",
        };
        let watchdog = match self.watchdog {
            WatchdogAction::Reset => "reset",
            WatchdogAction::Shutdown => "shutdown",
            WatchdogAction::Poweroff => "pause",
        };
        let options = Options::new()
            .set("reboot", reboot)
            .set("shutdown", "poweroff")
            .set("panic", "pause")
            .set("watchdog", watchdog);
        Argument::options("-action", options)
    }
}

/// `-add-fd`: a descriptor QEMU was born with, and the set under which `/dev/fdset/<set>` opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddFd {
    /// Number of the descriptor.
    pub fd: i32,
    /// Number of the set.
    pub set: u32,
    /// What it is, for readers of `query-fdsets`.
    pub opaque: String,
}

impl AddFd {
    /// The path that opens it.
    #[must_use]
    pub fn path(&self) -> String {
        fdset_path(self.set)
    }
}

/// The path that opens descriptor set `set`.
#[must_use]
pub fn fdset_path(set: u32) -> String {
    format!("/dev/fdset/{set}")
}

impl Arg for AddFd {
    fn argument(&self) -> Argument {
        let options = Options::new().set("fd", self.fd).set("set", self.set).set("opaque", &self.opaque);
        Argument::options("-add-fd", options)
    }
}
