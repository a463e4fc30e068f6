//! What one build of QEMU can do, as a value. Filled by probing (a `query-…` over QMP, `-device help`), never
//! guessed from the version number: distributions patch and strip.
//!
//! Not for what the *host* can do: that is [`crate::facts::HostFacts`].

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tolerant;

/// Everything the planner asks about a QEMU binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QemuFeatures {
    /// As in the QMP greeting. For messages; decisions use the fields below.
    pub version: QemuVersion,
    /// Accelerators that are built in and whose module is installed. KVM in this list does not mean that `/dev/kvm` works.
    #[serde(deserialize_with = "tolerant::each")]
    pub accelerators: BTreeSet<Accelerator>,
    /// Machine types as `query-machines` lists them.
    pub machines: Vec<MachineType>,
    /// Device types that `-device` accepts (`qom-list-types` of `device`, not abstract).
    pub devices: BTreeSet<String>,
    /// Object types that `-object` accepts (`qom-list-types` of `user-creatable`).
    pub objects: BTreeSet<String>,
    /// Network backends: the members of the enum `NetClientDriver` in the QMP schema.
    pub netdevs: BTreeSet<String>,
    /// Names that `-cpu` accepts (`query-cpu-definitions`), without `-x86_64-cpu`.
    pub cpu_models: BTreeSet<String>,
    /// Single abilities that differ between builds.
    #[serde(deserialize_with = "tolerant::each")]
    pub options: BTreeSet<Feature>,
}

/// `major.minor.micro` and the distribution's package string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QemuVersion {
    /// `version.qemu.major` of the greeting.
    pub major: u32,
    /// `version.qemu.minor`.
    pub minor: u32,
    /// `version.qemu.micro`.
    pub micro: u32,
    /// `version.package`, for example `Debian 1:7.2+dfsg-7+deb12u18`; may be empty.
    pub package: String,
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)?;
        if self.package.is_empty() { Ok(()) } else { write!(f, " ({})", self.package) }
    }
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The kernel's KVM.
    Kvm,
    /// QEMU's translator: works everywhere, ten to forty times slower.
    Tcg,
}

impl Accelerator {
    /// The name `-accel` takes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// One entry of `query-machines`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineType {
    /// The versioned name, for example `pc-q35-7.2`.
    pub name: String,
    /// Its alias, for example `q35`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The most vCPUs it can have (`cpu-max`).
    pub max_vcpus: u32,
    /// QEMU announces its removal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
}

/// An ability that a planner branches on. Each states how it is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// `-netdev` takes JSON: the schema's `netdev_add` contains type `stream` (both came with 7.2).
    NetdevJson,
    /// A device given to `-device` as JSON can be unplugged again: feature `json-cli-hotplug` on the schema's
    /// `device_add`.
    JsonCliHotplug,
    /// virtio-blk spreads its queues over several iothreads: `virtio-blk-pci` has the property
    /// `iothread-vq-mapping` (9.0).
    IothreadVqMapping,
    /// `-sandbox` is compiled in: option group `sandbox` in `query-command-line-options`.
    Sandbox,
}

impl QemuFeatures {
    /// Whether this build has `feature`.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.options.contains(&feature)
    }

    /// Whether `-device` supports `driver`.
    #[must_use]
    pub fn has_device(&self, driver: &str) -> bool {
        self.devices.contains(driver)
    }

    /// The machine type that `name` means, be it an alias (`q35`) or a versioned name.
    #[must_use]
    pub fn machine(&self, name: &str) -> Option<&MachineType> {
        self.machines
            .iter()
            .find(|machine| machine.name == name)
            .or_else(|| self.machines.iter().find(|machine| machine.alias.as_deref() == Some(name)))
    }
}
