//! Pods that their kubelet rejected. Pure.
//!
//! A scheduler and a kubelet may disagree for a moment: a kubelet that has just started again does not have the devices of
//! its node yet, and one that is shutting down takes nothing. The pod is over then although nothing was wrong with the
//! machine, and a machine that is to run once would never run. So the pod is removed and made again, in its name, when
//! everything that may have run of it is surely gone (`remains::may_still_run`): a kubelet that starts again judges pods that
//! run, too, and writes the same message for those that it ends. One that is rejected again and again waits longer each time, and
//! the instance has the kubelet's message for what it waits for.

use std::time::Duration;

use garboard_api::Phase;
use garboard_api::run_strategy::backoff;
use garboard_cluster::report::condition;
use k8s_openapi::api::core::v1::Pod;

use super::decide::World;
use crate::time::elapsed;

/// Reasons of a kubelet that has nothing against the machine.
const REASONS: [&str; 3] = ["UnexpectedAdmissionError", "NodeAffinity", "NodeShutdown"];
/// How long a kubelet that started again takes until it has its node's devices.
const FIRST_PAUSE: Duration = Duration::from_secs(8);
/// Beginning of its reasons for a lack of something that others took meanwhile.
const OUT_OF: &str = "OutOf";

/// Whether the pod was rejected before its launcher reported anything.
pub(super) fn is_rejected(world: &World, pod: &Pod) -> bool {
    let Some(status) = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Failed")) else {
        return false;
    };
    let reason = status.reason.as_deref().unwrap_or_default();
    let is_kubelets = REASONS.contains(&reason) || reason.starts_with(OUT_OF);
    let uid = world.vmi.metadata.uid.as_deref().unwrap_or_default();
    is_kubelets && Phase::of(&world.vmi) < Phase::Running && condition::reported(pod, uid).is_none()
}

/// The kubelet's message.
pub(super) fn why(pod: &Pod) -> String {
    let message = pod.status.as_ref().and_then(|status| status.message.clone().or(status.reason.clone()));
    message.unwrap_or_default()
}

/// For how long the next pod waits after one that was rejected, whose QEMU may run on for so long.
pub(super) fn pause(world: &World, may_run_for: Option<Duration>) -> Option<Duration> {
    let since = elapsed(world.history.missing.unwrap_or(world.now), world.now);
    let rest = backoff(world.history.refusals.saturating_sub(1), 0).max(FIRST_PAUSE).saturating_sub(since);
    may_run_for.max(Some(rest).filter(|rest| !rest.is_zero()))
}
