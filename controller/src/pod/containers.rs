//! The two containers.

use std::collections::BTreeMap;

use garboard_launcher::plan::Resources;
use garboard_protocol::pod::{RUN_DIRECTORY, SHARED_DIRECTORY};
use k8s_openapi::api::core::v1::{Capabilities, Container, ResourceRequirements, SecurityContext, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::volumes::{Mounted, RUN};
use super::{PodInput, is_emulated};

/// What the sidecar asks for, bytes: supervisor and the probe of QEMU that runs once.
const SIDECAR_MEMORY: &str = "16Mi";
/// Thousandths of a CPU: it works at the start and hardly afterwards.
const SIDECAR_CPU: &str = "10m";
/// The device whose allocation brings the agent's directory.
const TUN: &str = "devices.kubevirt.io/tun";
const KVM: &str = "devices.kubevirt.io/kvm";
/// Where PID 1 writes the end for `kubectl describe pod`.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// The supervisor.
pub(super) fn launcher(input: &PodInput<'_>, mounted: &Mounted) -> Container {
    Container {
        name: "launcher".to_owned(),
        command: Some(vec!["/usr/bin/garboard-launcher".to_owned(), "--pod".to_owned()]),
        restart_policy: Some("Always".to_owned()),
        resources: Some(ResourceRequirements {
            requests: Some(quantities(&[("cpu", SIDECAR_CPU), ("memory", SIDECAR_MEMORY), (TUN, "1")])),
            limits: Some(quantities(&[(TUN, "1")])),
            claims: None,
        }),
        volume_mounts: Some(mounted.mounts.clone()),
        volume_devices: Some(mounted.devices.clone()).filter(|devices| !devices.is_empty()),
        ..container(input)
    }
}

/// PID 1 and QEMU.
pub(super) fn compute(input: &PodInput<'_>, resources: &Resources) -> Container {
    let mut requests = quantities(&[("ephemeral-storage", "50M")]);
    requests.insert("memory".to_owned(), Quantity(resources.memory_request_bytes.to_string()));
    requests.insert("cpu".to_owned(), Quantity(format!("{}m", resources.cpu_request_millis)));
    let mut limits = BTreeMap::new();
    if let Some(bytes) = resources.memory_limit_bytes {
        limits.insert("memory".to_owned(), Quantity(bytes.to_string()));
    }
    if let Some(millis) = resources.cpu_limit_millis {
        limits.insert("cpu".to_owned(), Quantity(format!("{millis}m")));
    }
    if !is_emulated(input.config) {
        requests.insert(KVM.to_owned(), Quantity("1".to_owned()));
        limits.insert(KVM.to_owned(), Quantity("1".to_owned()));
    }
    let shared = VolumeMount { name: RUN.to_owned(), mount_path: RUN_DIRECTORY.to_owned(), ..VolumeMount::default() };
    let command = ["/usr/bin/garboard-init", SHARED_DIRECTORY, "--termination-log", TERMINATION_LOG];
    Container {
        name: "compute".to_owned(),
        command: Some(command.map(str::to_owned).to_vec()),
        resources: Some(ResourceRequirements { requests: Some(requests), limits: Some(limits), claims: None }),
        volume_mounts: Some(vec![shared]),
        termination_message_path: Some(TERMINATION_LOG.to_owned()),
        ..container(input)
    }
}

/// What both have: the image, and no power.
fn container(input: &PodInput<'_>) -> Container {
    Container {
        image: Some(input.launcher_image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn quantities(all: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    all.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect()
}
