//! What this host can do for virtual machines: observed, filed, and judged. And the one thing about the host that is
//! acted on here: control groups.
//!
//! ```text
//!  /proc /sys /dev  ─► cpu memory devices firmware cgroup … ─┐
//!  /dev/kvm ─► kvm (a scratch VM, timed)                     ├─► Survey ─► facts()    what a plan needs
//!  QEMU ─► qemu (asked over QMP)                             ┘         └─► diagnose   what to repair
//!                └── cache: answers per build, per boot
//! ```
//!
//! Observing and judging are apart: every probe reads through a [`root::HostRoot`], so that it can be shown a host it
//! does not run on, and judging sees nothing but what was observed. Nothing is guessed from version numbers or from what an ioctl claims: QEMU is
//! asked for its types, properties and schema, and KVM has to run code.
//!
//! Not for plumbing (`garboard-net`), and not for choosing anything: a plan does that.
//!
//! Two features, so that no program links what it never calls (ADR 23): `probe` asks QEMU and KVM, `cgroups` acts on
//! control groups.

pub mod boot;
#[cfg(feature = "probe")]
pub mod cache;
#[cfg(feature = "cgroups")]
pub mod cgroup;
pub mod cgroup_hierarchy;
pub mod cpu;
pub mod devices;
#[cfg(feature = "probe")]
pub mod diagnose;
pub mod firmware;
pub mod free_space;
#[cfg(feature = "probe")]
pub mod kvm;
pub mod landlock;
pub mod memory;
pub mod namespaces;
pub mod offer;
pub mod privileges;
#[cfg(feature = "probe")]
pub mod qemu;
pub mod root;
#[cfg(feature = "probe")]
pub mod survey;
#[allow(unsafe_code, reason = "the one place of this crate for it; every block states why it is sound")]
mod sys;
pub mod tools;

#[cfg(feature = "probe")]
pub use cache::ProbeCache;
#[cfg(feature = "probe")]
pub use diagnose::{Check, CheckVerdict, Weight, can_run, diagnose};
#[cfg(feature = "probe")]
pub use qemu::Freshness;
#[cfg(feature = "probe")]
pub use survey::{GatherError, GatherOptions, gather};
