//! The command line of the node agent.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// The node agent of Garboard: devices, network and status for the launcher pods of one node.
#[derive(Parser, Clone, Debug)]
#[command(
    version,
    after_help = "It runs as root, privileged, with the host's PID namespace, one on each node, and gives up what it does not use."
)]
pub struct Args {
    /// Name of this node in the cluster.
    #[arg(long, env = "NODE_NAME")]
    pub node_name: String,
    /// The directory that launcher pods get mounted; the same path in this container and on the host.
    #[arg(long, default_value = "/run/garboard-agent/pod")]
    pub agent_directory: PathBuf,
    /// Where the kubelet looks for device plugins.
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    pub kubelet_directory: PathBuf,
    /// What `garboard-facts --node` wrote about the QEMU of launchers, from which the node's labels are made.
    #[arg(long, default_value = "/run/garboard-facts/offer.json")]
    pub offer: PathBuf,
    /// The namespace of the installation, in which the controllers are found.
    #[arg(long, env = "POD_NAMESPACE", default_value = "garboard")]
    pub namespace: String,
    /// The file with the token for controllers.
    #[arg(long, default_value = "/var/run/secrets/garboard.dev/token")]
    pub controller_token: PathBuf,
    /// How many of each device are offered: how many guests may share it.
    #[arg(long, default_value_t = 1000)]
    pub devices: u32,
    /// Form of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log: LogFormat,
}

/// Form of log lines.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}
