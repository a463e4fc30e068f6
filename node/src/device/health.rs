//! Whether the node's devices open, looked at again and again: a module may be loaded later, and a device may go.

use std::time::Duration;

use garboard_host::devices::DeviceNode;
use garboard_host::root::HostRoot;
use tokio::sync::watch;

use super::resource::{Health, Resource};

/// Time between two looks; each is one `open`.
const PERIOD: Duration = Duration::from_secs(5);

/// How a resource's device is now.
#[must_use]
pub fn look(root: &HostRoot, resource: Resource) -> Health {
    if DeviceNode::probe(root, resource.device()).opens() { Health::Healthy } else { Health::Unhealthy }
}

/// Looks from now on, in the background.
#[must_use]
pub fn watch(root: HostRoot, resource: Resource) -> watch::Receiver<Health> {
    let (sender, receiver) = watch::channel(look(&root, resource));
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(PERIOD);
        while !sender.is_closed() {
            ticks.tick().await;
            let now = look(&root, resource);
            let changed = sender.send_if_modified(|health| std::mem::replace(health, now) != now);
            if changed {
                tracing::info!(resource = resource.name(), health = ?now, "a device changed");
            }
        }
    });
    receiver
}
