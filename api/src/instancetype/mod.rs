//! Instancetypes and preferences: what a VirtualMachine names instead of writing CPUs, memory and devices itself.
//!
//! ```text
//! spec.instancetype, spec.preference ─ Matcher ─► infer: which object a volume names ─► Matcher with a name
//!        the object, or the revision of it that is kept ─► Sizing ─► sized(): the machine with both in its template
//! ```
//!
//! KubeVirt's rules (`pkg/instancetype`): an instancetype sets, and what the template sets too is a conflict; a preference fills in
//! what is left out. Nothing here asks a cluster for anything: the caller finds the objects, in a cluster or in files.

mod apply;
pub mod infer;
mod matcher;
mod prefer;
mod preference;
mod preference_devices;
mod requirements;
pub mod revision;
mod size;
mod topology;
mod types;

pub use matcher::{Matcher, Role};
pub use preference::{
    CPUPreferenceRequirement, CPUPreferences, ClockOffset, ClockPreferences, FeaturePreferences, FirmwarePreferences,
    MachinePreferences, MemoryPreferenceRequirement, PreferenceRequirements, SpreadOptions, VirtualMachinePreference,
    VirtualMachinePreferenceSpec, VolumePreferences,
};
pub use preference_devices::DevicePreferences;
pub use size::{Sizing, expanded, settle, sized};
pub(crate) use topology::Across;
pub use topology::Topology;
pub use types::{CPUInstancetype, MemoryInstancetype, VirtualMachineInstancetype, VirtualMachineInstancetypeSpec};

/// The group of the four kinds.
pub const GROUP: &str = "instancetype.kubevirt.io";
/// The version that is stored, and that revisions have. KubeVirt's revisions have it, too.
pub const STORED_VERSION: &str = "v1beta1";
/// The version that is served beside it, with the same fields.
pub const NEW_VERSION: &str = "v1";

#[cfg(test)]
mod tests;
