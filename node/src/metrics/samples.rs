//! The samples of one machine. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use garboard_api::v1::VirtualMachineInstance;
use garboard_metrics::catalogue::node as catalogue;
use garboard_metrics::{Exposition, Labels, Metric, as_float};
use garboard_protocol::statistics::{BalloonStatistics, DiskStatistics, FileSystemStatistics, Statistics};

use crate::pods::LauncherPod;

use super::processes::{Link, Process, Vcpu};

/// What labels of the instance are called here; KubeVirt's prefix.
const LABEL_PREFIX: &str = "kubernetes_vmi_label_";
/// The most bytes of names and values of them: they are on each line of the machine.
const LONGEST_LABELS: usize = 1024;
/// Nanoseconds of a second.
const NANOS: f64 = 1e9;

/// What is known of one machine.
pub(super) struct Machine {
    /// Its pod.
    pub(super) pod: LauncherPod,
    /// Its QEMU.
    pub(super) process: Option<Process>,
    /// What its supervisor answered.
    pub(super) statistics: Option<Statistics>,
    /// Its instance, for its labels.
    pub(super) vmi: Option<Arc<VirtualMachineInstance>>,
}

/// As many samples of a machine as have at most so many bytes: without those whose number its guest chooses, or the kernel's alone,
/// where all would have more. Nothing where these have more.
pub(super) fn within(machine: Machine, node: &str, most: usize) -> Within {
    let fits = |found: &Exposition| found.bytes() <= most;
    let all = of(&machine, node);
    if fits(&all) {
        return Within { samples: all, is_all: true };
    }
    let Machine { statistics, .. } = machine;
    let fewer = statistics.map(|statistics| Statistics { file_systems: Vec::new(), ..statistics });
    let fewer = Machine { statistics: fewer, ..machine };
    let without_guest = of(&fewer, node);
    if fits(&without_guest) {
        return Within { samples: without_guest, is_all: false };
    }
    let of_kernel = of(&Machine { statistics: None, ..fewer }, node);
    let samples = if fits(&of_kernel) { of_kernel } else { Exposition::default() };
    Within { samples, is_all: false }
}

/// The samples for which there is room.
pub(super) struct Within {
    /// These.
    pub(super) samples: Exposition,
    /// Whether none is missing.
    pub(super) is_all: bool,
}

/// All samples of a machine; none of one whose QEMU does not run.
pub(super) fn of(machine: &Machine, node: &str) -> Exposition {
    let mut to = Exposition::default();
    let Some(process) = &machine.process else { return to };
    let labels = labels(machine, node);
    processor(&mut to, &labels, process);
    let paused = machine.statistics.as_ref().is_some_and(|statistics| statistics.paused);
    let mut affinity = 0;
    for each in &process.vcpus {
        vcpu(&mut to, &labels, each, paused);
        affinity += each.processors;
    }
    if affinity > 0 {
        to.add(&catalogue::VMI_NODE_CPU_AFFINITY, &labels, f64::from(affinity));
    }
    let Some(statistics) = &machine.statistics else { return to };
    to.add(&catalogue::VMI_MEMORY_DOMAIN_BYTES, &labels, as_float(statistics.memory_bytes));
    if let Some(reported) = &statistics.balloon {
        balloon(&mut to, &labels, reported);
    }
    of_devices(&mut to, &labels, process, statistics);
    to
}

/// Prometheus takes no two samples with the same labels. A launcher that was taken over may send some, also such as are the same once
/// they are cut.
fn of_devices(to: &mut Exposition, labels: &Labels, process: &Process, statistics: &Statistics) {
    let mut seen = BTreeSet::new();
    for each in &statistics.disks {
        let of_it = labels.clone().and("drive", &each.volume);
        if seen.insert(of_it.clone()) {
            disk(to, &of_it, each);
        }
    }
    for each in &statistics.interfaces {
        let of_it = labels.clone().and("interface", &each.name);
        if let Some(link) = process.links.get(&each.tap).filter(|_| seen.insert(of_it.clone())) {
            interface(to, &of_it, link);
        }
    }
    for each in &statistics.file_systems {
        let of_it = labels.clone().and("disk_name", &each.name).and("mount_point", &each.mountpoint);
        let of_it = of_it.and("file_system_type", &each.kind);
        if seen.insert(of_it.clone()) {
            file_system(to, &of_it, each);
        }
    }
}

fn labels(machine: &Machine, node: &str) -> Labels {
    let LauncherPod { namespace, vmi, .. } = &machine.pod;
    let own = Labels::of(&[("node", node), ("namespace", namespace.as_str()), ("name", vmi.as_str())]);
    let written = machine.vmi.as_ref().and_then(|vmi| vmi.metadata.labels.as_ref());
    // Two names may become one; the first one counts.
    let mut named = BTreeMap::new();
    for (name, value) in written.into_iter().flatten() {
        named.entry(label_name(name)).or_insert(value);
    }
    let mut left = LONGEST_LABELS;
    named.into_iter().fold(own, |labels, (name, value)| match left.checked_sub(name.len() + value.len()) {
        Some(rest) => {
            left = rest;
            labels.and(&name, value)
        }
        None => labels,
    })
}

/// What a label is called: Prometheus takes letters, digits and underscores.
fn label_name(name: &str) -> String {
    let plain = |byte: char| if byte.is_ascii_alphanumeric() { byte } else { '_' };
    LABEL_PREFIX.chars().chain(name.chars().map(plain)).collect()
}

fn processor(to: &mut Exposition, labels: &Labels, process: &Process) {
    let Process { user_seconds, system_seconds, .. } = process;
    to.add(&catalogue::VMI_CPU_USAGE_SECONDS, labels, user_seconds + system_seconds);
    to.add(&catalogue::VMI_CPU_USER_USAGE_SECONDS, labels, *user_seconds);
    to.add(&catalogue::VMI_CPU_SYSTEM_USAGE_SECONDS, labels, *system_seconds);
    optional(to, &catalogue::VMI_MEMORY_RESIDENT_BYTES, labels, process.resident_bytes);
}

fn vcpu(to: &mut Exposition, labels: &Labels, vcpu: &Vcpu, paused: bool) {
    let of_it = labels.clone().and("id", &vcpu.id.to_string());
    let state = if paused { "blocked" } else { "running" };
    to.add(&catalogue::VMI_VCPU_SECONDS, &of_it.clone().and("state", state), vcpu.run_seconds);
    to.add(&catalogue::VMI_VCPU_WAIT_SECONDS, &of_it, vcpu.wait_seconds);
    if let Some(delay) = vcpu.delay_seconds {
        to.add(&catalogue::VMI_VCPU_DELAY_SECONDS, &of_it, delay);
    }
}

fn balloon(to: &mut Exposition, labels: &Labels, reported: &BalloonStatistics) {
    let values: [(&'static Metric, Option<u64>); 9] = [
        (&catalogue::VMI_MEMORY_ACTUAL_BALLOON_BYTES, reported.actual_bytes),
        (&catalogue::VMI_MEMORY_AVAILABLE_BYTES, reported.total_bytes),
        (&catalogue::VMI_MEMORY_UNUSED_BYTES, reported.free_bytes),
        (&catalogue::VMI_MEMORY_USABLE_BYTES, reported.available_bytes),
        (&catalogue::VMI_MEMORY_CACHED_BYTES, reported.cached_bytes),
        (&catalogue::VMI_MEMORY_SWAP_IN_TRAFFIC_BYTES, reported.swap_in_bytes),
        (&catalogue::VMI_MEMORY_SWAP_OUT_TRAFFIC_BYTES, reported.swap_out_bytes),
        (&catalogue::VMI_MEMORY_PGMAJFAULT, reported.major_faults),
        (&catalogue::VMI_MEMORY_PGMINFAULT, reported.minor_faults),
    ];
    for (metric, value) in values {
        optional(to, metric, labels, value);
    }
}

fn disk(to: &mut Exposition, of_it: &Labels, disk: &DiskStatistics) {
    let DiskStatistics { read, write, flush, .. } = disk;
    to.add(&catalogue::VMI_STORAGE_IOPS_READ, of_it, as_float(read.operations));
    to.add(&catalogue::VMI_STORAGE_IOPS_WRITE, of_it, as_float(write.operations));
    to.add(&catalogue::VMI_STORAGE_READ_TRAFFIC_BYTES, of_it, as_float(read.bytes));
    to.add(&catalogue::VMI_STORAGE_WRITE_TRAFFIC_BYTES, of_it, as_float(write.bytes));
    to.add(&catalogue::VMI_STORAGE_READ_TIMES_SECONDS, of_it, as_float(read.nanoseconds) / NANOS);
    to.add(&catalogue::VMI_STORAGE_WRITE_TIMES_SECONDS, of_it, as_float(write.nanoseconds) / NANOS);
    to.add(&catalogue::VMI_STORAGE_FLUSH_REQUESTS, of_it, as_float(flush.operations));
    to.add(&catalogue::VMI_STORAGE_FLUSH_TIMES_SECONDS, of_it, as_float(flush.nanoseconds) / NANOS);
}

/// What the tap has received, the guest has sent.
fn interface(to: &mut Exposition, labels: &Labels, tap: &Link) {
    let (received, sent) = (tap.sent, tap.received);
    let typed = |direction: &str| labels.clone().and("type", direction);
    to.add(&catalogue::VMI_NETWORK_TRAFFIC_BYTES, &typed("rx"), as_float(received.bytes));
    to.add(&catalogue::VMI_NETWORK_TRAFFIC_BYTES, &typed("tx"), as_float(sent.bytes));
    to.add(&catalogue::VMI_NETWORK_RECEIVE_BYTES, labels, as_float(received.bytes));
    to.add(&catalogue::VMI_NETWORK_TRANSMIT_BYTES, labels, as_float(sent.bytes));
    to.add(&catalogue::VMI_NETWORK_RECEIVE_PACKETS, labels, as_float(received.packets));
    to.add(&catalogue::VMI_NETWORK_TRANSMIT_PACKETS, labels, as_float(sent.packets));
    to.add(&catalogue::VMI_NETWORK_RECEIVE_ERRORS, labels, as_float(received.errors));
    to.add(&catalogue::VMI_NETWORK_TRANSMIT_ERRORS, labels, as_float(sent.errors));
    to.add(&catalogue::VMI_NETWORK_RECEIVE_PACKETS_DROPPED, labels, as_float(received.dropped));
    to.add(&catalogue::VMI_NETWORK_TRANSMIT_PACKETS_DROPPED, labels, as_float(sent.dropped));
}

fn file_system(to: &mut Exposition, of_it: &Labels, found: &FileSystemStatistics) {
    to.add(&catalogue::VMI_FILESYSTEM_CAPACITY_BYTES, of_it, as_float(found.total_bytes));
    to.add(&catalogue::VMI_FILESYSTEM_USED_BYTES, of_it, as_float(found.used_bytes));
}

fn optional(to: &mut Exposition, metric: &'static Metric, labels: &Labels, value: Option<u64>) {
    if let Some(value) = value {
        to.add(metric, labels, as_float(value));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use garboard_metrics::catalogue;
    use garboard_protocol::statistics::{OperationStatistics, TappedInterface};
    use serde_json::json;

    use super::super::processes::Direction;
    use super::*;
    use crate::pods::launcher_pod;
    use crate::pods::tests::example;

    /// A machine with everything, whose guest and launcher are hostile.
    fn machine() -> Machine {
        let operation = OperationStatistics { operations: 1, bytes: 2, nanoseconds: 3_000_000_000 };
        let disk = DiskStatistics {
            volume: "root".to_owned(),
            read: operation.clone(),
            write: operation.clone(),
            flush: operation,
        };
        let file_system = FileSystemStatistics {
            name: "vda1".to_owned(),
            mountpoint: "/\"}\n".to_owned(),
            kind: "ext4".to_owned(),
            total_bytes: 20,
            used_bytes: 10,
        };
        let tapped = TappedInterface { name: "default".to_owned(), tap: "tap0".to_owned() };
        let balloon = BalloonStatistics {
            actual_bytes: Some(1),
            total_bytes: Some(2),
            free_bytes: Some(3),
            available_bytes: Some(4),
            cached_bytes: Some(5),
            swap_in_bytes: Some(6),
            swap_out_bytes: Some(7),
            major_faults: Some(8),
            minor_faults: Some(9),
        };
        let statistics = Statistics {
            paused: false,
            memory_bytes: 512,
            balloon: Some(balloon),
            disks: vec![disk.clone(), disk],
            interfaces: vec![tapped.clone(), tapped],
            file_systems: vec![file_system.clone(), file_system],
            unread: 0,
        };
        let received = Direction { bytes: 100, packets: 10, errors: 1, dropped: 2 };
        let sent = Direction { bytes: 200, packets: 20, errors: 3, dropped: 4 };
        let vcpu = |id| Vcpu { id, run_seconds: 1.5, delay_seconds: Some(0.5), wait_seconds: 0.0, processors: 4 };
        let process = Process {
            user_seconds: 2.0,
            system_seconds: 0.5,
            resident_bytes: Some(1024),
            vcpus: vec![vcpu(0), vcpu(1)],
            links: HashMap::from([("tap0".to_owned(), Link { received, sent })]),
        };
        let vmi = json!({
            "metadata": {"name": "vm", "labels": {"app.kubernetes.io/name": "shop", "tier": "web \"1\""}},
            "spec": {"domain": {"devices": {}}},
        });
        Machine {
            pod: launcher_pod(&example(), "node-1").unwrap(),
            process: Some(process),
            statistics: Some(statistics),
            vmi: Some(Arc::new(serde_json::from_value(vmi).unwrap())),
        }
    }

    #[test]
    fn the_text_of_a_machine_is_the_recorded_one() {
        assert_eq!(of(&machine(), "node-1").text(), include_str!("../../tests/golden/metrics.txt"));
    }

    #[test]
    fn every_metric_of_a_machine_is_there_with_its_labels_and_no_sample_twice() {
        let text = of(&machine(), "node-1").text();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let series: BTreeSet<&str> = samples.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(series.len(), samples.len(), "{text}");
        for metric in catalogue::node::ALL.iter().filter(|metric| metric.name.starts_with("kubevirt_vmi_")) {
            let line = samples.iter().find(|line| line.starts_with(&format!("{}{{", metric.name)));
            let line = line.unwrap_or_else(|| panic!("{} is missing", metric.name));
            for label in metric.labels {
                assert!(line.contains(&format!("{label}=\"")), "{label} in {line}");
            }
        }
    }

    #[test]
    fn a_machine_that_does_not_answer_has_what_the_kernel_says_and_one_without_qemu_nothing() {
        let silent = Machine { statistics: None, ..machine() };
        let text = of(&silent, "node-1").text();
        assert!(text.contains("kubevirt_vmi_vcpu_seconds_total{") && !text.contains("storage"), "{text}");
        let ended = Machine { process: None, ..machine() };
        assert_eq!(of(&ended, "node-1").bytes(), 0);
    }

    #[test]
    fn where_there_is_little_room_the_guests_samples_go_first_and_the_kernels_last() {
        let bytes = of(&machine(), "node-1").bytes();
        let of_kernel = of(&Machine { statistics: None, ..machine() }, "node-1").bytes();
        let found = |most: usize| {
            let Within { samples, is_all } = within(machine(), "node-1", most);
            let text = samples.text();
            (is_all, text.contains("_filesystem_"), text.contains("_storage_"), text.contains("_vcpu_"))
        };
        assert_eq!(found(bytes), (true, true, true, true));
        assert_eq!(found(bytes - 1), (false, false, true, true));
        assert_eq!(found(of_kernel), (false, false, false, true));
        assert_eq!(found(of_kernel - 1), (false, false, false, false));
    }

    #[test]
    fn names_that_are_the_same_once_they_are_cut_are_one() {
        let mut statistics = machine().statistics.unwrap();
        let long = |end: &str| "v".repeat(garboard_metrics::LONGEST_VALUE) + end;
        let disk = |volume: String| DiskStatistics { volume, ..DiskStatistics::default() };
        statistics.disks = vec![disk(long("a")), disk(long("b"))];
        let text = of(&Machine { statistics: Some(statistics), ..machine() }, "node-1").text();
        assert_eq!(text.lines().filter(|line| line.starts_with("kubevirt_vmi_storage_iops_read_total{")).count(), 1);
    }

    #[test]
    fn labels_of_an_instance_are_plain_unique_and_few() {
        let mut labelled = machine();
        let many: BTreeMap<String, String> = (0..200).map(|number| (format!("l-{number}"), "v".repeat(63))).collect();
        let mut vmi = VirtualMachineInstance::clone(labelled.vmi.as_ref().unwrap());
        vmi.metadata.labels = Some(many);
        labelled.vmi = Some(Arc::new(vmi));
        let text = of(&labelled, "node-1").text();
        let line = text.lines().find(|line| line.starts_with("kubevirt_vmi_memory_resident_bytes{")).unwrap();
        assert!(line.len() < LONGEST_LABELS * 2 && line.contains("kubernetes_vmi_label_l_0=\""), "{line}");
        assert_eq!(label_name("a.b/c-d_e"), "kubernetes_vmi_label_a_b_c_d_e");
    }
}
