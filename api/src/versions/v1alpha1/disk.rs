//! A disk of libvirt's form: a unit of an iSCSI target.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::ConversionError;
use super::domain::read;
use super::field;

/// What a disk becomes.
pub(super) struct Parts {
    pub(super) disk: Value,
    pub(super) volume: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disk {
    #[serde(rename = "type")]
    of: String,
    device: String,
    /// How a snapshot of it would be made; there are none.
    #[serde(default)]
    snapshot: Option<String>,
    #[serde(default)]
    driver: Option<Driver>,
    source: Source,
    target: Target,
    #[serde(default)]
    serial: Option<String>,
    #[serde(default)]
    auth: Option<Auth>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Driver {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, rename = "type")]
    format: Option<String>,
    #[serde(default)]
    cache: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    protocol: String,
    /// `IQN/LUN`
    name: String,
    host: Host,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    name: String,
    #[serde(default)]
    port: Option<Port>,
}

/// It was written in both forms.
#[derive(Deserialize)]
#[serde(untagged)]
enum Port {
    Text(String),
    Number(u16),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    dev: String,
    #[serde(default)]
    bus: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    secret: AuthSecret,
}

/// The Secret is the usage that libvirt finds one by.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthSecret {
    #[serde(rename = "type")]
    of: String,
    usage: String,
}

/// The disk and the volume of v1.
pub(super) fn parts(written: &Value, path: &str) -> Result<Parts, ConversionError> {
    let disk: Disk = read(written, path)?;
    check(&disk, path)?;
    let name = disk.target.dev.as_str();
    let bus = bus(&disk.target, path)?;
    let mut stored = json!({ "name": name, disk.device.as_str(): { "bus": bus } });
    if let Some(cache) = disk.driver.as_ref().and_then(|driver| driver.cache.as_deref()) {
        stored["cache"] = cache.into();
    }
    if let Some(serial) = &disk.serial {
        stored["serial"] = serial.as_str().into();
    }
    Ok(Parts { disk: stored, volume: json!({ "name": name, "iscsi": iscsi(&disk, path)? }) })
}

fn check(disk: &Disk, path: &str) -> Result<(), ConversionError> {
    let only = |name: &str, found: &str, known: &[&str]| {
        if known.contains(&found) {
            return Ok(());
        }
        let message = format!("`{}` is not supported here", found.escape_debug());
        Err(field(format!("{path}.{name}"), message, format!("write `{}`", known.join("` or `"))))
    };
    only("type", &disk.of, &["network"])?;
    only("device", &disk.device, &["disk", "cdrom"])?;
    only("source.protocol", &disk.source.protocol, &["iscsi"])?;
    if let Some(snapshot) = &disk.snapshot {
        only("snapshot", snapshot, &["external", "internal", "no"])?;
    }
    if let Some(driver) = &disk.driver {
        driver.name.as_deref().map_or(Ok(()), |name| only("driver.name", name, &["qemu"]))?;
        driver.format.as_deref().map_or(Ok(()), |format| only("driver.type", format, &["raw"]))?;
        let caches = ["none", "writethrough", "writeback"];
        driver.cache.as_deref().map_or(Ok(()), |cache| only("driver.cache", cache, &caches))?;
    }
    disk.auth.as_ref().map_or(Ok(()), |auth| only("auth.secret.type", &auth.secret.of, &["iscsi"]))
}

/// The bus that is written, or the one of the device's name.
fn bus(target: &Target, path: &str) -> Result<&'static str, ConversionError> {
    let by_name = |prefix: &str| target.dev.starts_with(prefix);
    match target.bus.as_deref() {
        Some("virtio") => Ok("virtio"),
        Some("scsi") => Ok("scsi"),
        Some("sata") => Ok("sata"),
        Some("usb") => Ok("usb"),
        None if by_name("vd") => Ok("virtio"),
        None if by_name("sd") => Ok("scsi"),
        None if by_name("hd") => Ok("sata"),
        Some(_) => {
            Err(field(format!("{path}.target.bus"), "there is no such bus", "write `virtio`, `scsi`, `sata` or `usb`"))
        }
        None => Err(field(format!("{path}.target.dev"), "no bus has devices of this name", "write for example `vda`")),
    }
}

fn iscsi(disk: &Disk, path: &str) -> Result<Value, ConversionError> {
    let name = disk.source.name.as_str();
    let unit = name.rsplit_once('/').and_then(|(iqn, lun)| Some((iqn, lun.parse::<u8>().ok()?)));
    let no_unit = || {
        let message = format!("`{}` is no target with a unit", name.escape_debug());
        field(format!("{path}.source.name"), message, "write for example `iqn.2017-01.io.kubevirt:sn.42/2`")
    };
    let (iqn, lun) = unit.ok_or_else(no_unit)?;
    let host = &disk.source.host.name;
    // libvirt has an IPv6 address without brackets.
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.clone() };
    let portal = match &disk.source.host.port {
        None => host,
        Some(Port::Text(port)) => format!("{host}:{port}"),
        Some(Port::Number(port)) => format!("{host}:{port}"),
    };
    let mut source = json!({ "targetPortal": portal, "iqn": iqn, "lun": lun });
    if let Some(auth) = &disk.auth {
        source["secretRef"] = json!({ "name": auth.secret.usage });
    }
    Ok(source)
}
