//! Names in the [volume table](crate::agent::VolumeTable) that are no volumes of a manifest: no DNS label has a slash.

/// The place in the volume table where the image of `kernelBoot` is unpacked, if it is.
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
/// Prefix of the volumes that hold passwords of the guest's users, followed by the Secret's name.
pub const PASSWORDS_PREFIX: &str = "passwords/";
