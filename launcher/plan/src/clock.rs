//! The guest's clock and timers.

use garboard_api::v1::{Clock, HPETTimer, PITTimer, RTCTimer};
use garboard_machine::clock::{DriftFix, Global, Rtc, RtcBase, RtcClock};
use garboard_machine::cpu::Switch;
use garboard_machine::features::Accelerator;

use super::draft::{Draft, invalid, text};
use super::error::PlanError;

const FIELD: &str = "spec.domain.clock";

/// What can be written as an offset in `TZ` (POSIX: 24 hours and 59:59).
const MAX_OFFSET_SECONDS: u32 = 24 * 3600 + 59 * 60 + 59;

/// Everything about time.
#[derive(Clone, Debug)]
pub(super) struct ClockPlan {
    pub(super) rtc: Rtc,
    pub(super) hpet: Option<Switch>,
    pub(super) pit: Option<Switch>,
    /// Value of `TZ` in QEMU's environment.
    pub(super) zone: Option<String>,
}

/// The guest's clock and timers.
pub(super) fn clock(draft: &mut Draft<'_>) -> Result<ClockPlan, PlanError> {
    let clock = draft.input.domain().clock.as_ref();
    let timer = clock.and_then(|clock| clock.timer.as_ref());
    let zone = clock.map(zone).transpose()?.flatten();
    let base = if zone.is_some() { RtcBase::Localtime } else { RtcBase::Utc };
    let (track, driftfix) =
        timer.and_then(|timer| timer.rtc.as_ref()).map_or(Ok((RtcClock::Host, DriftFix::None)), rtc)?;
    let hpet = timer.and_then(|timer| timer.hpet.as_ref()).map(hpet).transpose()?;
    let pit = timer.and_then(|timer| timer.pit.as_ref()).map(|timer| pit(draft, timer)).transpose()?;
    Ok(ClockPlan { rtc: Rtc { base, clock: track, driftfix }, hpet, pit: pit.flatten(), zone })
}

/// The time zone the guest's clock shows. An offset in seconds is a zone too, in the form of `tzset(3)`: that way it
/// holds without a look at a clock while the plan is made.
fn zone(clock: &Clock) -> Result<Option<String>, PlanError> {
    if let Some(zone) = text(&clock.timezone) {
        let is_fit = zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+'));
        if !is_fit || zone.starts_with('/') {
            let field = format!("{FIELD}.timezone");
            return Err(invalid(field, format!("`{zone}` is no name of a zone"), "write for example `Europe/Rome`"));
        }
        return Ok(Some(zone.to_owned()));
    }
    let offset = clock.utc.as_ref().and_then(|utc| utc.offset_seconds).unwrap_or(0);
    let seconds = offset.unsigned_abs();
    if seconds > MAX_OFFSET_SECONDS {
        let field = format!("{FIELD}.utc.offsetSeconds");
        return Err(invalid(field, format!("{offset} seconds are more than a day"), "write less than 90000"));
    }
    // In `TZ` offsets east of Greenwich are negative.
    let sign = if offset < 0 { '+' } else { '-' };
    let text = || format!("UTC{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    Ok((offset != 0).then(text))
}

fn rtc(timer: &RTCTimer) -> Result<(RtcClock, DriftFix), PlanError> {
    let field = |name: &str| format!("{FIELD}.timer.rtc.{name}");
    let clock = match text(&timer.track) {
        Some("guest") => RtcClock::Vm,
        Some("wall") | None => RtcClock::Host,
        Some(other) => {
            return Err(invalid(field("track"), format!("a clock cannot track `{other}`"), "write `guest` or `wall`"));
        }
    };
    let driftfix = match text(&timer.tick_policy) {
        Some("catchup") => DriftFix::Slew,
        Some("delay") | None => DriftFix::None,
        Some(other) => {
            let message = format!("there is no tick policy `{other}`");
            return Err(invalid(field("tickPolicy"), message, "write `delay` or `catchup`"));
        }
    };
    Ok((clock, driftfix))
}

fn hpet(timer: &HPETTimer) -> Result<Switch, PlanError> {
    match text(&timer.tick_policy) {
        // QEMU's HPET delays, nothing else.
        Some("delay") | None => Ok(timer.present.unwrap_or(true).into()),
        Some(other) => Err(invalid(
            format!("{FIELD}.timer.hpet.tickPolicy"),
            format!("the HPET cannot do `{other}`"),
            "write `delay`, or leave it out",
        )),
    }
}

fn pit(draft: &mut Draft<'_>, timer: &PITTimer) -> Result<Option<Switch>, PlanError> {
    let field = format!("{FIELD}.timer.pit.tickPolicy");
    if timer.present == Some(false) {
        return Ok(Some(Switch::Off));
    }
    let policy = match text(&timer.tick_policy) {
        None => return Ok(None),
        // KVM's timer injects missed ticks later; it calls both of these «delay».
        Some("delay" | "catchup") => "delay",
        Some("discard") => "discard",
        Some(other) => {
            let message = format!("there is no tick policy `{other}`");
            return Err(invalid(field, message, "write `delay`, `catchup` or `discard`"));
        }
    };
    match draft.accelerator {
        Accelerator::Kvm => {
            let value = policy.to_owned();
            draft.globals.push(Global { driver: "kvm-pit", property: "lost_tick_policy", value });
        }
        Accelerator::Tcg => draft.note(Some(&field), "the tick policy of the PIT has no effect without KVM"),
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use garboard_api::v1::ClockOffsetUTC;

    use super::*;

    fn offset(seconds: i32) -> Clock {
        Clock { utc: Some(ClockOffsetUTC { offset_seconds: Some(seconds) }), ..Clock::default() }
    }

    #[test]
    fn an_offset_is_a_posix_zone() {
        let table =
            [(0, None), (60, Some("UTC-00:01:00")), (-3661, Some("UTC+01:01:01")), (86400, Some("UTC-24:00:00"))];
        for (seconds, expected) in table {
            assert_eq!(zone(&offset(seconds)).unwrap().as_deref(), expected, "{seconds}");
        }
        assert!(zone(&offset(90_000)).is_err());
        assert!(zone(&offset(i32::MIN)).is_err());
    }

    #[test]
    fn a_zone_is_a_name_and_no_path() {
        for (name, is_fit) in [("Europe/Rome", true), ("Etc/GMT+2", true), ("/etc/passwd", false), ("../x", false)] {
            let clock = Clock { timezone: Some(name.into()), ..Clock::default() };
            assert_eq!(zone(&clock).is_ok(), is_fit, "{name}");
        }
    }
}
