//! Whether the node's devices open, looked at again and again: a module may be loaded later, and a device may go.

use std::time::Duration;

use garboard_host::devices::DeviceNode;
use garboard_host::root::HostRoot;
use tokio::sync::watch;

use super::resource::{Health, Resource};

/// Time between two looks; each is one `open`.
const PERIOD: Duration = Duration::from_secs(5);

/// Where the kernel lists such devices, by the last part of their names.
const MISC: &str = "/sys/class/misc";

/// How a resource's device is now.
#[must_use]
pub fn look(root: &HostRoot, resource: Resource) -> Health {
    if DeviceNode::probe(root, resource.device()).opens() { Health::Healthy } else { Health::Unhealthy }
}

/// A device that is never offered.
#[must_use]
pub fn unhealthy() -> watch::Receiver<Health> {
    let (sender, receiver) = watch::channel(Health::Unhealthy);
    // No task waits for a change of it: a closed channel would look like the end of all of them.
    tokio::spawn(async move { sender.closed().await });
    receiver
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
                tracing::info!(resource = resource.name(), health = ?now, "device health changed");
            }
        }
    });
    receiver
}

/// Ends when a device has come that was not there when the agent started, and that therefore is not in its `/dev`: the
/// agent is to be restarted.
pub async fn newcomer(root: HostRoot) {
    let known = |resource: &Resource| {
        let path = resource.device();
        let name = path.rsplit('/').next().unwrap_or_default();
        root.path(path).exists() || root.path(format!("{MISC}/{name}")).exists()
    };
    // A device without a name in `/dev` has none for a restarted agent either.
    let missing: Vec<Resource> = Resource::ALL.into_iter().filter(|resource| !known(resource)).collect();
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        if let Some(come) = missing.iter().find(|resource| known(resource)) {
            tracing::warn!(device = come.device(), "new device found; the agent exits and is restarted with it");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_device_that_comes_later_is_noticed_and_one_that_is_there_is_not() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("sys/class/misc/kvm")).unwrap();
        let waits = tokio::spawn(newcomer(HostRoot::at(place.path())));
        tokio::time::sleep(PERIOD * 3).await;
        assert!(!waits.is_finished());
        std::fs::create_dir(place.path().join("sys/class/misc/tun")).unwrap();
        tokio::time::timeout(PERIOD * 3, waits).await.unwrap().unwrap();
    }
}
