//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use garboard_test_cluster::component::Target;
use garboard_test_cluster::layout::{ClusterName, NodeNumber};
use nix::sys::signal::Signal;

/// A real Kubernetes of several nodes on one machine, for tests.
///
/// TARGET is node-N, a program of the control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
/// kwok), or node-N/containerd, node-N/kubelet, node-N/kube-proxy.
#[derive(Debug, Parser)]
#[command(name = "cluster", version)]
pub(crate) struct Cli {
    /// Which cluster: one to eight lower-case letters and digits.
    #[arg(long, global = true, default_value = "main")]
    pub(crate) name: ClusterName,

    /// Keep everything below this directory instead of /run/garboard-cluster and /var/lib/garboard-cluster.
    #[arg(long, global = true)]
    pub(crate) directory: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the cluster, or repair it. The last line printed is `export KUBECONFIG=…`.
    Up {
        /// Real nodes, at most 20. A cluster that has fewer gets the rest.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=20))]
        nodes: u8,
        /// Nodes that KWOK plays: they take pods with a toleration and run nothing.
        #[arg(long, default_value_t = 0)]
        kwok: u16,
        /// What `scripts/fetch-cluster` printed; otherwise what it made last.
        #[arg(long)]
        programs: Option<PathBuf>,
    },
    /// Take everything away, whatever state it is in.
    Down,
    /// What runs. Ends with 1 when something does not.
    Status {
        /// For people, or for programs.
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// A component's log, the ends of a node's logs, or of all.
    Logs {
        /// Whose.
        target: Option<Target>,
        /// Go on with what comes.
        #[arg(short, long)]
        follow: bool,
    },
    /// A hang: the target gets no processor any more.
    Freeze {
        /// What hangs.
        target: Target,
    },
    /// The end of a hang.
    Thaw {
        /// What goes on.
        target: Target,
    },
    /// End a program, or lose a node with all that runs on it.
    Kill {
        /// What ends.
        target: Target,
        /// For a program; a node is always lost at once.
        #[arg(long, default_value = "SIGKILL", value_parser = signal)]
        signal: Signal,
    },
    /// Bring back what was killed.
    Start {
        /// What comes back.
        target: Target,
    },
    /// Cut a node's link: it runs on, and no other node reaches it.
    Partition {
        /// Which.
        node: NodeNumber,
    },
    /// Join it again.
    Heal {
        /// Which.
        node: NodeNumber,
    },
    /// Give an image (a tar of an OCI layout, or of `docker save`) to the nodes' containerd.
    Load {
        /// The archive.
        archive: PathBuf,
        /// Only to this node.
        #[arg(long)]
        node: Option<NodeNumber>,
    },
    /// Run a program inside a node's namespaces.
    Exec {
        /// Which.
        node: NodeNumber,
        /// Program and arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Print the path for KUBECONFIG.
    Kubeconfig,
    /// What this program does for itself.
    #[command(subcommand, hide = true)]
    Internal(Internal),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Internal {
    /// Start a program in the background.
    Daemon {
        #[arg(long)]
        group: String,
        #[arg(long)]
        log: PathBuf,
        #[arg(long)]
        programs: PathBuf,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Be a node's first process.
    NodeInit {
        #[arg(long)]
        state: PathBuf,
        #[arg(long)]
        bulk: PathBuf,
        cluster: ClusterName,
        node: NodeNumber,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

/// `KILL`, `SIGKILL` or `kill`.
fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_uppercase();
    let full = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    full.parse().map_err(|_| format!("`{text}` is no signal"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn signals_have_the_names_people_use() {
        for name in ["TERM", "SIGTERM", "term"] {
            assert_eq!(signal(name), Ok(Signal::SIGTERM));
        }
        assert!(signal("nothing").is_err());
    }
}
