//! The containers that run the launcher's image.

use std::collections::BTreeMap;

use garboard_api::Quantity as Amount;
use garboard_api::metadata::{OWN_DEVICES, device};
use garboard_api::v1::non_empty;
use garboard_plan::Resources;
use garboard_protocol::pod::{INIT_DIRECTORY, INIT_PROGRAM, LAUNCHER_PROGRAM, LOGS_BYTES};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, ResourceRequirements, SecurityContext, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::contribution::Mounted;
use super::volumes::INIT;
use super::{PodInput, probes};

/// The sidecar: supervisor, and the probe of QEMU that runs once. Measured in its control group (docs/benchmarks.md): 2 MiB
/// of its own and the kernel's; the rest is its programs and the seeds it makes.
const SIDECAR: Share = Share { memory: "8Mi", cpu: "10m", bound_memory: "64Mi", bound_cpu: "100m" };
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Resources that follow from the plan.
const PLANNED: [&str; 3] = ["cpu", "memory", EPHEMERAL_STORAGE];
/// Where PID 1 writes the end for `kubectl describe pod`.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// What a container beside `compute` asks for.
pub(super) struct Share {
    /// Memory it asks for.
    pub(super) memory: &'static str,
    /// CPU time it asks for.
    pub(super) cpu: &'static str,
    /// Memory it asks for and has at most, where the machine's memory is limited.
    pub(super) bound_memory: &'static str,
    /// CPU time it asks for and has at most, where the machine's is limited.
    pub(super) bound_cpu: &'static str,
}

impl Share {
    /// Limited as the machine is: a quota on limits counts every container, and a pod is `Guaranteed` only if each
    /// container asks for exactly what it may have.
    pub(super) fn requirements(&self, machine: &Resources) -> ResourceRequirements {
        let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
        for (name, is_limited, usual, bound) in [
            ("memory", machine.memory_limit_bytes.is_some(), self.memory, self.bound_memory),
            ("cpu", machine.cpu_limit_millis.is_some(), self.cpu, self.bound_cpu),
        ] {
            let asked = if is_limited { bound } else { usual };
            requests.insert(name.to_owned(), Quantity(asked.to_owned()));
            if is_limited {
                limits.insert(name.to_owned(), Quantity(bound.to_owned()));
            }
        }
        let limits = Some(limits).filter(|limits| !limits.is_empty());
        ResourceRequirements { requests: Some(requests), limits, claims: None }
    }
}

/// The supervisor.
pub(super) fn launcher(input: &PodInput<'_>, machine: &Resources, mounted: &Mounted) -> Container {
    let mut resources = SIDECAR.requirements(machine);
    for amounts in [&mut resources.requests, &mut resources.limits] {
        // Its allocation brings the agent's directory.
        amounts.get_or_insert_default().insert(device::TUN.to_owned(), Quantity("1".to_owned()));
    }
    Container {
        name: "launcher".to_owned(),
        command: Some(vec![LAUNCHER_PROGRAM.to_owned(), "--pod".to_owned()]),
        restart_policy: Some("Always".to_owned()),
        resources: Some(resources),
        volume_mounts: Some(mounted.mounts.clone()),
        volume_devices: Some(mounted.devices.clone()).filter(|devices| !devices.is_empty()),
        ..of_launcher_image(input)
    }
}

/// PID 1 and QEMU.
pub(super) fn compute(input: &PodInput<'_>, machine: &Resources) -> Container {
    let spec = &input.vmi.spec;
    // The supervisor's own directory is not for QEMU's container.
    let init = VolumeMount { name: INIT.to_owned(), mount_path: INIT_DIRECTORY.to_owned(), ..VolumeMount::default() };
    // With the UID of the instance, as KubeVirt's launcher has it: `pgrep -f` finds the machine on its node.
    let uid = input.vmi.metadata.uid.as_deref().unwrap_or_default();
    let command = [INIT_PROGRAM, INIT_DIRECTORY, "--termination-log", TERMINATION_LOG, "--uid", uid];
    Container {
        name: "compute".to_owned(),
        command: Some(command.map(str::to_owned).to_vec()),
        resources: Some(compute_resources(input, machine)),
        volume_mounts: Some(vec![init]),
        ports: Some(ports(input)).filter(|ports| !ports.is_empty()),
        liveness_probe: spec.liveness_probe.as_ref().map(probes::of),
        readiness_probe: spec.readiness_probe.as_ref().map(probes::of),
        termination_message_path: Some(TERMINATION_LOG.to_owned()),
        ..of_launcher_image(input)
    }
}

fn compute_resources(input: &PodInput<'_>, machine: &Resources) -> ResourceRequirements {
    let (storage_request, storage_limit) = ephemeral_storage(input);
    let requests: BTreeMap<_, _> = [
        (EPHEMERAL_STORAGE, storage_request.to_string()),
        ("memory", machine.memory_request_bytes.to_string()),
        ("cpu", format!("{}m", machine.cpu_request_millis)),
    ]
    .into();
    let mut limits = BTreeMap::new();
    if let Some(bytes) = storage_limit {
        limits.insert(EPHEMERAL_STORAGE, bytes.to_string());
    }
    if let Some(bytes) = machine.memory_limit_bytes {
        limits.insert("memory", bytes.to_string());
    }
    if let Some(millis) = machine.cpu_limit_millis {
        limits.insert("cpu", format!("{millis}m"));
    }
    if !input.is_emulated() {
        limits.insert(device::KVM, "1".to_owned());
    }
    let pages = hugepages(input, machine);
    let written = input.vmi.spec.domain.resources.clone().unwrap_or_default();
    let quantities = |others: BTreeMap<String, Amount>, amounts: BTreeMap<&str, String>| {
        let own = amounts.into_iter().map(|(name, amount)| (name.to_owned(), amount));
        let all = counted_elsewhere(others).chain(own).chain(pages.clone());
        Some(all.map(|(name, amount)| (name, Quantity(amount))).collect())
    };
    ResourceRequirements {
        requests: quantities(written.requests, requests),
        limits: quantities(written.limits, limits),
        claims: None,
    }
}

/// Resources that are not in the plan (devices of other plugins, huge pages written by hand): the scheduler counts
/// them, as they were written. Garboard's own devices are not given by name: they carry rights.
fn counted_elsewhere(amounts: BTreeMap<String, Amount>) -> impl Iterator<Item = (String, String)> {
    let is_planned = |name: &str| PLANNED.contains(&name) || name.starts_with(OWN_DEVICES);
    amounts.into_iter().filter(move |(name, _)| !is_planned(name)).map(|(name, amount)| (name, amount.to_string()))
}

/// Request and limit of what the pod keeps on the node's own disk, bytes. The manifest's is for the guest's disks;
/// beside it there are logs. A manifest without it has no limit of its own: a LimitRange of the namespace may give one.
fn ephemeral_storage(input: &PodInput<'_>) -> (u64, Option<u64>) {
    let written = |amounts: &BTreeMap<String, Amount>| amounts.get(EPHEMERAL_STORAGE).and_then(Amount::to_bytes);
    let resources = input.vmi.spec.domain.resources.as_ref();
    let (asked, limit) =
        (resources.and_then(|all| written(&all.requests)), resources.and_then(|all| written(&all.limits)));
    let with_logs = |bytes: u64| bytes.saturating_add(LOGS_BYTES);
    (with_logs(asked.or(limit).unwrap_or(0)), limit.map(with_logs))
}

/// Huge pages are a resource of their own, whose request and limit must be the same in Kubernetes.
fn hugepages(input: &PodInput<'_>, machine: &Resources) -> Option<(String, String)> {
    let page = input.vmi.spec.domain.memory.as_ref()?.hugepages.as_ref()?.page_size.as_deref()?;
    Some((format!("hugepages-{page}"), machine.guest_memory_bytes.to_string()))
}

/// The guest's ports, by whose names a Service may find them. They open nothing by themselves.
fn ports(input: &PodInput<'_>) -> Vec<ContainerPort> {
    let interfaces = &input.vmi.spec.domain.devices.interfaces;
    let all = interfaces.iter().flat_map(|interface| &interface.ports);
    all.map(|port| ContainerPort {
        container_port: port.port,
        name: non_empty(&port.name).map(str::to_owned),
        protocol: Some(non_empty(&port.protocol).unwrap_or("TCP").to_owned()),
        ..ContainerPort::default()
    })
    .collect()
}

/// What runs the launcher's image.
pub(super) fn of_launcher_image(input: &PodInput<'_>) -> Container {
    Container {
        image: Some(input.launcher_image.reference.clone()),
        image_pull_policy: Some(input.launcher_image.pull_policy.clone()),
        ..powerless()
    }
}

/// What all containers have: no power.
pub(super) fn powerless() -> Container {
    Container {
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}
