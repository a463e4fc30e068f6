//! The KubeVirt objects of the installation's namespace, followed while the process runs.
//!
//! Which of them counts, and what follows from it, is for the caller ([`garboard_api::cluster::of_installation`]).

use std::collections::BTreeMap;

use futures::StreamExt;
use garboard_api::v1::KubeVirt;
use garboard_protocol::text::printable;
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};

/// The most characters of a decoder's error in a line of the log.
const LONGEST: usize = 300;

/// Watches them until the process ends. `changed` is called with all, by their UIDs, whenever they were listed, and after each
/// change.
pub async fn follow(client: Client, namespace: &str, mut changed: impl FnMut(&BTreeMap<String, KubeVirt>)) {
    let objects: Api<DeserializeGuard<KubeVirt>> = Api::namespaced(client, namespace);
    let mut events = std::pin::pin!(watch(objects, watcher::Config::default()).default_backoff());
    let mut known: BTreeMap<String, KubeVirt> = BTreeMap::new();
    let mut listed: BTreeMap<String, KubeVirt> = BTreeMap::new();
    let uid = |object: &KubeVirt| object.metadata.uid.clone().unwrap_or_default();
    while let Some(event) = events.next().await {
        let is_complete = matches!(event, Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)));
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.extend(readable(object).map(|object| (uid(&object), object))),
            Ok(Event::InitDone) => known = std::mem::take(&mut listed),
            Ok(Event::Apply(object)) => known.extend(readable(object).map(|object| (uid(&object), object))),
            Ok(Event::Delete(object)) => drop(known.remove(object.meta().uid.as_deref().unwrap_or_default())),
            Err(error) => tracing::warn!(%error, "the settings cannot be read; the last readable ones apply"),
        }
        if is_complete {
            changed(&known);
        }
    }
}

/// One that cannot be read does not count, and keeps no other from it; what was last read of it does.
fn readable(object: DeserializeGuard<KubeVirt>) -> Option<KubeVirt> {
    let unreadable = |problem: InvalidObject| {
        let name = problem.metadata.name;
        // The decoder quotes the object.
        let error = printable(&problem.error, LONGEST);
        tracing::warn!(name, error, "a KubeVirt object cannot be parsed");
    };
    object.0.map_err(unreadable).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_does_not_count() {
        let read = |object: serde_json::Value| readable(serde_json::from_value(object).unwrap());
        assert!(read(json!({"metadata": {"name": "a"}, "spec": {"configuration": 5}})).is_none());
        assert!(read(json!({"metadata": {"name": "a"}, "spec": {}})).is_some());
    }
}
