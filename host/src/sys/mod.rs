//! The only unsafe code of this crate, each piece behind a safe function.
//!
//! - `scratch_vm`: memory lent to KVM together with the VM that uses it.
//! - `native_loop`: the counted loop of the KVM measurement, on this processor instead of a virtual one.
//! - `kick`: a signal that ends a system call of one thread and does nothing else.
//! - [`fork`]: a child that tries one system call and reports the error number.
//! - [`landlock`]: the one Landlock call that asks for a version.
//! - `pidfd`: a process that cannot be mistaken for another one with the same number.
//!
//! Not for anything that nix or kvm-ioctls offer safely.

pub(crate) mod fork;
#[cfg(feature = "probe")]
pub(crate) mod kick;
pub(crate) mod landlock;
#[cfg(feature = "probe")]
pub(crate) mod native_loop;
#[cfg(feature = "cgroups")]
pub(crate) mod pidfd;
#[cfg(feature = "probe")]
pub(crate) mod scratch_vm;
