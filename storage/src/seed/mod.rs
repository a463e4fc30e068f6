//! What a guest reads at its first boot: cloud-init's two drives, and answer files for Windows.
//!
//! Makes file trees ([`crate::iso::DiscTree`]); [`crate::source::disc`] turns them into a disk. The layouts are those that KubeVirt
//! makes, because guests and their users' scripts look into them:
//!
//! | | NoCloud | ConfigDrive |
//! | --- | --- | --- |
//! | label | `cidata` | `config-2` |
//! | user data | `user-data` | `openstack/latest/user_data` |
//! | metadata | `meta-data` (JSON is YAML) | `openstack/latest/meta_data.json` |
//! | network | `network-config` | `openstack/latest/network_data.json` |
//! | SSH keys | `public-keys` in the metadata | `public_keys` in the metadata |
//!
//! Contents arrive decoded: base64 and secrets are resolved by the caller. See cloud-init's documentation of
//! `DataSourceNoCloud` and `DataSourceConfigDrive`.

mod cloud_init;
mod secrets;
mod sysprep;

pub use cloud_init::{ConfigDrive, DeviceAddress, DeviceTag, NoCloud, SeedError};
pub(crate) use secrets::files_disc;
pub use secrets::{network_data_key, read_folder, ssh_public_keys, user_data_key};
pub use sysprep::{SysprepError, sysprep};
