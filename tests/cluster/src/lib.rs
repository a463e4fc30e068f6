//! A real Kubernetes of several nodes on one machine, as a product that tests stand on.
//!
//! ```text
//! host:   etcd  kube-apiserver  kube-controller-manager  kube-scheduler  [kwok]
//!                 │ 172.30.0.1:6443
//!     ────────────┴─────── bridge gbk-NAME ───────────────────
//!       │ gbk1-NAME                      │ gbk2-NAME
//!     node-1: namespaces of its own    node-2
//!       first process (this program)     …
//!       containerd  kubelet  kube-proxy
//!       pods 10.244.1.0/24
//! ```
//!
//! [`layout`] and [`config`] decide and are pure; everything else does. Nothing is remembered by a process: what belongs
//! to a cluster is found by its name, in control groups, links and directories, so any command may die at any moment and
//! the next one goes on.
#![forbid(unsafe_code)]

pub mod api;
pub mod cgroups;
pub mod cluster;
pub mod component;
pub mod config;
pub mod error;
pub mod faults;
pub mod files;
pub mod inside;
pub mod layout;
pub mod links;
pub mod logs;
pub mod node;
pub mod pki;
pub mod process;
pub mod report;
pub mod status;
pub mod teardown;
pub mod tool;
pub mod up;
pub mod wait;
