//! What is decided once of a machine: everything that its guest notices and its manifest leaves open. Written at the first
//! start, used at every later one.
//!
//! Not for what follows from the manifest alone by rules that do not change: ADR 26 has the table.

use std::collections::BTreeMap;

use garboard_machine::facts::UefiKind;
use garboard_machine::features::Accelerator;
use garboard_machine::pci::PciMap;
use garboard_machine::tolerant;
use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::options::BlockSizes;

/// Version of [`StoredMachine`]. It grows when a reader of before would give the guest another machine; of an earlier version
/// everything is read:
///
/// | version | what it has not | what that means |
/// | --- | --- | --- |
/// | 1 | `rules`, `cpuFeatures`, `accelerator`, `disks`, `firmware`, `ram` | decided at the next start, and kept from then on; disks have QEMU's number of queues |
///
/// Version 2 had `queues` until nothing read them: they follow from vCPUs, manifest and [`StoredMachine::rules`].
pub const STORED_VERSION: u32 = 2;

/// What is decided once and kept: reported at the first start, given back at every later one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredMachine {
    /// [`STORED_VERSION`] of the planner that wrote it.
    pub version: u32,
    /// [`STORED_VERSION`] of the planner that made the first plan: by its rules the machine is made for ever, where no field
    /// here decides it.
    #[serde(default = "first_rules")]
    pub rules: u32,
    /// Versioned machine type, for example `pc-q35-7.2`.
    pub machine_type: String,
    /// What ran the guest's instructions when [`StoredMachine::cpu`] was decided.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "tolerant::or_default")]
    pub accelerator: Option<Accelerator>,
    /// Value of `-cpu`, for example `max` or `Haswell,vmx=on`, without what is switched off for the sake of
    /// [`StoredMachine::cpu_features`].
    pub cpu: String,
    /// The manifest's CPU when [`StoredMachine::cpu`] was decided: while it is the same, the guest gets
    /// the same CPU. A hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_asked: Option<String>,
    /// The features that a CPU which is not a model of QEMU's (`host`, `max`) has, by QEMU's names with spaces between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_features: Option<String>,
    /// Optional features of the manifest that the guest has not, because its first host had them not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_lacked: Option<String>,
    /// The CPU of the other accelerator, if the machine has run under both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_cpu: Option<StoredCpu>,
    /// Where each PCI device is.
    pub pci: PciMap,
    /// Where the devices are that hang on no PCI bus.
    #[serde(default, skip_serializing_if = "BusPlaces::is_empty")]
    pub places: BusPlaces,
    /// MAC address of each interface. A guest in the place of its pod gets that of each new pod instead.
    pub macs: BTreeMap<String, String>,
    /// MTU of each interface that reports one, bytes. A link that carries less reports less.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mtus: BTreeMap<String, u16>,
    /// Serial number of each disk that has one.
    pub disk_serials: BTreeMap<String, String>,
    /// What else was decided of disks, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, StoredDisk>,
    /// UEFI, if the guest boots by it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "tolerant::or_default")]
    pub firmware: Option<StoredFirmware>,
    /// Where the guest's memory came from at the last start; nothing: private memory of QEMU's. No guest notices it, so it is
    /// never used for another start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram: Option<RamKind>,
}

/// What version 1 has in the place of [`StoredMachine::rules`].
const fn first_rules() -> u32 {
    1
}

impl StoredMachine {
    /// The CPUs that were decided, that of the last start first.
    pub(super) fn cpus(&self) -> impl Iterator<Item = StoredCpu> {
        let last = StoredCpu {
            accelerator: self.accelerator,
            cpu: self.cpu.clone(),
            cpu_asked: self.cpu_asked.clone(),
            cpu_features: self.cpu_features.clone(),
            cpu_lacked: self.cpu_lacked.clone(),
        };
        [last].into_iter().chain(self.other_cpu.clone())
    }

    /// Refuses what a newer planner stored: it may contain what this one would ignore.
    ///
    /// # Errors
    /// [`PlanError::StoredVersion`].
    pub fn check(&self) -> Result<(), PlanError> {
        if self.version > STORED_VERSION {
            return Err(PlanError::StoredVersion { found: self.version, known: STORED_VERSION });
        }
        Ok(())
    }
}

/// A CPU that was decided for one accelerator: the fields of [`StoredMachine`] of the same names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredCpu {
    /// [`StoredMachine::accelerator`].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "tolerant::or_default")]
    pub accelerator: Option<Accelerator>,
    /// [`StoredMachine::cpu`].
    pub cpu: String,
    /// [`StoredMachine::cpu_asked`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_asked: Option<String>,
    /// [`StoredMachine::cpu_features`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_features: Option<String>,
    /// [`StoredMachine::cpu_lacked`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_lacked: Option<String>,
}

/// What was decided of a disk because its manifest did not contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredDisk {
    /// The guest sees a write cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// The block sizes of its volume that it took (`blockSize.matchVolume`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_sizes: Option<BlockSizes>,
    /// Which volume that was: a hash. Another volume has partitions that are counted in its own sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_sizes_of: Option<u32>,
}

/// Which UEFI build a guest boots by. Its variables are as large as this build requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFirmware {
    /// What it is for.
    pub kind: UefiKind,
    /// Path of the code image.
    pub code: String,
    /// Size of the code image, bytes.
    pub code_bytes: u64,
    /// Size of the variable store, bytes.
    pub vars_bytes: u64,
    /// Whether its guest has variables that stay, of this size; `None` from a build that did not store it, for whose guests they are
    /// taken to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
}

/// Where a guest's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RamKind {
    /// A memfd that another process can map.
    Memfd,
    /// A memfd of huge pages.
    MemfdHugepages,
    /// A kind of a later build.
    #[serde(other)]
    Unknown,
}

/// Numbers of devices on their buses, by ID of the device. A device keeps its number while it is in the manifest,
/// whatever comes or goes before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BusPlaces {
    /// Logical units of the SCSI controller.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scsi_luns: BTreeMap<String, u32>,
    /// SATA ports, counted through the controllers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sata_ports: BTreeMap<String, u32>,
    /// USB ports, counted through the controllers, from 0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub usb_ports: BTreeMap<String, u32>,
}

impl BusPlaces {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// One with something in each field, so that each is written.
    fn full() -> StoredMachine {
        let named = |name: &str| BTreeMap::from([("one".to_owned(), name.to_owned())]);
        let cpu = StoredCpu {
            accelerator: Some(Accelerator::Tcg),
            cpu: "max".to_owned(),
            cpu_asked: Some("0".to_owned()),
            cpu_features: Some("fsrm".to_owned()),
            cpu_lacked: Some("avx".to_owned()),
        };
        StoredMachine {
            version: STORED_VERSION,
            rules: STORED_VERSION,
            machine_type: "pc-q35-7.2".to_owned(),
            accelerator: cpu.accelerator,
            cpu: cpu.cpu.clone(),
            cpu_asked: cpu.cpu_asked.clone(),
            cpu_features: cpu.cpu_features.clone(),
            cpu_lacked: cpu.cpu_lacked.clone(),
            other_cpu: Some(cpu),
            pci: PciMap::default(),
            places: BusPlaces { usb_ports: BTreeMap::from([("one".to_owned(), 1)]), ..BusPlaces::default() },
            macs: named("02:00:00:00:00:01"),
            mtus: BTreeMap::from([("one".to_owned(), 1500)]),
            disk_serials: named("A-1"),
            disks: BTreeMap::from([("one".to_owned(), StoredDisk::default())]),
            firmware: Some(StoredFirmware {
                kind: UefiKind::Plain,
                code: "/code".to_owned(),
                code_bytes: 1,
                vars_bytes: 1,
                persistent: Some(true),
            }),
            ram: Some(RamKind::Memfd),
        }
    }

    #[test]
    fn the_documents_have_each_field() {
        let page = include_str!("../../../docs/adr/0026-what-a-machine-keeps.md");
        let (_, table) = page.split_once("| what a guest notices | stored | used at the next start |").unwrap();
        let table = table.split("\n\n").next().unwrap();
        let cells = table.lines().filter_map(|row| row.split('|').nth(2));
        let listed: BTreeSet<String> =
            cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
        let written = serde_json::to_value(full()).unwrap();
        let written: BTreeSet<String> = written.as_object().unwrap().keys().cloned().collect();
        assert_eq!(listed, written, "the table of ADR 26");
    }
}
