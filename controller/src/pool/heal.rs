//! Which machines do not start, so that they are deleted and made again. Pure.

use std::time::Duration;

use garboard_api::PrintableStatus;
use garboard_api::v1::VirtualMachinePoolAutohealingStrategy;
use garboard_api::validate::duration;
use jiff::Timestamp;

use super::member::{Member, State};
use crate::time::elapsed;

/// How many starts in a row fail where a pool does not say it.
const THRESHOLD: u32 = 3;
/// How long an error is seen where a pool does not say it.
const DURATION: Duration = Duration::from_secs(300);
/// How soon is looked again at a machine that was written since it was seen.
const AGAIN: Duration = Duration::from_secs(1);

/// What becomes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Nothing: it does not fail.
    Well,
    /// It does not start, and counts as failing after this time.
    Ailing(Duration),
    /// It does not start.
    Failing,
}

/// Judges a machine. A deletion takes its volumes along: for it, what was seen has to be what the API server has.
pub(super) fn health(
    strategy: Option<&VirtualMachinePoolAutohealingStrategy>,
    member: &Member,
    now: Timestamp,
) -> Health {
    let Some(strategy) = strategy else { return Health::Well };
    // Its guest has started, whatever the machine's status still has of starts before.
    if member.instance.as_ref().is_some_and(|instance| instance.is_ready) {
        return Health::Well;
    }
    let seen = seen(strategy, &member.state, now);
    if seen == Health::Failing && member.state.is_stale { Health::Ailing(AGAIN) } else { seen }
}

fn seen(strategy: &VirtualMachinePoolAutohealingStrategy, state: &State, now: Timestamp) -> Health {
    let threshold = strategy.start_up_failure_threshold.unwrap_or(THRESHOLD).max(1);
    if state.failures >= threshold {
        return Health::Failing;
    }
    let Some(since) = state.not_ready_since.filter(|_| state.shown.is_some_and(is_error)) else {
        return Health::Well;
    };
    // What cannot be read the webhook refuses.
    let needed = strategy.min_failing_to_start_duration.as_deref().and_then(duration).unwrap_or(DURATION);
    match needed.checked_sub(elapsed(since, now)).filter(|rest| !rest.is_zero()) {
        Some(rest) => Health::Ailing(rest),
        None => Health::Failing,
    }
}

/// Whether a machine that shows this does not start; KubeVirt's list.
fn is_error(shown: PrintableStatus) -> bool {
    match shown {
        PrintableStatus::CrashLoopBackOff
        | PrintableStatus::ErrorUnschedulable
        | PrintableStatus::DataVolumeError
        | PrintableStatus::ErrorPvcNotFound
        | PrintableStatus::ErrImagePull
        | PrintableStatus::ImagePullBackOff => true,
        PrintableStatus::Terminating
        | PrintableStatus::Stopping
        | PrintableStatus::Paused
        | PrintableStatus::Running
        | PrintableStatus::Unknown
        | PrintableStatus::Provisioning
        | PrintableStatus::WaitingForVolumeBinding
        | PrintableStatus::Starting
        | PrintableStatus::Stopped => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::member::Instance;
    use super::*;

    fn judged(strategy: Value, state: State) -> Health {
        let strategy: Option<VirtualMachinePoolAutohealingStrategy> = serde_json::from_value(strategy).unwrap();
        let member = Member::new(serde_json::from_value(json!({"name": "p-0"})).unwrap(), state, None);
        health(strategy.as_ref(), &member, Timestamp::from_second(1000).unwrap())
    }

    fn since(second: i64, shown: PrintableStatus) -> State {
        State { not_ready_since: Timestamp::from_second(second).ok(), shown: Some(shown), ..State::default() }
    }

    #[test]
    fn starts_that_fail_in_a_row_are_counted() {
        let failed = |failures: u32| State { failures, ..State::default() };
        for (strategy, failures, expected) in [
            (json!({}), 2, Health::Well),
            (json!({}), 3, Health::Failing),
            (json!({"startUpFailureThreshold": 1}), 0, Health::Well),
            (json!({"startUpFailureThreshold": 1}), 1, Health::Failing),
            (json!({"startUpFailureThreshold": 0}), 0, Health::Well),
            (Value::Null, 99, Health::Well),
        ] {
            assert_eq!(judged(strategy.clone(), failed(failures)), expected, "{strategy} {failures}");
        }
    }

    #[test]
    fn an_error_is_waited_out_and_other_states_are_none() {
        let minutes = |minutes: u64| Health::Ailing(Duration::from_secs(60 * minutes));
        assert_eq!(judged(json!({}), since(760, PrintableStatus::ErrorPvcNotFound)), minutes(1));
        assert_eq!(judged(json!({}), since(700, PrintableStatus::ErrorPvcNotFound)), Health::Failing);
        let two = || json!({"minFailingToStartDuration": "2m"});
        assert_eq!(judged(two(), since(940, PrintableStatus::ImagePullBackOff)), minutes(1));
        assert_eq!(judged(two(), since(880, PrintableStatus::ImagePullBackOff)), Health::Failing);
        assert_eq!(
            judged(json!({"minFailingToStartDuration": "0s"}), since(1000, PrintableStatus::ErrImagePull)),
            Health::Failing
        );
        for shown in [PrintableStatus::Starting, PrintableStatus::Stopped, PrintableStatus::Provisioning] {
            assert_eq!(judged(two(), since(0, shown)), Health::Well, "{shown:?}");
        }
        assert_eq!(judged(Value::Null, since(0, PrintableStatus::ErrImagePull)), Health::Well);
        let ready = State { not_ready_since: None, ..since(0, PrintableStatus::ErrImagePull) };
        assert_eq!(judged(json!({}), ready), Health::Well, "it is not known since when");
    }

    #[test]
    fn a_machine_is_not_deleted_for_what_holds_no_more() {
        let failed = State { failures: 3, ..State::default() };
        assert_eq!(judged(json!({}), failed.clone()), Health::Failing);
        let written_since = State { is_stale: true, ..failed.clone() };
        assert_eq!(judged(json!({}), written_since), Health::Ailing(AGAIN));
        let strategy = VirtualMachinePoolAutohealingStrategy::default();
        let instance = Instance { uid: "vmi".to_owned(), revision: None, is_ready: true, leaves: false };
        let mut started = Member::new(serde_json::from_value(json!({"name": "p-0"})).unwrap(), failed, Some(instance));
        let now = Timestamp::from_second(1000).unwrap();
        assert_eq!(health(Some(&strategy), &started, now), Health::Well, "its guest runs by now");
        started.instance.as_mut().unwrap().is_ready = false;
        assert_eq!(health(Some(&strategy), &started, now), Health::Failing);
    }
}
