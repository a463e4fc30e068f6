//! The presets of the cluster, as every replica knows them: a new instance gets parts of those of its namespace.
//!
//! A definition that is not there (an upgrade that applies it later) means that there are no presets.

use std::time::Duration;

use garboard_api::VirtualMachineInstancePreset;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::stores::{Cached, Known, Presets, UNSERVED};

/// How long a replica that begins waits for its first list, before it answers without presets.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// Where presets are looked up.
#[derive(Clone)]
pub(super) struct KnownPresets(watch::Receiver<Looked>);

/// What came of looking for them.
#[derive(Clone)]
enum Looked {
    /// Nothing yet.
    NotYet,
    /// The cluster has no such kind.
    Absent,
    /// They are watched.
    Known(Known<Presets>),
}

impl KnownPresets {
    /// Watches them: what is known, and what has to run for it until the process ends.
    pub(super) fn follow(client: Client) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = watch::channel(Looked::NotYet);
        (Self(receiver), follow(client, sender))
    }

    /// Returns when they were listed once, or the cluster has none, or neither is known after some seconds.
    pub(super) async fn first(&mut self) {
        let looked = self.0.wait_for(|looked| !matches!(looked, Looked::NotYet));
        if tokio::time::timeout(FIRST_LIST, looked).await.is_err() {
            tracing::warn!("presets could not be listed yet; instances are admitted without");
        }
    }

    /// Those of a namespace. One that cannot be read gives nothing.
    pub(super) fn of(&self, namespace: &str) -> Vec<VirtualMachineInstancePreset> {
        let known = match &*self.0.borrow() {
            Looked::NotYet | Looked::Absent => return Vec::new(),
            Looked::Known(known) => known.uncontrolled(namespace),
        };
        let read = |stored: &std::sync::Arc<Cached<Presets>>| {
            let read = stored.read();
            read.inspect_err(|error| tracing::warn!(%error, preset = ?stored, "a preset gives nothing")).ok()
        };
        known.iter().filter_map(read).collect()
    }
}

async fn follow(client: Client, looked: watch::Sender<Looked>) {
    loop {
        let (known, filler) = Known::<Presets>::new();
        let watched = known.clone();
        let send = async {
            watched.is_listed().await;
            looked.send_replace(Looked::Known(watched));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = filler.follow_if_served(Api::all(client.clone()), |_| {}) => {}
            () = send => {}
        }
        looked.send_replace(Looked::Absent);
        tokio::time::sleep(UNSERVED).await;
    }
}
