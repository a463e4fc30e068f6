//! What a guest agent answers, as far as it is used. All of it is the guest's claim.
//!
//! These types are ours and not the generated ones, because those fail as a whole when a foreign agent leaves a field
//! out or invents a value, and bound nothing.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use super::bounded::{GuestList, GuestText};

/// `guest-info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// The agent's version, for example `7.2.22`.
    pub version: GuestText,
    /// The commands it has.
    #[serde(rename = "supported_commands", default)]
    pub commands: GuestList<AgentCommand, 256>,
}

impl AgentInfo {
    /// Whether the agent has this command and it is not switched off.
    pub fn allows(&self, command: &str) -> bool {
        self.commands.items().iter().any(|known| known.enabled && known.name.as_str() == command)
    }
}

/// One command of `guest-info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCommand {
    /// Its name.
    pub name: GuestText,
    /// Whether the guest's configuration lets it run.
    #[serde(default)]
    pub enabled: bool,
}

/// `guest-exec`: a program that was started in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestProcess {
    /// The agent's number for it.
    pub pid: i64,
}

/// `guest-exec-status`, without what the program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestProcessState {
    /// Whether it has ended.
    pub exited: bool,
    /// Its exit code, if it ended by itself.
    #[serde(rename = "exitcode", default)]
    pub code: Option<i64>,
}

/// `guest-get-osinfo`: the fields of `/etc/os-release` and `uname`, or what Windows has in their place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct OsInfo {
    /// `debian`, `mswindows`, …
    pub id: Option<GuestText>,
    /// `Debian GNU/Linux`.
    pub name: Option<GuestText>,
    /// `Debian GNU/Linux 12 (bookworm)`.
    pub pretty_name: Option<GuestText>,
    /// `12 (bookworm)`.
    pub version: Option<GuestText>,
    /// `12`.
    pub version_id: Option<GuestText>,
    /// `6.1.0-35-cloud-amd64`.
    pub kernel_release: Option<GuestText>,
    /// `#1 SMP PREEMPT_DYNAMIC …`.
    pub kernel_version: Option<GuestText>,
    /// `x86_64`.
    pub machine: Option<GuestText>,
    /// `Server`, where a system has variants.
    pub variant: Option<GuestText>,
    /// `server`.
    pub variant_id: Option<GuestText>,
}

/// One interface of `guest-network-get-interfaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// `eth0`.
    pub name: GuestText,
    /// Its hardware address, if it has one of six bytes.
    #[serde(rename = "hardware-address", default, deserialize_with = "hardware_address")]
    pub mac: Option<[u8; 6]>,
    /// Its addresses, in the guest's order.
    #[serde(rename = "ip-addresses", default)]
    pub addresses: GuestList<InterfaceAddress, 64>,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawAddress")]
pub struct InterfaceAddress {
    /// IPv4 or IPv6.
    pub ip: IpAddr,
    /// Length of the network prefix: 0 to 32 or 0 to 128.
    pub prefix: u8,
}

#[derive(Deserialize)]
struct RawAddress {
    #[serde(rename = "ip-address")]
    ip: String,
    prefix: u8,
}

impl TryFrom<RawAddress> for InterfaceAddress {
    type Error = &'static str;

    fn try_from(raw: RawAddress) -> Result<Self, Self::Error> {
        // An IPv6 address may carry a zone (`fe80::1%eth0`), which only the guest understands.
        let address = raw.ip.split('%').next().unwrap_or_default();
        let ip: IpAddr = address.parse().map_err(|_| "not an IP address")?;
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        if raw.prefix > longest { Err("prefix too long") } else { Ok(Self { ip, prefix: raw.prefix }) }
    }
}

/// Six bytes in hexadecimal with colons or hyphens; anything else is no address.
fn hardware_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 6]>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.as_deref().and_then(parse_hardware_address))
}

fn parse_hardware_address(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

/// One file system of `guest-get-fsinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// `vda1`, or a volume GUID on Windows.
    pub name: GuestText,
    /// `/`, or `C:\` on Windows.
    pub mountpoint: GuestText,
    /// `ext4`.
    #[serde(rename = "type", default)]
    pub kind: GuestText,
    /// Bytes in use.
    #[serde(rename = "used-bytes", default)]
    pub used_bytes: Option<u64>,
    /// Bytes it has for unprivileged users.
    #[serde(rename = "total-bytes", default)]
    pub total_bytes: Option<u64>,
    /// The disks below it.
    #[serde(rename = "disk", default)]
    pub disks: GuestList<FilesystemDisk, 32>,
}

/// A disk under a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemDisk {
    /// `virtio`, `scsi`, `sata`, …
    #[serde(rename = "bus-type", default)]
    pub bus: GuestText,
    /// The disk's serial number.
    #[serde(default)]
    pub serial: Option<GuestText>,
    /// `/dev/vda1`.
    #[serde(rename = "dev", default)]
    pub device: Option<GuestText>,
}

/// A user who is logged in (`guest-get-users`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestUser {
    /// The account's name.
    pub user: GuestText,
    /// Its domain, on Windows.
    #[serde(default)]
    pub domain: Option<GuestText>,
    /// When, in seconds since 1970 by the guest's clock, with fractions.
    #[serde(rename = "login-time", default)]
    pub login_time_seconds: f64,
}

/// `guest-get-timezone`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timezone {
    /// Its name, in the guest's language on Windows.
    #[serde(default)]
    pub zone: Option<GuestText>,
    /// Seconds east of UTC.
    #[serde(rename = "offset")]
    pub offset_seconds: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_debian_are_read() {
        let text = r#"[
            {"name": "lo", "ip-addresses": [
                {"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8},
                {"ip-address-type": "ipv6", "ip-address": "::1", "prefix": 128}],
             "statistics": {"tx-packets": 10}, "hardware-address": "00:00:00:00:00:00"},
            {"name": "enp1s0", "hardware-address": "52:54:00:AB:cd:ef"}]"#;
        let list: GuestList<Interface, 64> = serde_json::from_str(text).unwrap();
        assert_eq!(list.items()[0].addresses.items()[0], InterfaceAddress { ip: [127, 0, 0, 1].into(), prefix: 8 });
        assert_eq!(list.items()[0].addresses.items()[1].prefix, 128);
        assert_eq!(list.items()[1].mac, Some([0x52, 0x54, 0, 0xab, 0xcd, 0xef]));
    }

    #[test]
    fn addresses_that_are_none_are_left_out() {
        let text = r#"{"name": "x", "hardware-address": "gg", "ip-addresses": [
            {"ip-address": "10.0.0.1", "prefix": 33}, {"ip-address": "lies", "prefix": 1}, {"prefix": 1},
            {"ip-address": "fe80::1%eth0", "prefix": 64}]}"#;
        let interface: Interface = serde_json::from_str(text).unwrap();
        assert_eq!(interface.mac, None);
        assert_eq!((interface.addresses.items().len(), interface.addresses.left_out()), (1, 3));
    }

    #[test]
    fn hardware_addresses_have_six_bytes() {
        for wrong in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:ef:01", "5254.00ab.cdef", "+2:54:00:ab:cd:ef"] {
            assert_eq!(parse_hardware_address(wrong), None, "{wrong}");
        }
        assert_eq!(parse_hardware_address("52-54-00-ab-cd-ef"), Some([0x52, 0x54, 0, 0xab, 0xcd, 0xef]));
    }

    #[test]
    fn a_command_that_is_switched_off_is_not_allowed() {
        let text = r#"{"version": "7.2.22", "supported_commands": [
            {"name": "guest-exec", "enabled": false, "success-response": true},
            {"name": "guest-ping", "enabled": true, "success-response": true}]}"#;
        let info: AgentInfo = serde_json::from_str(text).unwrap();
        assert!(info.allows("guest-ping") && !info.allows("guest-exec") && !info.allows("guest-no-such-command"));
    }

    #[test]
    fn an_agent_with_few_fields_is_understood() {
        assert_eq!(serde_json::from_str::<OsInfo>("{}").unwrap(), OsInfo::default());
        let filesystem: Filesystem = serde_json::from_str(r#"{"name": "sda1", "mountpoint": "/"}"#).unwrap();
        assert!(filesystem.disks.items().is_empty() && filesystem.total_bytes.is_none());
    }
}
