//! The supervisor: prepares, launches, drives and reports one machine.

mod attach;
mod backup_hook;
mod broker;
mod confine;
mod console;
mod control;
mod credentials;
mod driver;
mod flood;
mod guest_agent;
mod guest_events;
mod guest_probe;
mod guest_report;
mod init_link;
mod live;
mod lost;
mod monitor;
mod network;
mod numbered;
pub mod prepare;
mod qemu_log;
mod report;
mod run;
mod screenshot;
mod seed;
mod serial_log;
mod served;
mod session;
mod trace;
mod usb_redirection;

pub use confine::confine;
pub(crate) use driver::REQUEST_PATIENCE;
pub(crate) use garboard_common::journal;
pub(crate) use monitor::query_state;
pub use run::{Environment, SupervisorError, run};
pub use trace::span;
