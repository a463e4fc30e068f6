//! The kubevirt.io types: fields, quantities, defaults and rules. Pure.
//!
//! What this crate is for: reading a manifest, finding everything that is wrong with it, and filling in what it leaves out,
//! exactly as KubeVirt 1.9 would, so that the same code serves admission in a cluster, `garboard validate` and
//! `garboard run`. What it is not for: deciding how a guest is run; the plan does that, from the types here.
//!
//! ```text
//! JSON ─ kind_of ─ schema::inspect ─ serde ─ default_vm / default_vmi ─ validate ─ VirtualMachine(Instance)
//!                  structure         types   what is left out           what makes no sense
//!                                    vmi_of: from the one to the other
//! ```
//!
//! Nothing here reads a clock, a file, the environment or a source of randomness, and nothing panics on any input.
#![forbid(unsafe_code)]

pub mod accelerator;
pub mod arch;
pub mod cluster;
pub mod conditions;
pub mod crd;
pub mod defaults;
pub mod fault;
pub mod fields;
pub mod group;
pub mod instancetype;
pub mod ip;
pub mod kind;
pub mod mac;
pub mod merge;
pub mod metadata;
mod name_enum;
pub mod names;
pub mod phase;
pub mod pool;
pub mod preset;
pub mod printable_status;
pub mod quantity;
mod remnant;
mod resource;
pub mod run_strategy;
pub mod schema;
pub mod selector;
pub mod set;
mod suggest;
pub mod v1;
pub mod validate;
pub mod versions;

pub use arch::Arch;
pub use cluster::{ClusterConfig, Gate};
pub use defaults::{Identity, default_vm, default_vmi, vmi_of};
pub use fault::{Fault, FaultCode, FieldPath, SentText};
pub use kind::{Kind, kind_of};
pub use mac::MacAddr;
pub use names::{DnsLabel, DnsSubdomain};
pub use phase::Phase;
pub use printable_status::PrintableStatus;
pub use quantity::Quantity;
pub use remnant::remnant_of_instance;
pub use run_strategy::RunStrategy;
pub use v1::{
    VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePreset, VirtualMachineInstanceReplicaSet,
    VirtualMachineInstanceSpec, VirtualMachinePool,
};
