//! The command line of `kubectl garboard`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit;
use crate::operate::args::ClusterCommand;
use crate::options::{ConsoleMode, LogPart, Output, PlanFormat, QmpTask};
use crate::set_kind::SetKind;

const HOW: &str = "
It drives your kubectl: KUBECONFIG and the options above are passed on. GARBOARD_KUBECTL names another kubectl.
start, stop, restart, pause, unpause, reset, soft-reboot, freeze, unfreeze, console and vnc use subresources of KubeVirt, each with a
right of its own (update virtualmachines/start, get virtualmachineinstances/console, ...), as the roles admin and edit have them.
qmp uses subresources.garboard.dev: virtualmachineinstances/qmp-read, with --allow-write qmp-write, with --allow-dangerous qmp-dangerous;
logs --part virtualmachineinstances/logs; logs --part argv or plan, and explain of a machine that runs, virtualmachineinstances/plan.
Where the console's subresource cannot be reached, console --view goes through `kubectl exec` and needs the right to create pods/exec.
dashboard uses the API with your rights, and those subresources for its buttons. why, and logs without --part, only read.
cluster install and uninstall need the rights of an administrator.";

/// Starts, stops and looks into virtual machines on a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "kubectl-garboard", bin_name = "kubectl garboard", version = crate::VERSION, propagate_version = true)]
pub struct Plugin {
    /// Everything on it.
    #[command(flatten)]
    pub args: PluginArgs,
}

/// What `kubectl garboard` and `garboard kubectl` have after their names.
#[derive(Args, Debug)]
#[command(after_help = exit::help(true) + HOW)]
pub struct PluginArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The namespace, instead of the context's.
    #[arg(short, long, global = true, value_name = "NAMESPACE", help_heading = "Cluster")]
    pub(crate) namespace: Option<String>,
    #[command(subcommand)]
    pub(crate) command: PluginCommand,
}

/// Options of `kubectl` that are passed on.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// The file with clusters and users, instead of KUBECONFIG.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The cluster of the kubeconfig.
    #[arg(long = "cluster", global = true, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,
    /// The user of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Act as this user.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Act as a member of this group; may be given several times.
    #[arg(long, global = true, value_name = "GROUP")]
    pub(crate) as_group: Vec<String>,
    /// The namespace Garboard is installed in; GARBOARD_NAMESPACE is the same.
    #[arg(long, global = true, value_name = "NAMESPACE")]
    pub(crate) garboard_namespace: Option<String>,
    /// Act as the user with this UID.
    #[arg(long, global = true, value_name = "UID")]
    pub(crate) as_uid: Option<String>,
    /// The API server's address, instead of the kubeconfig's.
    #[arg(short, long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A bearer token for the API server.
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// The file with the certificates of authorities that the API server's is checked by.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// How long one request to the API server may take: 30s, 2m; 0 is for ever.
    #[arg(long, global = true, value_name = "DURATION")]
    pub(crate) request_timeout: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Start machines, and wait until their guests run.
    Start(PowerArgs),
    /// Power machines down; they stay down.
    Stop(StopArgs),
    /// Stop machines and start them again, with what was changed in them meanwhile.
    Restart(PowerArgs),
    /// Stop the vCPUs of machines.
    Pause(GuestActionArgs),
    /// Let paused machines run again.
    Unpause(GuestActionArgs),
    /// Press the reset button of machines.
    Reset(GuestActionArgs),
    /// Ask the guests of machines to reboot: guest agent, or power button and a reset once it is off.
    SoftReboot(GuestActionArgs),
    /// Freeze the file systems of guests, by their agents, for a consistent copy of their disks.
    Freeze(FreezeArgs),
    /// Thaw the file systems of guests.
    Unfreeze(GuestActionArgs),
    /// Show a machine's screen: a viewer if there is one here, else a port for one.
    Vnc(VncArgs),
    /// Attach to a machine's serial console; Ctrl-] detaches.
    Console(ConsoleArgs),
    /// Send QMP commands to a machine's QEMU; read-only unless --allow-write.
    Qmp(QmpArgs),
    /// Show the log of a machine's launcher, or a part of its record.
    Logs(LogsArgs),
    /// Show in one screen how a machine is, since when, why, and what to do.
    Why(WhyArgs),
    /// Show what is executed for a machine: QEMU's arguments, plumbing, disks, limits.
    Explain(ExplainArgs),
    /// Serve a page for the browser: machines, why they are as they are, start and stop, serial console, screen.
    Dashboard(DashboardArgs),
    /// Install Garboard on the cluster, remove it, show how it is; also `garboard cluster`.
    Cluster {
        /// What to do.
        #[command(subcommand)]
        command: ClusterCommand,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard start hello
  kubectl garboard restart hello web
  kubectl garboard -n tenant start vm/hello --no-wait

A machine of runStrategy Manual or RerunOnFailure is started by a request in its status, which its strategy does not
change; one that is Halted becomes Always. Restart: Always, RerunOnFailure and Manual.")]
pub(crate) struct PowerArgs {
    /// VirtualMachines.
    #[arg(required = true, value_name = "MACHINE", value_parser = parse_name)]
    pub(crate) machines: Vec<String>,
    /// How long to wait until it is so, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) timeout: u64,
    /// Ask for it, and do not wait.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard stop hello
  kubectl garboard stop hello web --grace-period 5
  kubectl garboard stop --force hello

A machine of runStrategy Always or Once becomes Halted; one of Manual or RerunOnFailure stays what it is.
With less time than a stop that is under way has left, this hastens that one.")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) power: PowerArgs,
    /// End it at once, as if the power failed.
    #[arg(long, conflicts_with = "grace_period")]
    pub(crate) force: bool,
    /// Seconds the guest may take, instead of its terminationGracePeriodSeconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace_period: Option<u64>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard pause hello
  kubectl garboard unpause hello web
  kubectl garboard reset hello
  kubectl garboard soft-reboot hello --timeout 300")]
pub(crate) struct GuestActionArgs {
    /// VirtualMachines or VirtualMachineInstances.
    #[arg(required = true, value_name = "MACHINE", value_parser = parse_name)]
    pub(crate) machines: Vec<String>,
    /// How long to wait until it is so, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard freeze hello
  kubectl garboard freeze hello --unfreeze-timeout 30

Programs of the guest wait as soon as they write to a disk. The guest needs an agent.")]
pub(crate) struct FreezeArgs {
    #[command(flatten)]
    pub(crate) action: GuestActionArgs,
    /// Seconds after which they are thawed unasked; 0: only by `unfreeze`.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) unfreeze_timeout: u64,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard vnc hello                              # starts remote-viewer, vncviewer, gvncviewer or krdc
  kubectl garboard vnc hello --proxy-only                 # prints the address and serves it until Ctrl-C
  kubectl garboard vnc hello --proxy-only --listen 127.0.0.1:5900")]
pub(crate) struct VncArgs {
    /// The VirtualMachine or VirtualMachineInstance.
    #[arg(value_parser = parse_name)]
    pub(crate) machine: String,
    /// Start no viewer; print the address.
    #[arg(long)]
    pub(crate) proxy_only: bool,
    /// Where viewers connect; port 0 is any that is free. Every client that reaches it sees and controls the machine; on Linux
    /// other users of this computer are refused.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: std::net::SocketAddr,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard console hello
  kubectl garboard -n tenant console --view hello > serial.txt
  echo reboot | kubectl garboard console hello")]
pub(crate) struct ConsoleArgs {
    /// The VirtualMachine or VirtualMachineInstance.
    #[arg(value_parser = parse_name)]
    pub(crate) machine: String,
    #[command(flatten)]
    pub(crate) mode: ConsoleMode,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard qmp hello query-status
  kubectl garboard qmp hello query-block | jq .
  kubectl garboard qmp hello --allow-write stop
  kubectl garboard qmp hello                  # interactive: history, completion, help COMMAND")]
pub(crate) struct QmpArgs {
    /// The VirtualMachine or VirtualMachineInstance.
    #[arg(value_parser = parse_name)]
    pub(crate) machine: String,
    #[command(flatten)]
    pub(crate) task: QmpTask,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard logs hello
  kubectl garboard logs hello -f --tail 20
  kubectl garboard logs hello --previous        # of a supervisor that was started again
  kubectl garboard logs hello --part qmp | jq . # until the run is over
  kubectl garboard logs hello --last            # the record of the last run, when the pod is gone
  kubectl get machinerun hello-1a2b3c4d -o json > run.json; kubectl garboard logs --record run.json --part serial")]
pub(crate) struct LogsArgs {
    /// The VirtualMachine or VirtualMachineInstance.
    #[arg(value_parser = parse_name, required_unless_present = "record")]
    pub(crate) machine: Option<String>,
    /// Go on with what is logged from now on.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only so many lines from the end.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u32>,
    /// Of the supervisor before the present one.
    #[arg(long)]
    pub(crate) previous: bool,
    /// The log's own lines, one JSON object each.
    #[arg(long)]
    pub(crate) json: bool,
    /// The record that the last run has left; it needs no pod.
    #[arg(long, conflicts_with_all = ["follow", "tail", "previous", "json"])]
    pub(crate) last: bool,
    /// A record in a file, as `kubectl get machinerun -o json` writes it; asks no cluster.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::AnyPath, conflicts_with_all = ["machine", "last", "follow", "tail", "previous", "json"])]
    pub(crate) record: Option<PathBuf>,
    /// What to show.
    #[arg(long, value_enum, default_value_t = LogPart::Events, conflicts_with_all = ["follow", "tail", "previous", "json"])]
    pub(crate) part: LogPart,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard why hello
  kubectl garboard why vmpool/web             # the pool, and the first of its machines that is not well
  kubectl garboard why hello -o json | jq -r .verdict
  kubectl garboard why --exit-code hello > /dev/null || echo trouble
  kubectl garboard why hello -o facts > facts.json   # what was looked at, for a report
  kubectl garboard why --facts facts.json")]
pub(crate) struct WhyArgs {
    /// The VirtualMachine or VirtualMachineInstance; `vmirs/NAME` is a set of instances, `vmpool/NAME` a pool of machines.
    #[arg(value_parser = parse_subject, required_unless_present = "facts")]
    pub(crate) machine: Option<Subject>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = WhyOutput::Text)]
    pub(crate) output: WhyOutput,
    /// Judge what `-o facts` wrote, and ask no cluster.
    #[arg(long, value_name = "FILE", conflicts_with = "machine")]
    pub(crate) facts: Option<PathBuf>,
    /// Have the exit code say how the machine is.
    #[arg(long, help = exit::help_of_why())]
    pub(crate) exit_code: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhyOutput {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// Everything that was looked at, as JSON.
    Facts,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard explain hello
  kubectl garboard explain --shell hello > qemu.sh
  kubectl garboard explain --format domain-xml hello
  kubectl garboard explain -f vm.yaml
  kubectl garboard explain --diff old.yaml new.yaml        # what the guest would see change
  kubectl garboard explain --against-running hello         # the same from now to the next start
  kubectl garboard explain --against-running hello -f new.yaml")]
pub(crate) struct ExplainArgs {
    /// The VirtualMachine or VirtualMachineInstance.
    #[arg(value_parser = parse_name, required_unless_present_any = ["file", "diff", "against_running"], conflicts_with_all = ["file", "diff", "against_running"])]
    pub(crate) machine: Option<String>,
    /// Show what a guest would see change from one manifest to another; each may be a plan that `explain -o json` wrote.
    #[arg(long, num_args = 2, value_names = ["A", "B"], value_hint = clap::ValueHint::AnyPath, conflicts_with_all = ["file", "shell"])]
    pub(crate) diff: Option<Vec<PathBuf>>,
    /// Show what the guest of this machine would see change at its next start, by its present spec or that of -f.
    #[arg(long, value_name = "MACHINE", value_parser = parse_name, conflicts_with_all = ["diff", "shell"])]
    pub(crate) against_running: Option<String>,
    /// A manifest, as the cluster would take it (a dry run: nothing is stored).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Print only the command line, quoted for a shell.
    #[arg(long)]
    pub(crate) shell: bool,
    /// Print the machine in another language.
    #[arg(long, value_enum, conflicts_with_all = ["shell", "output", "diff", "against_running"])]
    pub(crate) format: Option<PlanFormat>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard dashboard                      # prints an address of 127.0.0.1; Ctrl-C ends it
  kubectl garboard --context lab dashboard --open
  ssh -t -L 8001:127.0.0.1:8001 bastion kubectl garboard dashboard --port 8001

The page does what your kubectl may do. The address lets one browser in, once; Enter prints another one. It stays with the
context that was chosen when it started, and ends with what started it: a terminal, or a pipe at either end.")]
#[cfg_attr(not(unix), allow(dead_code, reason = "the command refuses there"))]
pub(crate) struct DashboardArgs {
    /// The port of 127.0.0.1; 0 is any that is free.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// Start the browser of this computer, by a file that only you may read.
    #[arg(long)]
    pub(crate) open: bool,
}

/// What `why` is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A VirtualMachine or an instance.
    Machine(String),
    /// A set of instances, or a pool of machines.
    Set(SetKind, String),
}

/// As [`parse_name`], and `vmirs/NAME` and `vmpool/NAME`.
fn parse_subject(text: &str) -> Result<Subject, String> {
    match text.split_once('/') {
        None => checked(text).map(Subject::Machine),
        Some((kind, name)) if is_of_machines(kind) => checked(name).map(Subject::Machine),
        Some((kind, name)) => match SetKind::named(kind) {
            Some(kind) => checked(name).map(|name| Subject::Set(kind, name)),
            None => Err(format!(
                "`{text}` is not NAME, vm/NAME, vmi/NAME, vmirs/NAME or vmpool/NAME; the namespace is given with -n"
            )),
        },
    }
}

/// A name, also as `vm/NAME` and `vmi/NAME`: machines and instances share theirs.
fn parse_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        None => checked(text),
        Some((kind, name)) if is_of_machines(kind) => checked(name),
        Some(_) => Err(format!("`{text}` is not NAME, vm/NAME or vmi/NAME; the namespace is given with -n")),
    }
}

fn is_of_machines(kind: &str) -> bool {
    matches!(kind, "vm" | "vms" | "virtualmachine" | "vmi" | "vmis" | "virtualmachineinstance")
}

fn checked(name: &str) -> Result<String, String> {
    let allowed = |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-' || one == b'.';
    if name.is_empty() || name.len() > 253 || !name.bytes().all(allowed) || name.starts_with(['-', '.']) {
        return Err(format!("`{name}` is not a name of lower-case letters, digits, `-` and `.`"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Plugin::command().debug_assert();
    }

    #[test]
    fn options_of_kubectl_may_stand_anywhere() {
        let line = ["kubectl-garboard", "console", "vm/hello", "-n", "tenant", "--context=lab", "--as", "ada"];
        let plugin = Plugin::try_parse_from(line).unwrap();
        assert_eq!(plugin.args.namespace.as_deref(), Some("tenant"));
        assert_eq!(plugin.args.cluster.context.as_deref(), Some("lab"));
        let PluginCommand::Console(console) = plugin.args.command else { panic!("not a console") };
        assert_eq!(console.machine, "hello");
    }

    #[test]
    fn what_is_no_name_never_reaches_kubectl() {
        for text in ["pod/x", "-x", "--all", "", "A", "a b", "vm/"] {
            assert!(parse_name(text).is_err(), "{text}");
        }
        assert_eq!(parse_name("vmi/a-1.b").unwrap(), "a-1.b");
    }

    #[test]
    fn why_is_asked_about_sets_and_pools_too() {
        for text in ["pod/x", "-x", "vmpool/", "vmpool/A", "vmirs/a/b", ""] {
            assert!(parse_subject(text).is_err(), "{text}");
        }
        for text in ["a", "vm/a", "vmis/a"] {
            assert_eq!(parse_subject(text).unwrap(), Subject::Machine("a".to_owned()));
        }
        for (text, kind) in [("vmirs/a", SetKind::ReplicaSet), ("virtualmachinepools/a", SetKind::Pool)] {
            assert_eq!(parse_subject(text).unwrap(), Subject::Set(kind, "a".to_owned()));
        }
        assert!(parse_name("vmpool/a").is_err(), "other commands take machines");
    }
}
