//! A `domain` of libvirt's form, as the specification of a VirtualMachine.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::ConversionError;
use super::disk::{self, Parts};
use super::field;
use crate::metadata::annotation::ACCELERATOR;

/// What can be written; another field is an error.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    domain: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Domain {
    memory: Memory,
    #[serde(default)]
    os: Option<Os>,
    #[serde(default, rename = "type")]
    hypervisor: Option<String>,
    #[serde(default)]
    devices: Devices,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    value: u64,
    #[serde(default)]
    unit: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Os {
    #[serde(rename = "type")]
    of: OsType,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OsType {
    os: String,
    #[serde(default)]
    arch: Option<String>,
    #[serde(default)]
    machine: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Devices {
    #[serde(default)]
    disks: Vec<Value>,
}

/// Reads a part, whose path is named in an error.
pub(super) fn read<T: DeserializeOwned>(value: &Value, path: &str) -> Result<T, ConversionError> {
    serde_json::from_value(value.clone()).map_err(|error| {
        let message: String = error.to_string().chars().take(200).flat_map(char::escape_debug).collect();
        field(path, message, "write what v1alpha1 has, or the machine in `kubevirt.io/v1`")
    })
}

/// The specification of v1: it runs at once, and once.
pub(super) fn stored_spec(written: &Value) -> Result<Value, ConversionError> {
    let Spec { domain } = read(written, "spec")?;
    let domain: Domain = read(&domain, "spec.domain")?;
    // A domain without interfaces has none; the usual one would be a bridge, which leaves QEMU no address for the disks.
    let devices = json!({ "autoattachPodInterface": false });
    let mut stored = json!({ "memory": { "guest": bytes(&domain.memory)?.to_string() }, "devices": devices });
    if let Some(Os { of }) = &domain.os {
        check_os(of)?;
        if let Some(machine) = &of.machine {
            stored["machine"] = json!({ "type": machine });
        }
    }
    let mut volumes = Vec::new();
    let mut disks = Vec::new();
    for (index, written) in domain.devices.disks.iter().enumerate() {
        let Parts { disk, volume } = disk::parts(written, &format!("spec.domain.devices.disks[{index}]"))?;
        disks.push(disk);
        volumes.push(volume);
    }
    stored["devices"]["disks"] = disks.into();
    let mut template = json!({ "spec": { "domain": stored, "volumes": volumes } });
    if let Some(accelerator) = accelerator(domain.hypervisor.as_deref())? {
        template["metadata"] = json!({ "annotations": { ACCELERATOR: accelerator } });
    }
    Ok(json!({ "runStrategy": "Once", "template": template }))
}

/// libvirt's `qemu` is QEMU's translator.
fn accelerator(hypervisor: Option<&str>) -> Result<Option<&'static str>, ConversionError> {
    match hypervisor {
        None => Ok(None),
        Some("qemu") => Ok(Some("tcg")),
        Some("kvm") => Ok(Some("kvm")),
        Some(other) => {
            let message = format!("there is no hypervisor `{}`", other.escape_debug());
            Err(field("spec.domain.type", message, "write `kvm` or `qemu`"))
        }
    }
}

fn check_os(os: &OsType) -> Result<(), ConversionError> {
    if os.os != "hvm" {
        let message = format!("`{}` is not a full machine", os.os.escape_debug());
        return Err(field("spec.domain.os.type.os", message, "write `hvm`"));
    }
    if os.arch.as_deref().is_some_and(|arch| arch != "x86_64") {
        return Err(field("spec.domain.os.type.arch", "there is no other architecture", "write `x86_64`"));
    }
    Ok(())
}

/// libvirt's units: of a thousand with a B, of 1024 without or with iB; KiB if none is written.
fn bytes(memory: &Memory) -> Result<u64, ConversionError> {
    let unit: u64 = match memory.unit.as_deref().unwrap_or("KiB") {
        "b" | "bytes" | "B" => 1,
        "KB" => 1000,
        "k" | "K" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        other => {
            let message = format!("there is no unit `{}`", other.escape_debug());
            return Err(field("spec.domain.memory.unit", message, "write for example `MiB`"));
        }
    };
    let bytes = memory.value.checked_mul(unit).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| field("spec.domain.memory.value", "no guest has so much memory", "write another number"))
}
