//! What a guest agent reports of its guest when a user asks for it. All of it is guest-controlled: escaped and bounded before it
//! gets here.

use serde::{Deserialize, Serialize};

use crate::control::GuestStatus;

/// The commands that an agent of every guest is expected to have (KubeVirt's list, `pkg/virt-handler/guestagent.go`).
pub const BASIC_COMMANDS: [&str; 10] = [
    "guest-ping",
    "guest-get-time",
    "guest-info",
    "guest-shutdown",
    "guest-network-get-interfaces",
    "guest-get-fsinfo",
    "guest-get-host-name",
    "guest-get-users",
    "guest-get-timezone",
    "guest-get-osinfo",
];
/// The command by which public keys reach a guest.
pub const KEYS_COMMAND: &str = "guest-ssh-add-authorized-keys";
/// The command by which passwords reach a guest.
pub const PASSWORD_COMMAND: &str = "guest-set-user-password";

/// The commands that a supervisor looks for: [`BASIC_COMMANDS`], and those that only some guests need.
pub fn expected_commands() -> impl Iterator<Item = &'static str> {
    BASIC_COMMANDS.into_iter().chain([KEYS_COMMAND, PASSWORD_COMMAND])
}

/// What a user asks about a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GuestSubject {
    /// Everything that the agent reports, as far as it has the commands for it.
    Info,
    /// The users who are logged in (`guest-get-users`).
    Users,
    /// The mounted file systems (`guest-get-fsinfo`).
    FileSystems,
}

/// What the agent reported. What was not asked for is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestReport {
    /// Names and versions.
    pub guest: GuestStatus,
    /// The agent's commands (`guest-info`).
    pub commands: Vec<GuestCommand>,
    /// The time zone (`guest-get-timezone`).
    pub timezone: Option<GuestTimezone>,
    /// The users who are logged in.
    pub users: Vec<GuestUser>,
    /// The mounted file systems.
    pub file_systems: Vec<GuestFileSystem>,
    /// Whether file systems are frozen (`guest-fsfreeze-status`); nothing if the agent does not support the question.
    pub frozen: Option<bool>,
}

/// A command of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestCommand {
    /// Its name.
    pub name: String,
    /// Whether the guest's configuration lets it run.
    pub enabled: bool,
}

/// A time zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestTimezone {
    /// Its name.
    pub zone: Option<String>,
    /// Seconds east of UTC.
    pub offset_seconds: i64,
}

/// A user who is logged in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestUser {
    /// The account's name.
    pub user: String,
    /// Its domain, on Windows.
    pub domain: Option<String>,
    /// When it logged in, seconds since 1970 by the guest's clock.
    pub login_time_seconds: f64,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestFileSystem {
    /// `vda1`, or a volume GUID on Windows.
    pub name: String,
    /// `/`, or `C:\` on Windows.
    pub mountpoint: String,
    /// `ext4`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes in use.
    pub used_bytes: Option<u64>,
    /// Bytes it has.
    pub total_bytes: Option<u64>,
    /// The disks below it.
    pub disks: Vec<GuestFileSystemDisk>,
}

/// A disk below a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestFileSystemDisk {
    /// `virtio`, `scsi`, …
    pub bus: String,
    /// Its serial number.
    pub serial: Option<String>,
}
