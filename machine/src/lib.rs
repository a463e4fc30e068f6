//! The QEMU machine as a value: options in QEMU's terms, rendered once. Pure.
//!
//! One struct for each option of the command line, named and spelt as QEMU does (dashes become underscores); what the
//! guest sees ([`device`]) and what serves it ([`blockdev`], [`netdev`], [`chardev`]) are always two values.
//! [`machine::Machine`] collects them, [`argv`] turns them into text.
//!
//! Not for deciding what a machine has: the planner does. Not for starting QEMU either.

#![forbid(unsafe_code)]

pub mod argv;
pub mod blockdev;
pub mod board;
pub mod chardev;
pub mod clock;
pub mod cpu;
pub mod device;
pub mod facts;
pub mod features;
pub mod firmware;
pub mod id;
pub mod machine;
pub mod memory;
pub mod netdev;
pub mod object;
pub mod overhead;
pub mod pci;
pub mod process;
pub mod qcow2;
mod reference;
pub mod tolerant;
