//! How far a supervisor is that replaces another one. Pure.

use garboard_api::conditions::Reason;
use garboard_api::v1::SupervisorStatus;
use jiff::Timestamp;

use super::names::{DEADLINE, SETTLED, STALE};
use super::world::{InstanceView, Launcher, Run, Sidecar, Underway};
use crate::time::elapsed;

/// A kubelet's reason for a container that has ended again and again.
const ENDS_AGAIN: &str = "CrashLoopBackOff";
/// Reasons of a kubelet that do not pass by themselves soon enough: the guest has no supervisor meanwhile.
const FATAL: [&str; 8] = [
    Reason::ErrImagePull.name(),
    Reason::ImagePullBackOff.name(),
    Reason::ErrImageNeverPull.name(),
    "InvalidImageName",
    ENDS_AGAIN,
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is known yet.
    Waits,
    /// It runs, has reported, and has run on.
    CameUp,
    /// It did not, for this reason.
    Failed(String),
}

/// What is known of it by now: whether it runs and has reported.
pub(super) fn seen(launcher: &Launcher, underway: &Underway, view: Option<&InstanceView>, now: Timestamp) -> Underway {
    let runs = launcher.state == Sidecar::Runs && is_started_again(launcher, underway);
    let goes_on = underway.run.filter(|run| run.restarts == launcher.restarts);
    let run = runs.then(|| goes_on.unwrap_or(Run { since: now, restarts: launcher.restarts }));
    let reported = supervisor(view);
    let has_reported = run.is_some() && reported.is_some() && reported != underway.supervisor.as_ref();
    let reported_at = underway.reported_at.or_else(|| has_reported.then_some(now));
    Underway { run, reported_at, is_seen: true, ..underway.clone() }
}

/// How far it is, by what was [`seen`].
pub(super) fn progress(
    launcher: &Launcher,
    underway: &Underway,
    view: Option<&InstanceView>,
    now: Timestamp,
) -> Progress {
    if let Some(why) = fatal(launcher, underway, now) {
        return Progress::Failed(why);
    }
    // Supervisors that report nothing of themselves follow each other, or the report came before this leader.
    let is_indistinct = supervisor(view).is_none() || underway.restarts.is_none();
    let is_overdue = elapsed(underway.reported_at.unwrap_or(underway.since), now) >= DEADLINE;
    let pod = format!("kubectl -n {} describe pod {}", launcher.namespace, launcher.pod);
    match (underway.run, underway.reported_at) {
        (Some(run), reported) if reported.is_some() || is_indistinct => {
            if elapsed(run.since, now) >= SETTLED {
                Progress::CameUp
            } else {
                Progress::Waits
            }
        }
        (Some(_), _) if is_overdue => {
            Progress::Failed("it runs, and its node agent has passed on no report of it".to_owned())
        }
        (None, Some(_)) if is_overdue => Progress::Failed(format!(
            "it has reported, and does not run on; the events of the pod have the reason ({pod})"
        )),
        // Of a sidecar that has ended well the pod's status does not have why its kubelet cannot start the next one.
        (None, None) if is_overdue => {
            Progress::Failed(format!("its kubelet has not started it; the events of the pod have the reason ({pod})"))
        }
        _ => Progress::Waits,
    }
}

/// Whether the failure proves nothing about the image: the supervisor before ended again and again, and so does this one.
pub(super) fn is_of_the_machine(launcher: &Launcher, underway: &Underway) -> bool {
    let is_of_the_image = matches!(&launcher.state, Sidecar::Waits { reason, .. } if reason != ENDS_AGAIN);
    underway.was_broken && !is_of_the_image
}

/// Why a kubelet does not start it, if that does not pass.
fn fatal(launcher: &Launcher, underway: &Underway, now: Timestamp) -> Option<String> {
    let Sidecar::Waits { reason, message } = &launcher.state else { return None };
    // It may be the report of the one before.
    let is_stale = underway.was_broken
        && !is_started_again(launcher, underway)
        && (reason == ENDS_AGAIN || elapsed(underway.since, now) < STALE);
    (FATAL.contains(&reason.as_str()) && !is_stale).then(|| format!("{reason}: {message}"))
}

fn is_started_again(launcher: &Launcher, underway: &Underway) -> bool {
    underway.restarts.is_none_or(|before| launcher.restarts > before)
}

fn supervisor(view: Option<&InstanceView>) -> Option<&SupervisorStatus> {
    view.and_then(|view| view.supervisor.as_ref())
}
