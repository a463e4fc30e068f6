//! The node's labels, and the sign that its agent lives.

use std::collections::BTreeMap;
use std::time::Duration;

use garboard_host::cpu::Cpu;
use garboard_host::root::HostRoot;
use garboard_launcher::vm::Chain;
use tokio::sync::watch;

use crate::cluster::ApiServer;

/// Time between two signs.
const PERIOD: Duration = Duration::from_secs(60);
/// Pause after a sign that did not arrive.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the kubelet may take to have the node's devices.
const SETTLING: Duration = Duration::from_secs(3);

const SCHEDULABLE: &str = "kubevirt.io/schedulable";
const HEARTBEAT: &str = "kubevirt.io/heartbeat";

/// What a node is called by. Models, features and machine types of its QEMU are not here: the agent has no QEMU.
#[must_use]
pub fn labels(cpu: &Cpu, schedulable: bool) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(SCHEDULABLE.to_owned(), schedulable.to_string())]);
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    labels.insert(format!("kubevirt.io/vm-arch-{architecture}"), "true".to_owned());
    let vendor_is_a_label = !cpu.vendor.is_empty() && cpu.vendor.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if vendor_is_a_label {
        labels.insert(format!("cpu-vendor.node.kubevirt.io/{}", cpu.vendor), "true".to_owned());
    }
    labels
}

/// Gives signs until the task is dropped, and soon when the kubelet takes or forgets the node's devices.
pub async fn beat(api: ApiServer, node: String, mut registered: watch::Receiver<bool>) {
    let cpu = Cpu::read(&HostRoot::real()).unwrap_or_else(|error| {
        tracing::warn!(error = %Chain(&error), "the processor is not known");
        Cpu::default()
    });
    // The kubelet takes a moment; a node need not be called unusable for that time.
    let _ = tokio::time::timeout(SETTLING, registered.wait_for(|registered| *registered)).await;
    loop {
        let schedulable = *registered.borrow_and_update();
        let now = format!("{:.0}", jiff::Timestamp::now());
        let annotations = BTreeMap::from([(HEARTBEAT.to_owned(), now)]);
        let pause = match api.mark_node(&node, &labels(&cpu, schedulable), &annotations).await {
            Ok(()) => PERIOD,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the node's labels are not written yet");
                PAUSE
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = registered.changed() => {
                if changed.is_err() {
                    return;
                }
                // A kubelet that starts again forgets the devices and takes them at once.
                tokio::time::sleep(SETTLING).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_labels() {
        let cpu = Cpu { vendor: "GenuineIntel".into(), ..Cpu::default() };
        let labels = labels(&cpu, true);
        assert_eq!(labels.get(SCHEDULABLE).map(String::as_str), Some("true"));
        assert!(labels.contains_key("cpu-vendor.node.kubevirt.io/GenuineIntel"));
        let odd = Cpu { vendor: "../x".into(), ..Cpu::default() };
        assert!(!super::labels(&odd, false).keys().any(|key| key.starts_with("cpu-vendor")));
    }
}
