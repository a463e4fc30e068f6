//! The command line of `kubectl garboard`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::args::{ConsoleMode, LogPart, Output, QmpTask};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  tried and failed; standard error says why
  2  a manifest, file or option is wrong
  3  there is no such machine
  4  the machine's state, or your rights, do not allow it

It drives your kubectl: KUBECONFIG and the options above are passed on. GARBOARD_KUBECTL names another kubectl.
console, qmp and logs --part go through `kubectl exec` and need the right to create pods/exec.";

/// Looks into virtual machines on a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "kubectl-garboard", bin_name = "kubectl garboard", version, propagate_version = true)]
pub(crate) struct Plugin {
    #[command(flatten)]
    pub(crate) args: PluginArgs,
}

#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct PluginArgs {
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
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Attach to a machine's serial console; Ctrl-] detaches.
    Console(ConsoleArgs),
    /// Talk QMP to a machine's QEMU; read-only unless --allow-write.
    Qmp(QmpArgs),
    /// Tell the story of a machine's launcher, or show a part of its record.
    Logs(LogsArgs),
    /// Tell in one screen how a machine is, since when, why, and what to do.
    Why(WhyArgs),
    /// Show what is executed for a machine: QEMU's arguments, plumbing, disks, limits.
    Explain(ExplainArgs),
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
  kubectl garboard logs hello -f
  kubectl garboard logs hello --previous        # of a supervisor that was started again
  kubectl garboard logs hello --part qmp | jq . # while the pod runs")]
pub(crate) struct LogsArgs {
    /// The VirtualMachine or VirtualMachineInstance.
    #[arg(value_parser = parse_name)]
    pub(crate) machine: String,
    /// Go on with what is logged from now on.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Of the supervisor before the present one.
    #[arg(long)]
    pub(crate) previous: bool,
    /// The log's own lines, one JSON object each.
    #[arg(long)]
    pub(crate) json: bool,
    /// What to show.
    #[arg(long, value_enum, default_value_t = LogPart::Events, conflicts_with_all = ["follow", "previous", "json"])]
    pub(crate) part: LogPart,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  kubectl garboard why hello
  kubectl garboard why hello -o json | jq -r .verdict
  kubectl garboard why hello -o facts > facts.json   # what was looked at, for a report
  kubectl garboard why --facts facts.json")]
pub(crate) struct WhyArgs {
    /// The VirtualMachine or VirtualMachineInstance.
    #[arg(value_parser = parse_name, required_unless_present = "facts")]
    pub(crate) machine: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = WhyOutput::Text)]
    pub(crate) output: WhyOutput,
    /// Judge what `-o facts` wrote, and ask no cluster.
    #[arg(long, value_name = "FILE", conflicts_with = "machine")]
    pub(crate) facts: Option<PathBuf>,
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
  kubectl garboard explain -f vm.yaml")]
pub(crate) struct ExplainArgs {
    /// The VirtualMachine or VirtualMachineInstance.
    #[arg(value_parser = parse_name, required_unless_present = "file", conflicts_with = "file")]
    pub(crate) machine: Option<String>,
    /// A manifest, as the cluster would take it (a dry run: nothing is stored).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Print only the command line, quoted for a shell.
    #[arg(long)]
    pub(crate) shell: bool,
}

/// A name, also as `vm/NAME` and `vmi/NAME`: machines and instances share theirs.
fn parse_name(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        None => text,
        Some(("vm" | "vms" | "virtualmachine" | "vmi" | "vmis" | "virtualmachineinstance", name)) => name,
        Some(_) => return Err(format!("`{text}` is not NAME, vm/NAME or vmi/NAME; the namespace is given with -n")),
    };
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
        crate::args::Cli::command().debug_assert();
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
}
