//! Names that people and programs find in objects while supervisors are replaced, and how fast that goes. Pure.

use std::time::Duration;

use garboard_api::conditions::{KubeVirtConditionType, Reason, VmiConditionType};

/// Condition of an instance whose supervisor is to be replaced.
pub const OUTDATED_LAUNCHER: VmiConditionType = VmiConditionType::OutdatedLauncher;
/// Reason of [`OUTDATED_LAUNCHER`]: it is replaced when its turn comes.
pub const OTHER_IMAGE: Reason = Reason::OtherImage;
/// Reason of [`OUTDATED_LAUNCHER`], and of events on the instance and on the KubeVirt object.
pub const UPDATE_FAILED: Reason = Reason::LauncherUpdateFailed;
/// Event on an instance: its supervisor is the new one.
pub const UPDATED: Reason = Reason::LauncherUpdated;

/// Condition of the KubeVirt object.
pub const LAUNCHERS_UPDATED: KubeVirtConditionType = KubeVirtConditionType::LaunchersUpdated;
/// Reason of [`LAUNCHERS_UPDATED`]: supervisors are being replaced.
pub const IN_PROGRESS: Reason = Reason::UpdateInProgress;
/// Reason of [`LAUNCHERS_UPDATED`]: node agents are being replaced first.
pub const WAITS_FOR_AGENTS: Reason = Reason::WaitingForNodeAgents;
/// Reason of [`LAUNCHERS_UPDATED`]: the KubeVirt object requires that supervisors stay as they are.
pub const SWITCHED_OFF: Reason = Reason::UpdateDisabled;
/// Reason of [`LAUNCHERS_UPDATED`]: one failed, and no other is touched.
pub const STOPPED: Reason = Reason::UpdateStopped;

/// How many supervisors are replaced at a time, once the first one of an image has come up; that one is alone.
pub const AT_ONCE: usize = 10;
/// How many of them on one node.
pub const ON_A_NODE: usize = 2;
/// How many instances are marked as outdated in a round.
pub const MARKS: usize = 20;
/// The pause between two rounds.
pub const ROUND: Duration = Duration::from_secs(1);
/// How long a new supervisor may take until it has reported, the pull of its image included.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// How long a supervisor has to run without a break, a report of it being there, until it counts as updated. Where its report cannot
/// be distinguished from that of the one before it, this time is all that counts.
pub const SETTLED: Duration = Duration::from_secs(20);
/// How long a kubelet may still show its report of the supervisor before.
pub const STALE: Duration = Duration::from_secs(10);
/// The pause after the first failure, and the longest it grows to; then the one that failed is tried again, alone.
pub const FIRST_PAUSE: Duration = Duration::from_secs(300);
/// See [`FIRST_PAUSE`].
pub const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// How often an image is put back that a pod does not show yet.
pub const PUT_BACK_EVERY: Duration = Duration::from_secs(10);
/// How often the number on the KubeVirt object is brought up to date.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How often Deployment and node agents are looked at while supervisors may be replaced.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often the Deployment is looked at while some are outdated and none may be replaced.
pub const LOOK_RARELY: Duration = Duration::from_secs(60);
