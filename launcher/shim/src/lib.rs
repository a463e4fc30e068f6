//! `garboard-shim`: the background process of one machine on a bare host. It does what kubelet and node agent do on a cluster.
//!
//! ```text
//!   command ──launch-request.json──► shim ─┬─ resources: directory, network namespace, cgroup      (undone in reverse)
//!                                          ├─ agent.sock: opens volumes, makes interfaces
//!                                          ├─ supervisor   (started again whenever it dies, after a pause: `restarts`)
//!                                          └─ PID 1        (once; when it is gone the run is over)
//!                                                │
//!                                decide: again, when, or not ──► the same resources, the next run
//! ```
//!
//! It holds no state of the machine: killed, it leaves the guest running, and [`delete()`] removes what it made from names
//! alone. Commands use `garboard-shim-client`, never this library.

mod agent_server;
mod aside;
mod children;
mod decide;
mod delete;
mod ending;
mod logs;
mod pause;
mod projected;
mod publish;
mod record;
mod resources;
mod restarts;
mod run;
mod run_journal;
mod serve;
mod spawn;
mod volume_files;

pub use delete::delete;
pub use serve::serve;
