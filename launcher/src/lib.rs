//! The two processes of a virtual machine: the supervisor and the PID 1 that executes QEMU.
//!
//! - [`plan`]: VMI and host facts to a launch plan; pure.
//! - [`init`]: PID 1, small and synchronous.
//! - [`vm`]: the life of one machine and the task that owns it.
//! - [`supervisor`]: everything the supervisor does around that task.
//! - [`pod`]: what a supervisor finds in a launcher pod.
//! - [`probe`]: a kubelet's question to the guest, put through the supervisor.
//! - [`relay`]: the way of people's commands into a pod.
//! - [`report`]: what a supervisor's report makes of the status of its VMI; pure.
//! - [`plumbing`]: what whoever makes interfaces for a supervisor does, on a bare host and on a cluster.
//!
//! Neither process links a Kubernetes client or TLS.

pub mod init;
pub mod plan;
pub mod plumbing;
pub mod pod;
pub mod probe;
pub mod relay;
pub mod report;
pub mod supervisor;
mod sys;
pub mod vm;

pub use sys::descriptors::{close_inherited_on_exec, raise_descriptor_limit};
