//! `<clock>`: what the guest's clock shows, and its timers.

use crate::Input;
use crate::element::Element;

pub(crate) fn element(input: Input<'_>) -> Element {
    let is_local = input.arguments.member("-rtc", "base").as_deref() == Some("localtime");
    let zone = input.plan.environment.iter().find(|(name, _)| name == "TZ").map(|(_, zone)| zone.as_str());
    let clock = Element::new("clock");
    let clock = match zone.filter(|_| is_local) {
        None => clock.with("offset", "utc"),
        Some(zone) => match seconds_east(zone) {
            Some(seconds) => clock.with("offset", "variable").with("adjustment", seconds).with("basis", "utc"),
            None => clock.with("offset", "timezone").with("timezone", zone),
        },
    };
    clock.children(timers(input))
}

/// The seconds of a zone that is an offset, `UTC+HH:MM:SS`; west of Greenwich is positive in it (`tzset(3)`).
fn seconds_east(zone: &str) -> Option<i64> {
    let offset = zone.strip_prefix("UTC")?;
    let (sign, clock) = match (offset.strip_prefix('+'), offset.strip_prefix('-')) {
        (Some(clock), _) => (-1, clock),
        (None, Some(clock)) => (1, clock),
        (None, None) => return None,
    };
    // With a colon it is one of ours: `UTC-3` is a name that a manifest has, and means hours.
    let (hours, rest) = clock.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':')?;
    let number = |part: &str| part.parse::<u16>().ok().map(i64::from);
    Some(sign * ((number(hours)? * 60 + number(minutes)?) * 60 + number(seconds)?))
}

fn timers(input: Input<'_>) -> Vec<Element> {
    let arguments = input.arguments;
    let mut timers = Vec::new();
    let is_of_guest = arguments.member("-rtc", "clock").as_deref() == Some("vm");
    let policy = arguments.member("-rtc", "driftfix").map(|_| "catchup");
    if is_of_guest || policy.is_some() {
        let track = if is_of_guest { "guest" } else { "wall" };
        timers.push(present("rtc", "on").with_some("tickpolicy", policy).with("track", track));
    }
    for name in ["hpet", "pit"] {
        timers.extend(arguments.member("-machine", name).map(|state| present(name, &state)));
    }
    let policy = arguments.global("kvm-pit", "lost_tick_policy");
    timers.extend(policy.map(|policy| Element::new("timer").with("name", "pit").with("tickpolicy", policy)));
    for (property, name) in [("kvmclock", "kvmclock"), ("hv-time", "hypervclock")] {
        timers.extend(input.arguments.cpu_property(property).map(|state| present(name, &state)));
    }
    timers
}

fn present(name: &str, state: &str) -> Element {
    let present = if state == "off" { "no" } else { "yes" };
    Element::new("timer").with("name", name).with("present", present)
}

#[cfg(test)]
mod tests {
    use super::seconds_east;

    #[test]
    fn a_posix_zone_is_an_offset_the_other_way_round() {
        let table = [
            ("UTC-01:00:00", Some(3600)),
            ("UTC+01:01:01", Some(-3661)),
            ("Europe/Rome", None),
            ("UTC", None),
            ("UTC-3", None),
        ];
        for (zone, seconds) in table {
            assert_eq!(seconds_east(zone), seconds, "{zone}");
        }
    }
}
