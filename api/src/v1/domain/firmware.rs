//! What boots the guest, and the identity of the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec.domain.firmware`: what boots the guest, and how the machine is identified.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Firmware {
    /// ACPI tables that hold a Windows licence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi: Option<ACPI>,
    /// BIOS or EFI. Default: BIOS on amd64, EFI on arm64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootloader: Option<Bootloader>,
    /// A kernel that QEMU loads itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_boot: Option<KernelBoot>,
    /// Serial number of the machine (SMBIOS type 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// UUID of the machine (SMBIOS type 1). Default: random for an instance, from the name for a VirtualMachine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// `spec.domain.firmware.bootloader`: one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Bootloader {
    /// SeaBIOS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bios: Option<BIOS>,
    /// OVMF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efi: Option<EFI>,
}

/// `spec.domain.firmware.bootloader.bios`: SeaBIOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BIOS {
    /// Whether it uses the serial console. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_serial: Option<bool>,
}

/// `spec.domain.firmware.bootloader.efi`: OVMF.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EFI {
    /// Whether the EFI variables outlive the instance. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
    /// Whether only signed code boots (Secure Boot); needs SMM. Default: true, on arm64 false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
}

/// `spec.domain.firmware.kernelBoot`: a kernel that QEMU loads itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelBoot {
    /// The container image with kernel and initrd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<KernelBootContainer>,
    /// The kernel's command line. Needs `kernelPath`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_args: Option<String>,
}

/// `spec.domain.firmware.kernelBoot.container`: at least one of kernel and initrd is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelBootContainer {
    /// The container image.
    pub image: String,
    /// When it is pulled. Default: the kubelet's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", "Never"]))]
    pub image_pull_policy: Option<String>,
    /// The Secret with the registry's credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<String>,
    /// Path of the initrd in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd_path: Option<String>,
    /// Path of the kernel in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_path: Option<String>,
}

/// `spec.domain.firmware.acpi`: ACPI tables that come from Secret volumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ACPI {
    /// The volume with the MSDM table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msdm_name_ref: Option<String>,
    /// The volume with the SLIC table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slic_name_ref: Option<String>,
}
