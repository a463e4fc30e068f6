//! A stored machine in an annotation of its VirtualMachine, where a backup that leaves the status out keeps it. Who may write the
//! machine may write it, so it is read as a manifest is: nothing in it is more than the specification could ask for.

use garboard_api::names::{DISK_SERIAL_MAX, is_disk_serial};
use garboard_api::{FieldPath, MacAddr};
use garboard_machine::cpu::Cpu;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::PlanError;
use super::options::BlockSizes;
use super::stored::StoredMachine;

/// The longest value of the annotation, bytes: of what all annotations of an object may have together, a quarter.
pub const KEPT_MAX: usize = 64 << 10;
/// The longest name of a machine type; QEMU's have 16 letters.
const MACHINE_TYPE_MAX: usize = 64;

/// The value of the annotation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptMachine {
    /// Namespace of the VirtualMachine.
    pub namespace: String,
    /// Its name. To any other machine this is nothing: a copy of the manifest is to have addresses of its own.
    pub name: String,
    /// By what its firmware names it.
    #[serde(default)]
    pub firmware: FirmwareIdentity,
    /// What was stored of it: a [`StoredMachine`].
    pub machine: Value,
}

/// By what a guest identifies its machine (`spec.domain.firmware`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FirmwareIdentity {
    /// UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// Why a kept machine is of no use.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// More than is ever written.
    #[error("the stored machine is {bytes} bytes long; at most {KEPT_MAX} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not the JSON that is expected.
    #[error("the stored machine cannot be parsed: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A newer Garboard wrote it.
    #[error(transparent)]
    Version(PlanError),
    /// A value that no specification may have.
    #[error("{at}: {message}")]
    Value {
        /// Where it is in the annotation.
        at: FieldPath,
        /// What is wrong.
        message: String,
    },
}

impl KeptMachine {
    /// Reads the value of the annotation; the machine in it is judged by [`KeptMachine::judge`].
    ///
    /// # Errors
    /// [`KeptError::TooLong`], [`KeptError::Unreadable`].
    pub fn read(text: &str) -> Result<Self, KeptError> {
        if text.len() > KEPT_MAX {
            return Err(KeptError::TooLong { bytes: text.len() });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Whether it is that of this machine.
    #[must_use]
    pub fn is_of(&self, namespace: &str, name: &str) -> bool {
        !name.is_empty() && self.namespace == namespace && self.name == name
    }

    /// The machine, if nothing in it is wrong.
    ///
    /// # Errors
    /// [`KeptError`], with the place of what is wrong.
    pub fn judge(&self) -> Result<StoredMachine, KeptError> {
        let machine: StoredMachine = serde_json::from_value(self.machine.clone())?;
        machine.check().map_err(KeptError::Version)?;
        let first = self.unread(&machine).into_iter().chain(faults(&machine)).next();
        match first {
            None => Ok(machine),
            Some((at, message)) => Err(KeptError::Value { at, message }),
        }
    }
}

impl KeptMachine {
    /// Places that the reader has left out, which would move a device.
    fn unread(&self, machine: &StoredMachine) -> Option<Found> {
        let pci = &self.machine["pci"];
        let written = [pci["ports"].as_array().map(Vec::len), pci["devices"].as_object().map(serde_json::Map::len)];
        let is_whole = written == [machine.pci.ports.len(), machine.pci.devices.len()].map(Some);
        (!is_whole).then(|| (FieldPath::from("machine.pci"), "it has a place that does not exist".to_owned()))
    }
}

type Found = (FieldPath, String);

/// What no specification could ask for. Lengths, places and sizes that do not fit this host are the planner's to judge.
fn faults(machine: &StoredMachine) -> impl Iterator<Item = Found> {
    let StoredMachine {
        machine_type,
        cpu,
        other_cpu,
        pci,
        macs,
        disk_serials,
        disks,
        // Judged by `StoredMachine::check`, or by the planner, which takes nothing of them that this host does not have.
        version: _,
        rules: _,
        accelerator: _,
        cpu_asked: _,
        cpu_features: _,
        cpu_lacked: _,
        places: _,
        mtus: _,
        firmware: _,
        ram: _,
    } = machine;
    let root = FieldPath::from("machine");
    let cpus = [(root.child("cpu"), Some(cpu))];
    let other = [(root.child("otherCpu.cpu"), other_cpu.as_ref().map(|cpu| &cpu.cpu))];
    let cpus = cpus.into_iter().chain(other).filter_map(|(at, cpu)| {
        let error = Cpu::parse(cpu?).err()?;
        Some((at, error.to_string()))
    });
    let macs = macs.iter().filter(|(_, mac)| !is_of_a_card(mac));
    let macs_at = root.child("macs");
    let macs = macs.map(move |(name, mac)| {
        (macs_at.key(name), format!("`{}` is no MAC address that a card can have", mac.escape_debug()))
    });
    let serials_at = root.child("diskSerials");
    let serials = disk_serials.iter().filter(|(_, serial)| !is_disk_serial(serial));
    let serials = serials.map(move |(name, serial)| {
        let text = format!(
            "`{}` is no serial number: letters, digits, `_`, `.`, `+` and `-`, at most {DISK_SERIAL_MAX}",
            serial.escape_debug()
        );
        (serials_at.key(name), text)
    });
    let sizes_at = root.child("disks");
    let sizes = disks.iter().filter(|(_, disk)| disk.block_sizes.is_some_and(|sizes| !are_sizes(sizes)));
    let sizes = sizes.map(move |(name, _)| {
        (sizes_at.key(name).child("blockSizes"), "block sizes are powers of two, 512 to 2097152".to_owned())
    });
    let ports_at = root.child("pci.ports");
    let ports = pci.ports.iter().zip(1_usize..);
    let ports = ports.filter(|(port, number)| usize::from(port.number.get()) != *number);
    let ports = ports.map(move |(_, number)| (ports_at.index(number - 1), "ports are numbered from 1 on".to_owned()));
    let is_named = machine_type.len() <= MACHINE_TYPE_MAX
        && machine_type.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let named = (!is_named).then(|| (root.child("machineType"), "it is no name of a machine type".to_owned()));
    named.into_iter().chain(cpus).chain(macs).chain(serials).chain(sizes).chain(ports)
}

fn is_of_a_card(mac: &str) -> bool {
    mac.parse::<MacAddr>().is_ok_and(|mac| !mac.is_group())
}

fn are_sizes(sizes: BlockSizes) -> bool {
    let is_size = |size: u32| size.is_power_of_two() && (512..=2 << 20).contains(&size);
    is_size(sizes.logical) && is_size(sizes.physical)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(change: impl Fn(&mut Value)) -> KeptMachine {
        let mut machine = json!({"version": 2, "machineType": "pc-q35-7.2", "cpu": "max,fsrm=off",
            "pci": {"ports": [{"number": 1, "at": "02.0"}], "devices": {"nic-default": "port1"}},
            "macs": {"default": "02:00:00:00:00:01"}, "diskSerials": {"root": "A-1"},
            "disks": {"root": {"blockSizes": {"logical": 512, "physical": 4096}}}});
        change(&mut machine);
        KeptMachine {
            namespace: "ns".to_owned(),
            name: "vm".to_owned(),
            firmware: FirmwareIdentity::default(),
            machine,
        }
    }

    #[test]
    fn it_is_that_of_one_machine() {
        let text = serde_json::to_string(&kept(|_| {})).unwrap();
        let read = KeptMachine::read(&text).unwrap();
        assert_eq!(read, kept(|_| {}));
        assert_eq!(
            [("ns", "vm"), ("ns", "copy"), ("other", "vm"), ("ns", "")].map(|(a, b)| read.is_of(a, b)),
            [true, false, false, false]
        );
        assert_eq!(read.judge().unwrap().macs["default"], "02:00:00:00:00:01");
    }

    #[test]
    fn what_a_user_has_written_into_it_is_judged_with_its_place() {
        type Change = fn(&mut Value);
        let rows: [(Change, &str); 11] = [
            (|it| it["pci"]["devices"]["x"] = json!("prot1"), "machine.pci: "),
            (|it| it["version"] = json!(99), "a newer Garboard"),
            (|it| it["macs"]["default"] = json!("01:00:5e:00:00:01"), "machine.macs[default]: `01:00:5e:00:00:01`"),
            (|it| it["macs"]["default"] = json!("x"), "machine.macs[default]: `x`"),
            (|it| it["diskSerials"]["root"] = json!("a,b=c"), "machine.diskSerials[root]: `a,b=c`"),
            (|it| it["cpu"] = json!("max,"), "machine.cpu: "),
            (|it| it["otherCpu"] = json!({"cpu": "max,\u{7}"}), "machine.otherCpu.cpu: "),
            (|it| it["machineType"] = json!("q35,dump=on"), "machine.machineType: "),
            (|it| it["disks"]["root"]["blockSizes"]["logical"] = json!(513), "machine.disks[root].blockSizes: "),
            (|it| it["pci"]["ports"][0]["number"] = json!(2), "machine.pci.ports[0]: "),
            (|it| it["pci"] = json!("here"), "cannot be parsed"),
        ];
        for (change, expected) in rows {
            let error = kept(change).judge().unwrap_err().to_string();
            assert!(error.contains(expected), "{error} for {expected}");
        }
    }

    #[test]
    fn it_has_a_length_and_a_form() {
        let long = format!("{{\"x\": \"{}\"}}", "x".repeat(KEPT_MAX));
        assert!(matches!(KeptMachine::read(&long), Err(KeptError::TooLong { .. })));
        for bad in ["", "{", "[]", "null", "{\"name\": \"vm\"}"] {
            assert!(matches!(KeptMachine::read(bad), Err(KeptError::Unreadable(_))), "{bad}");
        }
        let mut later = serde_json::to_value(kept(|_| {})).unwrap();
        later["more"] = json!({"of": "a later build"});
        assert!(KeptMachine::read(&later.to_string()).is_ok());
    }
}
