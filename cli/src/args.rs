//! The command line. Every option is here, and so is its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::doctor::DoctorArgs;
use crate::operate::args::ClusterCommandArgs;
use crate::places::MachineId;
use crate::plugin::args::PluginArgs;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  tried and failed; standard error says why
  2  a manifest, file or option is wrong; nothing was started
  3  there is no such machine
  4  the machine's state does not allow it
  5  run without --detach: the guest's run ended badly

Environment: GARBOARD_RUNTIME_DIR, GARBOARD_STATE_DIR, GARBOARD_CACHE_DIR move where things are kept.";

/// Runs virtual machines from kubevirt.io manifests: one QEMU, one argv, one QMP transcript, one log.
#[derive(Debug, Parser)]
#[command(name = "garboard", version, about, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a machine from manifests and attach to its console.
    Run(RunArgs),
    /// List running machines.
    Ps(PsArgs),
    /// Attach to a machine's serial console; Ctrl-] detaches.
    Console(ConsoleArgs),
    /// Show how to reach a machine's screen, or proxy it to a TCP port.
    Vnc(VncArgs),
    /// Power a machine down: guest agent or ACPI, by force after its grace period.
    Stop(StopArgs),
    /// Stop a machine's vCPUs.
    Pause(MachineArgs),
    /// Let a paused machine run again.
    Unpause(MachineArgs),
    /// Press a machine's reset button.
    Reset(MachineArgs),
    /// Show what was recorded of a machine's run: events, argv, QMP transcript, serial output, how it ended.
    Logs(LogsArgs),
    /// Talk QMP to a machine's QEMU, beside the supervisor; read-only unless --allow-write.
    Qmp(QmpArgs),
    /// Show what `run` would do: QEMU's arguments, plumbing, disks, limits. Touches nothing.
    Explain(ExplainArgs),
    /// Judge manifests: every mistake with its field path and what to write instead.
    Validate(ValidateArgs),
    /// Tell what this host can do for machines, and how to mend what it cannot.
    Doctor(DoctorArgs),
    /// Manage the cache of container disk images.
    Image(ImageArgs),
    /// Look into machines on a Kubernetes cluster; also `kubectl garboard`, when this program is called kubectl-garboard.
    Kubectl(PluginArgs),
    /// Put Garboard on a Kubernetes cluster, take it off, tell how it is.
    Cluster(ClusterCommandArgs),
    /// Print a shell completion script.
    Completions(CompletionsArgs),
    /// Write man pages into a directory.
    Man(ManArgs),
    /// The background process of one machine; `run` starts it.
    #[command(hide = true)]
    Keeper(KeeperArgs),
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
    /// Who runs the guest's instructions.
    #[arg(long, value_enum, default_value_t = AccelChoice::Auto)]
    pub(crate) accel: AccelChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccelChoice {
    /// KVM where it really works, else TCG, with a line that says so.
    Auto,
    /// KVM or nothing.
    Kvm,
    /// TCG.
    Tcg,
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
    /// Start in the background and return once the guest runs.
    #[arg(short, long)]
    pub(crate) detach: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard ps
  garboard ps -o json | jq '.[].interfaces'")]
pub(crate) struct PsArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:
  garboard pause default/hello")]
pub(crate) struct MachineArgs {
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineId,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard console hello
  garboard console --view hello > serial.txt")]
pub(crate) struct ConsoleArgs {
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineId,
    #[command(flatten)]
    pub(crate) mode: ConsoleMode,
}

/// What a viewer of a console may do.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ConsoleMode {
    /// Look only.
    #[arg(long, conflicts_with = "take_over")]
    pub(crate) view: bool,
    /// Take the keyboard from whoever has it.
    #[arg(long)]
    pub(crate) take_over: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard vnc hello
  garboard vnc hello --listen 127.0.0.1:5900")]
pub(crate) struct VncArgs {
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineId,
    /// Proxy the screen to this TCP address until Ctrl-C.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard stop hello
  garboard stop --grace-period 5 hello
  garboard stop --force hello")]
pub(crate) struct StopArgs {
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineId,
    /// End it at once, as if the power failed.
    #[arg(long, conflicts_with = "grace_period")]
    pub(crate) force: bool,
    /// Seconds the guest may take, instead of its terminationGracePeriodSeconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace_period: Option<u64>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard logs hello
  garboard logs hello --part qmp | jq .
  garboard logs --last hello --part serial")]
pub(crate) struct LogsArgs {
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineId,
    /// The last ended run, also when a new one is going.
    #[arg(long)]
    pub(crate) last: bool,
    /// What to show.
    #[arg(long, value_enum, default_value_t = LogPart::Events)]
    pub(crate) part: LogPart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogPart {
    /// The supervisor's story in order, then how it ended.
    Events,
    /// QEMU's arguments, one a line.
    Argv,
    /// The plan as JSON.
    Plan,
    /// The QMP transcript, one JSON a line.
    Qmp,
    /// What QEMU itself printed.
    Qemu,
    /// The end of the serial output.
    Serial,
    /// How it ended, as JSON.
    Exit,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard qmp hello query-status
  garboard qmp hello query-block | jq .
  garboard qmp hello --allow-dangerous device_del '{\"id\":\"net0\"}'
  garboard qmp hello                  # interactive: history, completion, help COMMAND")]
pub(crate) struct QmpArgs {
    /// NAME or NAMESPACE/NAME.
    pub(crate) machine: MachineId,
    #[command(flatten)]
    pub(crate) task: QmpTask,
}

/// What is said to QEMU.
#[derive(Args, Debug)]
pub(crate) struct QmpTask {
    /// Command to execute; without it the session is interactive.
    pub(crate) command: Option<String>,
    /// Its arguments as a JSON object.
    pub(crate) arguments: Option<String>,
    /// Let commands through that change the machine; it is then marked as tainted.
    #[arg(long)]
    pub(crate) allow_write: bool,
    /// Let dangerous commands through as well: quit, migrate, device_del, human-monitor-command and their like.
    #[arg(long)]
    pub(crate) allow_dangerous: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  garboard explain vm.yaml
  garboard explain --shell vm.yaml > qemu.sh
  garboard explain --facts other-host.json -o json vm.yaml   # facts: garboard doctor --facts")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Print only the command line, quoted for a shell.
    #[arg(long)]
    pub(crate) shell: bool,
    /// Plan for this host instead of a plain Debian 12 one: a file written by `doctor --facts`, or `here`, which also
    /// counts what the machine keeps of its last run.
    #[arg(long, value_name = "FILE|here")]
    pub(crate) facts: Option<String>,
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
    List {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Fetch an image into the cache.
    Pull {
        /// The reference, for example registry.example/guest:1.
        reference: String,
    },
    /// Remove cached images that no running machine uses.
    Prune,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
    /// For kubectl-garboard, instead of garboard.
    #[arg(long)]
    pub(crate) plugin: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The directory; it is created.
    pub(crate) directory: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct KeeperArgs {
    /// The keeper's order: a JSON file that `run` wrote.
    pub(crate) order: PathBuf,
}

fn parse_image(text: &str) -> Result<(String, PathBuf), String> {
    // A reference may hold `=` only in a digest's algorithm, which it never does, so the first one separates.
    let (reference, path) = text.split_once('=').ok_or("write REFERENCE=PATH")?;
    if reference.is_empty() || path.is_empty() {
        return Err("write REFERENCE=PATH".into());
    }
    Ok((reference.to_owned(), PathBuf::from(path)))
}
