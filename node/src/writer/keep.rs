//! The one write of a run that is over: its record. It is tried for some minutes, and given up then: nothing is decided by it.

use super::{Arc, Cluster, ClusterError, Duration, ErrorChain, FIRST_PAUSE, LONGEST_PAUSE, LauncherPod, PoisonError};
use super::{Timestamp, WriterContext, now};
use crate::pods::ComputeEnd;
use crate::run_record;
use garboard_protocol::exit::{EndReason, ExitCause};
use garboard_protocol::record::RunRecord;

/// How often it is tried. With the pauses between, three minutes.
const ATTEMPTS: u32 = 40;
/// How long the kubelet may take to report how a container ended; one or two seconds are usual.
const KUBELET_LOOKS: Duration = Duration::from_secs(10);

/// Makes the object, and says so in the log where it cannot.
pub(super) async fn keep<C: Cluster>(setting: Arc<WriterContext<C>>, pod: LauncherPod, record: RunRecord) {
    let record = explained(&setting, &pod, record).await;
    let vmi = setting.vmis.get(&pod.vmi_uid);
    let object = run_record::object(&record, &pod, vmi.as_deref(), &setting.node, Timestamp::now());
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=ATTEMPTS {
        tokio::time::sleep(place(&setting)).await;
        let error = match setting.cluster.keep_run(&pod.namespace, object.clone()).await {
            // It is there: an earlier agent of this node has made it.
            Ok(()) | Err(ClusterError::Conflict) => return,
            Err(error) => error,
        };
        // Refused, or the kind is not installed.
        if attempt == ATTEMPTS || error.is_final() {
            let error = ErrorChain(&error);
            tracing::warn!(attempt, error = %error, "the record of a run could not be written");
            return;
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// The record with the cause that only the kubelet knows. On cgroup v2 the kernel kills every process of a container that is out of
/// memory at once, so that neither PID 1 nor the supervisor has seen why; the object of the pod has it some seconds later.
async fn explained<C>(setting: &WriterContext<C>, pod: &LauncherPod, record: RunRecord) -> RunRecord {
    if record.reason != EndReason::MachineKilled.as_str() {
        return record;
    }
    let uid = pod.uid.as_str();
    let mut changes = setting.pods.changes_of(uid);
    let looks = async {
        loop {
            match setting.pods.get(uid).map(|pod| pod.compute_end) {
                Some(ComputeEnd::OutOfMemory { limit_bytes }) => return Some(ExitCause::OutOfMemory { limit_bytes }),
                Some(ComputeEnd::Otherwise) | None => return None,
                Some(ComputeEnd::NotYet) => {}
            }
            if changes.changed().await.is_err() {
                return None;
            }
        }
    };
    match tokio::time::timeout(KUBELET_LOOKS, looks).await {
        Ok(Some(cause)) => RunRecord { reason: cause.reason().as_str().to_owned(), message: cause.message(), ..record },
        Ok(None) | Err(_) => record,
    }
}

/// When there may be a write: many machines end at once when their node is drained.
fn place<C>(setting: &WriterContext<C>) -> Duration {
    setting.pace.lock().unwrap_or_else(PoisonError::into_inner).place(now())
}
