//! The two processes of a virtual machine: the supervisor and the PID 1 that executes QEMU.
//!
//! - [`init`]: PID 1, small and synchronous.
//! - [`vm`]: the life of one machine, which only decides.
//! - [`supervisor`]: the task that owns the machine, and everything around it.
//! - [`backup_hook`]: a backup tool's step, put through the supervisor.
//! - [`clock`]: where clocks are read.
//! - [`log`]: the form of a log line.
//! - [`pod`]: what a supervisor finds in a launcher pod.
//! - [`probe`]: a kubelet's question to the guest, put through the supervisor.
//! - [`relay`]: the way of users' commands into a pod.
//! - [`virsh`]: what people who know libvirt ask of a machine.
//!
//! Neither process links a Kubernetes client or TLS.

pub mod backup_hook;
pub mod clock;
pub mod init;
mod last_output;
pub mod log;
pub mod pod;
pub mod probe;
pub mod relay;
pub mod supervisor;
mod sys;
pub mod virsh;
pub mod vm;
