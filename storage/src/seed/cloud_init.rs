//! The two drives of cloud-init.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::iso::{DiscTree, Readers, TreeError, VolumeLabel};

/// Why no drive could be made.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// Neither user data nor network data.
    #[error("the cloud-init volume is empty; give it userData, userDataBase64, a secretRef, or network data")]
    Nothing,
    /// Metadata that is no JSON cannot happen with the types here; reported rather than hidden.
    #[error("the metadata could not be written as JSON; please report this")]
    Metadata(#[source] serde_json::Error),
    /// Too large for a disc.
    #[error("the cloud-init volume does not fit on its disc")]
    Tree(#[source] TreeError),
}

/// Content for the NoCloud data source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoCloud {
    /// Changes when cloud-init shall run again; KubeVirt takes the firmware's UUID.
    pub instance_id: String,
    /// The guest's host name.
    pub local_hostname: Option<String>,
    /// Name of the instance type, if the VM has one.
    pub instance_type: Option<String>,
    /// `#cloud-config`, a script or whatever cloud-init takes. May be empty.
    pub user_data: Vec<u8>,
    /// Network configuration, version 1 or 2. Empty: none.
    pub network_data: Vec<u8>,
    /// SSH keys from `accessCredentials`, in order.
    pub public_keys: Vec<String>,
}

#[derive(Serialize)]
struct NoCloudMetadata<'a> {
    #[serde(rename = "instance-type", skip_serializing_if = "Option::is_none")]
    instance_type: Option<&'a str>,
    #[serde(rename = "instance-id")]
    instance_id: &'a str,
    #[serde(rename = "local-hostname", skip_serializing_if = "Option::is_none")]
    local_hostname: Option<&'a str>,
    #[serde(rename = "public-keys", skip_serializing_if = "BTreeMap::is_empty")]
    public_keys: BTreeMap<String, &'a str>,
}

impl NoCloud {
    /// The label guests find it by.
    pub fn label() -> VolumeLabel {
        VolumeLabel::nocloud()
    }

    /// The files of the drive.
    ///
    /// # Errors
    /// [`SeedError`]: no content, or too much.
    pub fn tree(&self) -> Result<DiscTree, SeedError> {
        if self.user_data.is_empty() && self.network_data.is_empty() {
            return Err(SeedError::Nothing);
        }
        let metadata = NoCloudMetadata {
            instance_type: self.instance_type.as_deref(),
            instance_id: &self.instance_id,
            local_hostname: self.local_hostname.as_deref(),
            public_keys: numbered(&self.public_keys),
        };
        let mut files = vec![("meta-data", json(&metadata)?), ("user-data", self.user_data.clone())];
        if !self.network_data.is_empty() {
            files.push(("network-config", self.network_data.clone()));
        }
        tree(files)
    }
}

/// Content for the ConfigDrive data source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigDrive {
    /// Changes when cloud-init shall run again; KubeVirt takes `<name>.<namespace>`.
    pub instance_id: String,
    /// The firmware's UUID.
    pub uuid: Option<String>,
    /// The guest's host name.
    pub hostname: Option<String>,
    /// Name of the instance type, if the VM has one.
    pub instance_type: Option<String>,
    /// As in [`NoCloud`].
    pub user_data: Vec<u8>,
    /// OpenStack's network metadata, or what the guest understands. Empty: none.
    pub network_data: Vec<u8>,
    /// SSH keys from `accessCredentials`, in order.
    pub public_keys: Vec<String>,
    /// Devices that carry a `tag`.
    pub devices: Vec<DeviceTag>,
}

/// A device with a tag, listed for the guest so that it can find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceTag {
    /// What it is and where: `nic`, `hostdev`, `disk`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bus and address.
    #[serde(flatten)]
    pub address: DeviceAddress,
    /// MAC address of an interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Serial of a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// NUMA node of the guest; 0 is left out, as with KubeVirt.
    #[serde(rename = "numaNode", skip_serializing_if = "is_zero")]
    pub numa_node: u32,
    /// vCPUs near the device.
    #[serde(rename = "alignedCPUs", skip_serializing_if = "Vec::is_empty")]
    pub aligned_vcpus: Vec<u32>,
    /// The tags.
    pub tags: Vec<String>,
}

/// Where the guest sees a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceAddress {
    /// `pci`, `usb`, `scsi`, …
    pub bus: String,
    /// For PCI `0000:01:00.0`.
    pub address: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Serialize)]
struct ConfigDriveMetadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<&'a str>,
    instance_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<&'a str>,
    #[serde(skip_serializing_if = "<[DeviceTag]>::is_empty")]
    devices: &'a [DeviceTag],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    public_keys: BTreeMap<String, &'a str>,
}

impl ConfigDrive {
    /// The label guests find it by.
    pub fn label() -> VolumeLabel {
        VolumeLabel::config_drive()
    }

    /// The files of the drive.
    ///
    /// # Errors
    /// [`SeedError`]: no content, or too much.
    pub fn tree(&self) -> Result<DiscTree, SeedError> {
        if self.user_data.is_empty() && self.network_data.is_empty() {
            return Err(SeedError::Nothing);
        }
        let metadata = ConfigDriveMetadata {
            instance_type: self.instance_type.as_deref(),
            instance_id: &self.instance_id,
            hostname: self.hostname.as_deref(),
            uuid: self.uuid.as_deref(),
            devices: &self.devices,
            public_keys: numbered(&self.public_keys),
        };
        let mut files = vec![
            ("openstack/latest/meta_data.json", json(&metadata)?),
            ("openstack/latest/user_data", self.user_data.clone()),
        ];
        if !self.network_data.is_empty() {
            files.push(("openstack/latest/network_data.json", self.network_data.clone()));
        }
        tree(files)
    }
}

/// Keys by number, as both drives name them.
fn numbered(keys: &[String]) -> BTreeMap<String, &str> {
    keys.iter().enumerate().map(|(number, key)| (number.to_string(), key.as_str())).collect()
}

fn json(metadata: &impl Serialize) -> Result<Vec<u8>, SeedError> {
    serde_json::to_vec(metadata).map_err(SeedError::Metadata)
}

fn tree(files: Vec<(&str, Vec<u8>)>) -> Result<DiscTree, SeedError> {
    let mut tree = DiscTree::new(Readers::Root);
    for (path, content) in files {
        tree.add(path, content).map_err(SeedError::Tree)?;
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tree: &DiscTree, path: &str) -> Option<String> {
        let found = tree.files().find(|(name, _)| name.as_str() == path);
        found.map(|(_, content)| String::from_utf8(content.to_vec()).unwrap())
    }

    #[test]
    fn nocloud_contains_the_identity_of_the_guest() {
        let seed = NoCloud {
            instance_id: "5a9f".into(),
            local_hostname: Some("quay".into()),
            user_data: b"#cloud-config\n".to_vec(),
            network_data: b"version: 2\n".to_vec(),
            public_keys: vec!["ssh-ed25519 AAAA a".into(), "ssh-rsa BBBB b".into()],
            ..NoCloud::default()
        };
        let tree = seed.tree().unwrap();
        assert_eq!(
            text(&tree, "meta-data").unwrap(),
            r#"{"instance-id":"5a9f","local-hostname":"quay","public-keys":{"0":"ssh-ed25519 AAAA a","1":"ssh-rsa BBBB b"}}"#
        );
        assert_eq!(text(&tree, "user-data").unwrap(), "#cloud-config\n");
        assert_eq!(text(&tree, "network-config").unwrap(), "version: 2\n");
        assert_eq!(tree.readers(), Readers::Root);
    }

    #[test]
    fn network_data_alone_still_gets_an_empty_user_data_file() {
        // cloud-init takes a NoCloud drive only when both files are there.
        let seed = NoCloud { instance_id: "1".into(), network_data: b"x".to_vec(), ..NoCloud::default() };
        assert_eq!(text(&seed.tree().unwrap(), "user-data").unwrap(), "");
        assert!(matches!(NoCloud::default().tree(), Err(SeedError::Nothing)));
        assert!(matches!(ConfigDrive::default().tree(), Err(SeedError::Nothing)));
    }

    #[test]
    fn a_config_drive_names_tagged_devices() {
        let nic = DeviceTag {
            kind: "nic".into(),
            address: DeviceAddress { bus: "pci".into(), address: "0000:01:00.0".into() },
            mac: Some("02:00:00:00:00:01".into()),
            serial: None,
            numa_node: 0,
            aligned_vcpus: vec![],
            tags: vec!["management".into()],
        };
        let seed = ConfigDrive {
            instance_id: "quay.default".into(),
            uuid: Some("5a9f".into()),
            hostname: Some("quay".into()),
            user_data: b"x".to_vec(),
            devices: vec![nic],
            ..ConfigDrive::default()
        };
        let tree = seed.tree().unwrap();
        assert_eq!(
            text(&tree, "openstack/latest/meta_data.json").unwrap(),
            r#"{"instance_id":"quay.default","hostname":"quay","uuid":"5a9f","devices":[{"type":"nic","bus":"pci","address":"0000:01:00.0","mac":"02:00:00:00:00:01","tags":["management"]}]}"#
        );
        assert_eq!(text(&tree, "openstack/latest/user_data").unwrap(), "x");
        assert_eq!(text(&tree, "openstack/latest/network_data.json"), None);
    }

    #[test]
    fn a_hostile_hostname_stays_inside_its_string() {
        let seed = NoCloud {
            instance_id: "1".into(),
            local_hostname: Some("a\", \"public-keys\": {\"0\": \"evil".into()),
            user_data: b"x".to_vec(),
            ..NoCloud::default()
        };
        let metadata: serde_json::Value =
            serde_json::from_str(&text(&seed.tree().unwrap(), "meta-data").unwrap()).unwrap();
        assert!(metadata.get("public-keys").is_none());
    }
}
