//! The command line. Every option is here, and so is its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use garboard_kubectl::options::ConsoleMode;
pub(crate) use garboard_kubectl::options::{ListOutput, LogPart, Output, PlanFormat, QmpTask};
use garboard_kubectl::{ClusterCommandArgs, PluginArgs};

use crate::accel::AccelChoice;
use crate::doctor::DoctorArgs;
use crate::exit;
use crate::here::{Here, MachineName};

const ENVIRONMENT: &str = "
Environment: GARBOARD_RUNTIME_DIR, GARBOARD_STATE_DIR, GARBOARD_CACHE_DIR move where things are kept.";

/// Runs virtual machines from kubevirt.io manifests: one QEMU, one argv, one QMP transcript, one log.
#[derive(Debug, Parser)]
#[command(
    name = "garboard",
    version = garboard_kubectl::VERSION,
    long_version = crate::version::LONG.as_str(),
    about = "Runs virtual machines from kubevirt.io manifests, on this host and on Kubernetes",
    after_help = exit::help(false) + ENVIRONMENT,
    propagate_version = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a machine from manifests and attach to its console.
    Run(RunArgs),
    /// List machines: those that run, with -a also those that are recorded.
    #[command(visible_alias = "list")]
    Ps(PsArgs),
    /// Show on one screen how a machine is, since when, why, and what to do.
    Why(WhyArgs),
    /// Attach to a machine's serial console; Ctrl-] detaches.
    Console(ConsoleArgs),
    /// Show how to reach a machine's screen, or proxy it to a TCP port.
    Vnc(VncArgs),
    /// Power machines down: guest agent or ACPI, by force after the grace period.
    Stop(StopArgs),
    /// Power machines down and start them again as they were started.
    Restart(RestartArgs),
    /// Stop the vCPUs of machines.
    Pause(PauseArgs),
    /// Let paused machines run again.
    Unpause(UnpauseArgs),
    /// Press the reset button of machines.
    Reset(ResetArgs),
    /// Have the guests of machines reboot: guest agent, or power button and a reset once it is off.
    SoftReboot(SoftRebootArgs),
    /// Freeze the file systems of guests, by their agents, for a consistent copy of their disks.
    Freeze(FreezeArgs),
    /// Thaw the file systems of guests.
    Unfreeze(UnfreezeArgs),
    /// Show what was recorded of a machine's run: events, argv, QMP transcript, serial output, how it ended.
    Logs(LogsArgs),
    /// Send QMP commands to a machine's QEMU, beside the supervisor; read-only unless --allow-write.
    Qmp(QmpArgs),
    /// Show what `run` would do: QEMU's arguments, plumbing, disks, limits. Touches nothing.
    Explain(ExplainArgs),
    /// Judge manifests: every mistake with its field path and what to write instead.
    Validate(ValidateArgs),
    /// Check this host for virtual machines, and name the remedy of each problem.
    Doctor(DoctorArgs),
    /// Manage the cache of container disk images.
    Image(ImageArgs),
    /// Start, stop and look into machines on a Kubernetes cluster; also `kubectl garboard`, when this program is called kubectl-garboard.
    Kubectl(PluginArgs),
    /// Put Garboard on a Kubernetes cluster, remove it, show its state.
    Cluster(ClusterCommandArgs),
    /// Print a shell completion script.
    Completions(CompletionsArgs),
    /// Write man pages into a directory.
    Man(ManArgs),
}

/// Where manifests come from and what stands in for a cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct ManifestArgs {
    /// Manifest files or directories; `-` reads standard input. Several machines need --name.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The machine to take when the files hold several.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Use PATH (an OCI layout directory, an OCI archive, or a disk image) for the image reference REF.
    #[arg(long = "image", value_name = "REF=PATH", value_parser = parse_image)]
    pub(crate) images: Vec<(String, PathBuf)>,
    /// Ports of this host that lead to the guest.
    #[arg(
        short,
        long = "publish",
        value_name = "HOST:GUEST",
        help = "Forward a port of this host to the guest: [ADDRESS:]HOST:GUEST[/tcp|/udp]"
    )]
    pub(crate) publish: Vec<String>,
    /// Where PVC stand-ins, EFI variables, machines and records are kept.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Leave out what a VirtualMachine keeps of its last run: machine type, PCI and MAC addresses. Its disks stay.
    #[arg(long)]
    pub(crate) forget_machine: bool,
    /// QEMU to execute, instead of the first one found.
    #[arg(long, value_name = "PATH")]
    pub(crate) qemu: Option<PathBuf>,
    /// What runs the guest's instructions.
    #[arg(long, value_enum, default_value_t = AccelChoice::Auto)]
    pub(crate) accel: AccelChoice,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard run examples/vm-hello.yaml
  garboard run --detach -p 2222:22 vm.yaml secret.yaml
  garboard run --image registry.example/guest:1=./guest.qcow2 vm.yaml
  cat vm.yaml | garboard run -

Ctrl-C and SIGTERM power the guest down within its grace period; Ctrl-] detaches and leaves it running.
runStrategy Always and RerunOnFailure start it again after its run, until `garboard stop`; Once, Manual and
Halted run it once.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// Start in the background and return once the guest is started.
    #[arg(short, long)]
    pub(crate) detach: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard ps
  garboard ps -a -o wide
  garboard ps -o name | xargs garboard stop
  garboard ps -o json | jq '.[].status.interfaces'")]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) here: Here,
    /// Also machines that do not run and are recorded.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = ListOutput::Text)]
    pub(crate) output: ListOutput,
}

/// Machines by their names.
#[derive(Args, Debug)]
pub(crate) struct Machines {
    #[command(flatten)]
    pub(crate) here: Here,
    /// NAME or NAMESPACE/NAME.
    #[arg(required = true, value_name = "MACHINE")]
    pub(crate) machines: Vec<MachineName>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard pause hello
  garboard pause default/hello web")]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) which: Machines,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard unpause hello
  garboard unpause default/hello web")]
pub(crate) struct UnpauseArgs {
    #[command(flatten)]
    pub(crate) which: Machines,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard reset hello
  garboard reset default/hello web")]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) which: Machines,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard soft-reboot hello
  garboard soft-reboot default/hello web

A guest that does not react keeps running. It has its terminationGracePeriodSeconds, and at least half a minute.")]
pub(crate) struct SoftRebootArgs {
    #[command(flatten)]
    pub(crate) which: Machines,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard freeze hello
  garboard freeze hello --unfreeze-timeout 30

Programs of the guest wait as soon as they write to a disk. The guest needs an agent.")]
pub(crate) struct FreezeArgs {
    #[command(flatten)]
    pub(crate) which: Machines,
    /// Seconds after which they are thawed unasked; 0: only by `unfreeze`.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) unfreeze_timeout: u64,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard unfreeze hello
  garboard unfreeze default/hello web")]
pub(crate) struct UnfreezeArgs {
    #[command(flatten)]
    pub(crate) which: Machines,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard restart hello
  garboard restart --force hello web

It is started with what it was started with: manifest, images, ports, QEMU. For a changed manifest: stop, then run.")]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    pub(crate) which: Machines,
    /// End it at once, as if the power failed.
    #[arg(long, conflicts_with = "grace_period")]
    pub(crate) force: bool,
    /// Seconds the guest may take, instead of its terminationGracePeriodSeconds.
    #[arg(long, value_name = "SECONDS", visible_alias = "timeout")]
    pub(crate) grace_period: Option<u64>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard why hello
  garboard why hello -o json | jq -r .verdict
  garboard why --exit-code hello > /dev/null || echo trouble")]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    pub(crate) here: Here,
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineName,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Have the exit code say how the machine is.
    #[arg(long, help = exit::help_of_why())]
    pub(crate) exit_code: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard console hello
  garboard console --view hello > serial.txt")]
pub(crate) struct ConsoleArgs {
    #[command(flatten)]
    pub(crate) here: Here,
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineName,
    #[command(flatten)]
    pub(crate) mode: ConsoleMode,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard vnc hello
  garboard vnc hello --listen 127.0.0.1:5900")]
pub(crate) struct VncArgs {
    #[command(flatten)]
    pub(crate) here: Here,
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineName,
    /// Proxy the screen to this TCP address until Ctrl-C. Of this computer only your own processes reach it (Linux); from
    /// others every client that does sees and controls the machine.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard stop hello
  garboard stop hello web
  garboard stop --grace-period 5 hello
  garboard stop --force hello")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) which: Machines,
    /// End it at once, as if the power failed.
    #[arg(long, conflicts_with = "grace_period")]
    pub(crate) force: bool,
    /// Seconds the guest may take, instead of its terminationGracePeriodSeconds.
    #[arg(long, value_name = "SECONDS", visible_alias = "timeout")]
    pub(crate) grace_period: Option<u64>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard logs hello
  garboard logs hello -f --tail 20
  garboard logs hello --part qmp | jq .
  garboard logs --last hello --part serial")]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) here: Here,
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineName,
    /// The last ended run, also when a new one is going.
    #[arg(long)]
    pub(crate) last: bool,
    /// What to show.
    #[arg(long, value_enum, default_value_t = LogPart::Events)]
    pub(crate) part: LogPart,
    /// Go on with what is written from now on, until the run is over.
    #[arg(short, long, conflicts_with = "last")]
    pub(crate) follow: bool,
    /// Only so many lines from the end.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard qmp hello query-status
  garboard qmp hello query-block | jq .
  garboard qmp hello --allow-dangerous device_del '{\"id\":\"net0\"}'
  garboard qmp hello                  # interactive: history, completion, help COMMAND")]
pub(crate) struct QmpArgs {
    #[command(flatten)]
    pub(crate) here: Here,
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineName,
    #[command(flatten)]
    pub(crate) task: QmpTask,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard explain vm.yaml
  garboard explain --shell vm.yaml > qemu.sh
  garboard explain --facts other-host.json -o json vm.yaml   # facts: garboard doctor --facts
  garboard explain --reference vm.yaml                       # the same on every host
  garboard explain --format domain-xml vm.yaml               # for tools that read libvirt's domains
  garboard explain --diff old.yaml new.yaml                  # what the guest would see change; plans (-o json) as well
  garboard explain --against-running hello vm.yaml           # the same, from the machine that runs to its next start

The first line has the host: this one, unless --facts or --reference name another, or this one has no QEMU.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Print only the command line, quoted for a shell.
    #[arg(long)]
    pub(crate) shell: bool,
    /// Print the machine in another language.
    #[arg(long, value_enum, conflicts_with_all = ["shell", "output", "diff", "against_running"])]
    pub(crate) format: Option<PlanFormat>,
    /// Show what a guest would see change from the first file to the second; each may be a plan that `explain -o json` wrote.
    #[arg(long, conflicts_with_all = ["shell", "against_running"])]
    pub(crate) diff: bool,
    /// Show what the guest of this machine, which runs here, would see change if it were started again by the manifest:
    /// NAME or NAMESPACE/NAME.
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["shell", "facts", "reference", "options", "stored"])]
    pub(crate) against_running: Option<MachineName>,
    /// Plan for the host of this file, which `doctor --facts` wrote; `here` is this host and no other, also if it has no QEMU.
    #[arg(long, value_name = "FILE|here")]
    pub(crate) facts: Option<String>,
    /// Plan for a plain Debian 12 host with KVM; what the machine keeps of its last run is left out.
    #[arg(long, conflicts_with = "facts")]
    pub(crate) reference: bool,
    /// Plan with what an earlier run found out about its volumes: the options.json of its record.
    #[arg(long, value_name = "FILE")]
    pub(crate) options: Option<PathBuf>,
    /// Plan with what the first of several runs decided for all of them: the stored.json of a record, if it has one.
    #[arg(long, value_name = "FILE")]
    pub(crate) stored: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard validate vm.yaml
  garboard validate -o json manifests/ | jq '.[] | select(.faults != [])'")]
pub(crate) struct ValidateArgs {
    /// Manifest files or directories; `-` reads standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard image list
  garboard image pull registry.example/guest:1
  garboard image prune")]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List cached images.
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  garboard image list\n  garboard image list -o name\n  garboard image list -o json | jq '.[].disk_bytes'"
    )]
    List {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t = ListOutput::Text)]
        output: ListOutput,
    },
    /// Fetch an image into the cache; prints where its disk is.
    #[command(after_help = "Example:\n  garboard image pull registry.example/guest:1")]
    Pull {
        /// The reference, for example registry.example/guest:1.
        reference: String,
    },
    /// Remove cached images that no running machine uses.
    #[command(after_help = "Example:\n  garboard image prune")]
    Prune,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard completions bash > /etc/bash_completion.d/garboard
  garboard completions zsh > ~/.zfunc/_garboard

kubectl completes `kubectl garboard` by itself if this program is also linked as kubectl_complete-garboard:
  ln -s garboard /usr/local/bin/kubectl_complete-garboard")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
    /// For kubectl-garboard, instead of garboard.
    #[arg(long)]
    pub(crate) plugin: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:
  garboard man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The directory; it is created.
    pub(crate) directory: PathBuf,
}

fn parse_image(text: &str) -> Result<(String, PathBuf), String> {
    // A reference may hold `=` only in a digest's algorithm, which it never does, so the first one separates.
    let (reference, path) = text.split_once('=').ok_or("write REFERENCE=PATH")?;
    if reference.is_empty() || path.is_empty() {
        return Err("write REFERENCE=PATH".into());
    }
    Ok((reference.to_owned(), PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
