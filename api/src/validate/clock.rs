//! The guest's clock and timers.
//!
//! KubeVirt passes unknown values on to libvirt, which fails when the guest starts; here they are refused by name.

use super::report::{Report, invalid, unsupported};
use super::subject::{Subject, text};
use crate::fault::FieldPath;
use crate::suggest::one_of;

const PIT_POLICIES: &[&str] = &["delay", "catchup", "discard"];
const RTC_POLICIES: &[&str] = &["delay", "catchup"];
const HPET_POLICIES: &[&str] = &["delay", "catchup", "merge", "discard"];
const TRACKS: &[&str] = &["guest", "wall"];

/// Judges the clock of a guest.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let Some(clock) = &subject.spec.domain.clock else { return };
    let at = subject.path("domain.clock");
    let zone = text(&clock.timezone);
    if clock.utc.is_some() && !zone.is_empty() {
        report.push(
            invalid(at.clone(), "a clock shows universal time or the time of a zone, not both")
                .instead("keep one of `utc` and `timezone`"),
        );
    }
    if !zone.chars().all(|each| each.is_ascii_alphanumeric() || "/_+-".contains(each)) {
        report.push(
            invalid(at.child("timezone"), format!("`{}` is not a time zone", zone.escape_debug()))
                .instead("write a name of the tz database, such as `Europe/Berlin`"),
        );
    }
    let Some(timer) = &clock.timer else { return };
    let at = at.child("timer");
    if let Some(pit) = &timer.pit {
        one_of_known(&at.child("pit").child("tickPolicy"), text(&pit.tick_policy), PIT_POLICIES, report);
    }
    if let Some(hpet) = &timer.hpet {
        one_of_known(&at.child("hpet").child("tickPolicy"), text(&hpet.tick_policy), HPET_POLICIES, report);
    }
    if let Some(rtc) = &timer.rtc {
        one_of_known(&at.child("rtc").child("tickPolicy"), text(&rtc.tick_policy), RTC_POLICIES, report);
        one_of_known(&at.child("rtc").child("track"), text(&rtc.track), TRACKS, report);
    }
}

fn one_of_known(at: &FieldPath, given: &str, known: &[&str], report: &mut Report) {
    if !given.is_empty() && !known.contains(&given) {
        report.push(
            unsupported(at.clone(), format!("`{given}` is not a value of a timer")).instead(one_of(given, known)),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, refused};

    const CLOCK: &str = "spec.domain.clock";

    #[test]
    fn clocks_and_timers() {
        accepted(&[
            &[(CLOCK, json!({"utc": {"offsetSeconds": 60}}))],
            &[(
                CLOCK,
                json!({"timezone": "Europe/Berlin", "timer": {"rtc": {"tickPolicy": "catchup", "track": "guest"}}}),
            )],
        ]);
        refused(&[
            (&[(CLOCK, json!({"utc": {}, "timezone": "Europe/Berlin"}))], CLOCK, "keep one"),
            (&[(CLOCK, json!({"timezone": "../etc passwd"}))], "spec.domain.clock.timezone", "tz database"),
            (
                &[(CLOCK, json!({"timer": {"pit": {"tickPolicy": "delya"}}}))],
                "spec.domain.clock.timer.pit.tickPolicy",
                "did you mean `delay`?",
            ),
            (
                &[(CLOCK, json!({"timer": {"rtc": {"track": "moon"}}}))],
                "spec.domain.clock.timer.rtc.track",
                "`guest` or `wall`",
            ),
        ]);
    }
}
