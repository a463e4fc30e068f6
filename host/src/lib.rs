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
//! does not run on, and judging is pure. Nothing is guessed from version numbers or from what an ioctl claims: QEMU is
//! asked for its types, properties and schema, and KVM has to run code.
//!
//! Not for plumbing (`garboard-net`), and not for choosing anything: a plan does that.

pub mod boot;
pub mod cache;
pub mod cgroup;
pub mod cpu;
pub mod devices;
pub mod diagnose;
pub mod firmware;
pub mod free_space;
pub mod kvm;
pub mod landlock;
pub mod memory;
pub mod namespaces;
pub mod offer;
pub mod privileges;
pub mod qemu;
pub mod root;
pub mod survey;
#[allow(unsafe_code, reason = "the one place of this crate for it; every block states why it is sound")]
mod sys;
pub mod tools;

pub use cache::ProbeCache;
pub use diagnose::{Check, CheckVerdict, Weight, can_run, diagnose};
pub use qemu::Freshness;
pub use survey::{GatherError, GatherOptions, gather};
