//! KubeVirt's virt-handler, as far as it is needed to measure its controller: an instance that is scheduled runs, and reports as
//! much of itself as one of Garboard.

use std::pin::pin;

use futures::StreamExt;
use garboard_api::v1::VirtualMachineInstance;
use garboard_cluster::report::{Seen, claims::Claims, next_status};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::report;

/// Writes at the same time.
const AT_ONCE: usize = 16;

/// Plays it until this process is ended.
pub(crate) async fn play(client: Client) -> anyhow::Result<()> {
    let instances: Api<VirtualMachineInstance> = Api::all(client.clone());
    let events = watcher(instances, watcher::Config::default()).default_backoff().applied_objects();
    let events = pin!(events);
    let work = events.for_each_concurrent(AT_ONCE, |vmi| {
        let client = client.clone();
        async move {
            let outcome = match vmi {
                Ok(vmi) => take_over(&client, &vmi).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = outcome {
                tracing::warn!(%error, "an instance does not run yet");
            }
        }
    });
    println!("ready");
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        () = work => {}
    }
    Ok(())
}

async fn take_over(client: &Client, vmi: &VirtualMachineInstance) -> anyhow::Result<()> {
    let status = vmi.status.as_ref();
    if status.and_then(|status| status.phase.as_deref()) != Some("Scheduled") {
        return Ok(());
    }
    let metadata = &vmi.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
    let report = report::of(&namespace, &name, &text(&metadata.uid))?;
    let seen = Seen { report: &report, addresses: &[], claims: &Claims::default(), vmi, now: Timestamp::now() };
    let Some(next) = next_status(&seen) else { return Ok(()) };
    let (old, next) = (serde_json::to_value(status)?, serde_json::to_value(next)?);
    let Some(changes) = garboard_api::merge::patch(&old, &next) else { return Ok(()) };
    let patch =
        json!({"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": changes});
    let instances: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &namespace);
    match instances.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        // The watch brings it again.
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
        written => Ok(written.map(drop)?),
    }
}
