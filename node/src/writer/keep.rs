//! The one write of a run that is over: its record. It is tried for some minutes, and given up then: nothing is decided by it.

use super::{Arc, Cluster, ClusterError, Duration, ErrorChain, FIRST_PAUSE, LONGEST_PAUSE, LauncherPod, PoisonError};
use super::{Timestamp, WriterContext, now};
use crate::run_record;
use garboard_protocol::record::RunRecord;

/// How often it is tried. With the pauses between, three minutes.
const ATTEMPTS: u32 = 40;

/// Makes the object, and says so in the log where it cannot.
pub(super) async fn keep<C: Cluster>(setting: Arc<WriterContext<C>>, pod: LauncherPod, record: RunRecord) {
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

/// When there may be a write: many machines end at once when their node is drained.
fn place<C>(setting: &WriterContext<C>) -> Duration {
    setting.pace.lock().unwrap_or_else(PoisonError::into_inner).place(now())
}
