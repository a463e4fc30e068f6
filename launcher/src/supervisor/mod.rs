//! The supervisor: prepares, launches, drives and reports one machine.

mod agent_client;
mod attach;
mod broker;
mod console;
mod control;
mod guest_agent;
mod guest_events;
mod guest_probe;
mod init_link;
pub mod journal;
pub mod line_socket;
mod monitor;
mod network;
pub mod prepare;
mod qemu_log;
mod report;
mod run;
mod seed;
mod serial_log;

use std::future::Future;
use std::pin::Pin;

pub(crate) use monitor::query_state;
pub use run::{Setting, SupervisorError, run};

/// The place in the volume table where the image of `kernelBoot` is unpacked, if it is. No volume of a
/// manifest has this name: names are DNS labels.
pub const KERNEL_BOOT_VOLUME: &str = "kernel-boot/image";
/// Prefix of single files of that image, followed by their absolute path inside of it.
pub const KERNEL_BOOT_PREFIX: &str = "kernel-boot/file";
/// The place of the directory for everything that is lost at the stop: overlays, empty disks.
pub const SCRATCH_VOLUME: &str = "scratch/directory";
/// The volume that holds UEFI variables that survive.
pub const FIRMWARE_VARS_VOLUME: &str = "firmware/vars";
/// Prefix of the volumes that hold the Secret of a `networkDataSecretRef`, followed by the name of the volume; where
/// there is none, that Secret's files are among the volume's own.
pub const NETWORK_DATA_PREFIX: &str = "network-data/";
/// Prefix of the volumes that hold SSH keys, followed by the Secret's name.
pub const SSH_KEYS_PREFIX: &str = "ssh-keys/";

/// Something that can ask the guest to power down: the guest agent.
pub trait PowerDown: Send + Sync {
    /// Asks; the error is a sentence.
    fn power_down(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;
}
