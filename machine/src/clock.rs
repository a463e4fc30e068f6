//! `-rtc` and the timers of a PC.

use crate::argv::{Arg, Argument, Options};

/// `-rtc`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtc {
    /// What the guest's clock shows at the start.
    pub base: RtcBase,
    /// What drives it.
    pub clock: RtcClock,
    /// What becomes of ticks the guest missed.
    pub driftfix: DriftFix,
}

/// What the real-time clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtcBase {
    /// UTC.
    Utc,
    /// The local time of QEMU's environment (`TZ`).
    Localtime,
}

/// What drives the real-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtcClock {
    /// The host's clock: it goes on while the guest is paused.
    Host,
    /// The guest's own time: it stops while the guest is paused.
    Vm,
}

/// What becomes of missed ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftFix {
    /// They are lost.
    None,
    /// They are made up for.
    Slew,
}

impl Arg for Rtc {
    fn argument(&self) -> Argument {
        let base = match self.base {
            RtcBase::Utc => "utc",
            RtcBase::Localtime => "localtime",
        };
        let clock = match self.clock {
            RtcClock::Host => "host",
            RtcClock::Vm => "vm",
        };
        let driftfix = match self.driftfix {
            DriftFix::None => None,
            DriftFix::Slew => Some("slew"),
        };
        Argument::options("-rtc", Options::new().set("base", base).set("clock", clock).set_some("driftfix", driftfix))
    }
}

/// `-global`: a property of every device of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Device type.
    pub driver: &'static str,
    /// Its property.
    pub property: &'static str,
    /// The value.
    pub value: String,
}

impl Arg for Global {
    fn argument(&self) -> Argument {
        let options =
            Options::new().set("driver", self.driver).set("property", self.property).set("value", &self.value);
        Argument::options("-global", options)
    }
}
