//! Spans of a start that a supervisor made, by the times that it reports: it has no network, and sends none itself
//! ([ADR 52](../../docs/adr/0052-traces.md)).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use garboard_log::otlp::{self, OPEN_FOR, Past};
use garboard_protocol::control::{ReportedPhase, Status};

use crate::pods::LauncherPod;

/// Whose spans they are.
const SUPERVISOR: &str = "garboard-launcher";
/// How far ahead of our clock a reported time may be: it is in whole milliseconds, by the clock of the same node.
const AHEAD: Duration = Duration::from_secs(1);

/// Sends them where a report says that the guest runs now, and the one before did not. An agent that was started again since has seen no
/// report before, and sends none a second time. Whether there was a start.
pub(crate) fn record(pod: &LauncherPod, before: &Status, now: &Status) -> bool {
    let Some(start) = start(pod, before, now, SystemTime::now()) else { return false };
    if let Some(trace) = &pod.trace {
        otlp::record(SUPERVISOR, trace, start);
    }
    true
}

/// From the start of the supervisor until its guest ran. Where times are in no order, or not of the last half hour, there is nothing: a launcher
/// that a guest has taken over reports what it likes.
fn start(pod: &LauncherPod, before: &Status, now: &Status, clock: SystemTime) -> Option<Past> {
    let has_started = before.phase == ReportedPhase::Scheduled && now.phase == ReportedPhase::Running;
    let own = now.supervisor.as_ref().filter(|_| has_started)?;
    let (began, executed, runs) = (time(own.started_at_ms)?, time(own.executed_at_ms?)?, time(now.phase_since_ms)?);
    let is_recent = clock.duration_since(began).is_ok_and(|age| age < OPEN_FOR);
    if !is_recent || began > executed || executed > runs || runs > clock + AHEAD {
        return None;
    }
    let part = |name, began, ended| Past { name, began, ended, attributes: Vec::new(), parts: Vec::new() };
    let LauncherPod { name, namespace, vmi, vmi_uid, .. } = pod;
    let attributes = [("namespace", namespace), ("vmi", vmi), ("vmi_uid", vmi_uid), ("pod", name)];
    Some(Past {
        name: "start",
        began,
        ended: runs,
        attributes: attributes.into_iter().map(|(key, value)| (key, value.clone())).collect(),
        parts: vec![part("prepare", began, executed), part("qemu", executed, runs)],
    })
}

fn time(at_ms: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(at_ms).ok()?))
}

#[cfg(test)]
mod tests {
    use garboard_protocol::control::SupervisorInfo;

    use super::*;
    use crate::status::tests::{pod, report};

    const NOW_MS: i64 = 1_800_000_000_000;

    /// A guest that runs since then, by a supervisor of these times.
    fn running(started_at_ms: i64, executed_at_ms: Option<i64>, phase_since_ms: i64) -> Status {
        let supervisor = Some(SupervisorInfo { version: "1".to_owned(), started_at_ms, executed_at_ms });
        Status { supervisor, phase_since_ms, ..report(2) }
    }

    fn of(before: ReportedPhase, now: &Status) -> Option<Past> {
        let before = Status { phase: before, ..report(1) };
        start(&pod(), &before, now, time(NOW_MS).unwrap())
    }

    #[test]
    fn a_start_is_from_the_supervisors_until_the_guest_runs() {
        let start = of(ReportedPhase::Scheduled, &running(NOW_MS - 3000, Some(NOW_MS - 2000), NOW_MS - 500)).unwrap();
        let ago = |at: SystemTime| time(NOW_MS).unwrap().duration_since(at).unwrap().as_millis();
        let parts: Vec<_> = start.parts.iter().map(|part| (part.name, ago(part.began), ago(part.ended))).collect();
        assert_eq!((start.name, ago(start.began), ago(start.ended)), ("start", 3000, 500));
        assert_eq!(parts, [("prepare", 3000, 2000), ("qemu", 2000, 500)]);
        assert!(start.attributes.contains(&("vmi_uid", pod().vmi_uid)), "{start:?}");
    }

    #[test]
    fn a_start_is_recorded_once_it_is_there() {
        let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        let (scheduled, running) = (
            Status { phase: ReportedPhase::Scheduled, ..report(1) },
            running(now_ms - 3000, Some(now_ms - 2000), now_ms - 500),
        );
        let pods = [pod(), LauncherPod { trace: Some("no trace".into()), ..pod() }];
        let recorded = pods.each_ref().map(|pod| [record(pod, &scheduled, &running), record(pod, &running, &running)]);
        assert_eq!(recorded, [[true, false]; 2]);
    }

    #[test]
    fn what_is_no_start_and_what_cannot_be_has_no_span() {
        let usual = running(NOW_MS - 3000, Some(NOW_MS - 2000), NOW_MS - 500);
        assert_eq!(of(ReportedPhase::Running, &usual), None, "it ran before");
        for (why, claimed) in [
            ("an earlier supervisor had it executed", running(NOW_MS - 3000, None, NOW_MS - 500)),
            ("QEMU before the supervisor", running(NOW_MS - 3000, Some(NOW_MS - 4000), NOW_MS - 500)),
            ("a guest before QEMU", running(NOW_MS - 3000, Some(NOW_MS - 2000), NOW_MS - 2500)),
            ("the day after", running(NOW_MS - 3000, Some(NOW_MS - 2000), NOW_MS + 86_400_000)),
            ("long ago", running(NOW_MS - 1_800_000, Some(NOW_MS - 2000), NOW_MS - 500)),
            ("before 1970", running(-1, Some(NOW_MS - 2000), NOW_MS - 500)),
            ("at no time", running(i64::MIN, Some(i64::MAX), i64::MAX)),
            ("it has not started", Status { phase: ReportedPhase::Failed, ..usual.clone() }),
            ("a version before", Status { supervisor: None, ..usual.clone() }),
        ] {
            assert_eq!(of(ReportedPhase::Scheduled, &claimed), None, "{why}");
        }
    }
}
