//! The command line of `garboard cluster`.

use clap::{Args, Subcommand};

use crate::args::ClusterArgs;
use crate::options::Output;

/// What `garboard cluster` has after its name.
#[derive(Args, Debug)]
pub struct ClusterCommandArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Install Garboard, or bring an installation to this version; returns when it works.
    Install(Box<InstallArgs>),
    /// Remove Garboard with everything it has put on the cluster.
    Uninstall(UninstallArgs),
    /// Show what runs where, what is wrong and what to do; exit code 1 when something is wrong.
    Status(StatusArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard cluster install
  garboard cluster install --image-registry registry.example/team
  garboard cluster install --image-registry registry.example --image-digest controller=sha256:… \\
      --image-digest node=sha256:… --image-digest launcher=sha256:…
  garboard cluster install --garboard-namespace vms
  garboard cluster install --emulation              # nodes without KVM; slow
  garboard cluster install --dashboard --dashboard-host vms.example.com --dashboard-tls-secret vms-example-com
  garboard cluster install --common-instancetypes   # u1.small and others, for machines to name
  garboard cluster install --print | kubectl diff -f -

Without --image-registry, images have to be loaded on every node (deploy/images/load) and are never pulled. Registry, pull
policy, emulation, dashboard and common instancetypes stay as an earlier installation has them; tag and digests are those of
this version. Installing again is how Garboard is upgraded; machines that run go on.")]
pub(crate) struct InstallArgs {
    /// The registry that has garboard/controller, garboard/node and garboard/launcher.
    #[arg(long, value_name = "HOST[/PATH]")]
    pub(crate) image_registry: Option<String>,
    /// The tag of the images, instead of this version.
    #[arg(long, value_name = "TAG")]
    pub(crate) image_tag: Option<String>,
    /// The digest that an image must have: controller, node or launcher; may be given for each.
    #[arg(long = "image-digest", value_name = "NAME=sha256:DIGEST", value_parser = digest)]
    pub(crate) image_digests: Vec<(String, String)>,
    /// When nodes pull the images: Never as long as no registry was chosen, else IfNotPresent.
    #[arg(long, value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub(crate) image_pull_policy: Option<String>,
    /// The controller's image, instead of the registry's.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) controller_image: Option<String>,
    /// The node agent's image, instead of the registry's.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) node_image: Option<String>,
    /// The image of launcher pods, instead of the registry's.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) launcher_image: Option<String>,
    /// Interpret vCPUs where a node has no KVM, unless a KubeVirt object decides it; =false removes it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) emulation: Option<bool>,
    /// Install the dashboard too: the page of `kubectl garboard dashboard` for users without kubectl; =false removes it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) dashboard: Option<bool>,
    /// A name by which browsers reach the dashboard, beside those of its Service and of a forwarded port; may be given several times.
    #[arg(long = "dashboard-host", value_name = "NAME", value_parser = host_name)]
    pub(crate) dashboard_hosts: Vec<String>,
    /// The Secret with tls.crt and tls.key for these names; empty: a certificate that the controller makes.
    #[arg(long, value_name = "SECRET")]
    pub(crate) dashboard_tls_secret: Option<String>,
    /// Install the common instancetypes and preferences too, unless a KubeVirt object decides it; =false removes those that an
    /// installation has made.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) common_instancetypes: Option<bool>,
    /// Take over fields that another field manager has written.
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    /// How long to wait until everything works, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) timeout: u64,
    /// Print what would be applied, and do nothing.
    #[arg(long)]
    pub(crate) print: bool,
}

/// A name of a host by which browsers reach the dashboard: at most 253 letters, digits, `-` and `.`, without a port.
///
/// # Errors
/// What to write instead.
pub fn host_name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 253;
    let is_allowed = |one: u8| one.is_ascii_alphanumeric() || one == b'-' || one == b'.';
    let is_good = !text.is_empty() && text.len() <= LONGEST && text.bytes().all(is_allowed);
    if is_good { Ok(text.to_owned()) } else { Err("write a name without https:// and port".to_owned()) }
}

/// `NAME=sha256:DIGEST`, of one of the three images.
fn digest(text: &str) -> Result<(String, String), String> {
    const HEX_DIGITS: usize = 64;
    let (name, digest) = text.split_once('=').ok_or("write NAME=sha256:DIGEST")?;
    if !["controller", "node", "launcher"].contains(&name) {
        return Err(format!("unknown image `{name}`; write controller, node or launcher"));
    }
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    if hex.len() != HEX_DIGITS || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(format!("`{digest}` is not a digest; write sha256: and {HEX_DIGITS} digits"));
    }
    Ok((name.to_owned(), digest.to_owned()))
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard cluster uninstall
  garboard cluster uninstall --and-delete-machines

Claims and their data stay. /run/garboard-agent stays on nodes until they start again.")]
pub(crate) struct UninstallArgs {
    /// Shut every machine down and delete it first.
    #[arg(long)]
    pub(crate) and_delete_machines: bool,
    /// How long each step may take, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) timeout: u64,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard cluster status
  garboard cluster status -o json | jq '.parts[] | select(.well | not)'")]
pub(crate) struct StatusArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}
