//! Which names of a machine become labels. Each is a series that Prometheus keeps for weeks, and the launcher that reports them may have been
//! taken over by its guest. So names of disks, interfaces and vCPUs have to be those of the instance, file systems have any name that the
//! guest reports, and each kind has at most [`MOST`] names in an hour.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use garboard_api::v1::VirtualMachineInstanceSpec;
use garboard_protocol::statistics::MOST_OF_A_KIND;

use super::samples::Machine;
use crate::identity::PodUid;

/// An hour.
const PERIOD: Duration = Duration::from_secs(3600);
/// The most names of disks, of interfaces and of file systems, each, that a machine has in it. An instance has no more disks or
/// interfaces.
pub(super) const MOST: usize = MOST_OF_A_KIND;

/// What machines were named so far.
#[derive(Default)]
pub(super) struct Names {
    /// Names are kept as 64 bits each: a launcher may send long ones. Which names share them, it cannot find out.
    hasher: RandomState,
    machines: HashMap<PodUid, Seen>,
}

/// The names of one machine in this hour.
struct Seen {
    since: Instant,
    disks: HashSet<u64>,
    interfaces: HashSet<u64>,
    file_systems: HashSet<u64>,
}

impl Seen {
    fn since(since: Instant) -> Self {
        Self { since, disks: HashSet::new(), interfaces: HashSet::new(), file_systems: HashSet::new() }
    }
}

impl Names {
    /// Forgets the machines whose pods are not among these.
    pub(super) fn keep(&mut self, pods: &HashSet<PodUid>) {
        self.machines.retain(|pod, _| pods.contains(pod));
    }

    /// Leaves out what is not to be a label, and returns how much it was, with what was too much to be read.
    pub(super) fn bound(&mut self, machine: &mut Machine, now: Instant) -> usize {
        let Machine { pod, process, statistics, vmi } = machine;
        let spec = vmi.as_deref().map(|vmi| &vmi.spec);
        let vcpus = process
            .as_mut()
            .map_or(0, |process| keep(&mut process.vcpus, |vcpu| spec.is_none_or(|spec| vcpu.id < most_vcpus(spec))));
        let Some(statistics) = statistics else { return vcpus };
        let seen = self.machines.entry(pod.uid.clone()).or_insert_with(|| Seen::since(now));
        if now.duration_since(seen.since) >= PERIOD {
            *seen = Seen::since(now);
        }
        let Seen { disks, interfaces, file_systems, .. } = seen;
        let hasher = &self.hasher;
        let disks = keep(&mut statistics.disks, |disk| {
            spec.is_none_or(|spec| has_disk(spec, &disk.volume)) && is_of_few(disks, hasher.hash_one(&disk.volume))
        });
        let interfaces = keep(&mut statistics.interfaces, |interface| {
            let name = &interface.name;
            spec.is_none_or(|spec| has_interface(spec, name)) && is_of_few(interfaces, hasher.hash_one(name))
        });
        let file_systems = keep(&mut statistics.file_systems, |each| {
            is_of_few(file_systems, hasher.hash_one((&each.name, &each.mountpoint, &each.kind)))
        });
        vcpus + disks + interfaces + file_systems + statistics.unread
    }
}

/// Keeps what fits, and returns how many did not.
fn keep<T>(list: &mut Vec<T>, fits: impl FnMut(&T) -> bool) -> usize {
    let before = list.len();
    list.retain(fits);
    before - list.len()
}

/// Whether a name is known, or there is room for it.
fn is_of_few(seen: &mut HashSet<u64>, name: u64) -> bool {
    seen.contains(&name) || (seen.len() < MOST && seen.insert(name))
}

fn has_disk(spec: &VirtualMachineInstanceSpec, name: &str) -> bool {
    let disks = spec.domain.devices.disks.iter().map(|disk| &disk.name);
    disks.chain(spec.volumes.iter().map(|volume| &volume.name)).any(|each| each == name)
}

fn has_interface(spec: &VirtualMachineInstanceSpec, name: &str) -> bool {
    spec.domain.devices.interfaces.iter().any(|interface| interface.name == name)
}

/// As many as the machine may ever have: those that it has, and those that could be plugged.
fn most_vcpus(spec: &VirtualMachineInstanceSpec) -> u32 {
    let Some(cpu) = &spec.domain.cpu else { return 1 };
    let counts = [cpu.sockets.max(cpu.max_sockets), cpu.cores, cpu.threads];
    counts.into_iter().flatten().fold(1, |all: u32, count| all.saturating_mul(count.max(1)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use garboard_protocol::statistics::{DiskStatistics, FileSystemStatistics, Statistics, TappedInterface};
    use serde_json::{Value, json};

    use super::super::processes::{Process, Vcpu};
    use super::*;
    use crate::pods::launcher_pod;
    use crate::pods::tests::{POD, example};

    /// A machine with a disk and a file system of each of these names, which nothing else is known of.
    fn machine(names: impl Iterator<Item = usize>) -> Machine {
        let mut statistics = Statistics::default();
        for name in names {
            let name = name.to_string();
            statistics.disks.push(DiskStatistics { volume: name.clone(), ..DiskStatistics::default() });
            statistics.file_systems.push(FileSystemStatistics { name, ..FileSystemStatistics::default() });
        }
        let pod = launcher_pod(&example(), "node-1").unwrap();
        Machine { pod, process: Some(Process::default()), statistics: Some(statistics), vmi: None }
    }

    #[test]
    fn new_names_are_left_out_once_there_were_many_until_the_hour_is_over_or_the_pod_is_gone() {
        let (mut names, began) = (Names::default(), Instant::now());
        let bound = |names: &mut Names, of: std::ops::Range<usize>, now| names.bound(&mut machine(of), now);
        assert_eq!(bound(&mut names, 0..MOST, began), 0);
        let later = began + PERIOD / 2;
        assert_eq!(bound(&mut names, MOST - 1..MOST + 2, later), 4, "one of three is known, of two kinds");
        assert_eq!(bound(&mut names, 0..MOST, later), 0, "what is known stays");
        names.keep(&HashSet::from([PodUid::parse(POD).unwrap()]));
        assert_eq!(bound(&mut names, MOST..MOST + 1, later), 2);
        assert_eq!(bound(&mut names, MOST..MOST + 1, began + PERIOD), 0);
        names.keep(&HashSet::new());
        assert_eq!(bound(&mut names, 0..MOST, began + PERIOD), 0);
    }

    #[test]
    fn disks_interfaces_and_vcpus_are_those_of_the_instance() {
        let spec = json!({
            "domain": {
                "cpu": {"cores": 2, "sockets": 1, "maxSockets": 2},
                "devices": {"disks": [{"name": "0"}], "interfaces": [{"name": "default"}]},
            },
            "volumes": [{"name": "1"}],
        });
        let with = |spec: &Value| {
            let mut found = machine(0..3);
            let statistics = found.statistics.as_mut().unwrap();
            let tapped = |name: &str| TappedInterface { name: name.to_owned(), tap: "lo".to_owned() };
            statistics.interfaces = vec![tapped("default"), tapped("other")];
            statistics.unread = 7;
            let vcpu = |id| Vcpu { id, ..Vcpu::default() };
            found.process = Some(Process { vcpus: vec![vcpu(0), vcpu(3), vcpu(4)], ..Process::default() });
            let vmi = json!({"metadata": {"name": "vm"}, "spec": spec});
            found.vmi = Some(Arc::new(serde_json::from_value(vmi).unwrap()));
            let left_out = Names::default().bound(&mut found, Instant::now());
            let statistics = found.statistics.unwrap();
            let file_systems = statistics.file_systems.len();
            let kept = (statistics.disks.len(), statistics.interfaces.len(), found.process.unwrap().vcpus.len());
            (kept, file_systems, left_out)
        };
        assert_eq!(with(&spec), ((2, 1, 2), 3, 1 + 1 + 1 + 7));
        assert_eq!(with(&json!({"domain": {"devices": {}}})), ((0, 0, 1), 3, 3 + 2 + 2 + 7));
    }

    #[test]
    fn a_machine_that_does_not_answer_has_the_vcpus_of_its_instance_all_the_same() {
        let mut silent = machine(0..1);
        silent.statistics = None;
        silent.process = Some(Process { vcpus: vec![Vcpu { id: 1, ..Vcpu::default() }], ..Process::default() });
        assert_eq!(Names::default().bound(&mut silent, Instant::now()), 0);
        let vmi = json!({"metadata": {"name": "vm"}, "spec": {"domain": {"devices": {}}}});
        silent.vmi = Some(Arc::new(serde_json::from_value(vmi).unwrap()));
        assert_eq!(Names::default().bound(&mut silent, Instant::now()), 1);
    }
}
