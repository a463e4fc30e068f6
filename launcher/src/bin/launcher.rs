//! `garboard-launcher`: the supervisor. Wiring only; see the `supervisor` module.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use garboard_launcher::backup_hook::{self as hook, HookError};
use garboard_launcher::pod::PodPlaces;
use garboard_launcher::probe::{self, ProbeError};
use garboard_launcher::relay;
use garboard_launcher::supervisor::{self, Environment, Program};
use garboard_launcher::virsh::{self, VirshError};
use garboard_protocol::backup_hook;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::paths::Layout;
use garboard_protocol::pod::{INIT_DIRECTORY, RUN_DIRECTORY};
use garboard_protocol::probe::ARGUMENT;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The version of this program.
const VERSION: &str = garboard_protocol::version!();

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let own = arguments.next().unwrap_or_default();
    let arguments: Vec<_> = arguments.collect();
    if Path::new(&own).file_name().is_some_and(|name| name == virsh::NAME) {
        return read_as_virsh(arguments);
    }
    if arguments.first().is_some_and(|first| first == ARGUMENT) {
        return ask_guest(arguments);
    }
    if arguments.first().is_some_and(|first| first == backup_hook::ARGUMENT) {
        return take_step(arguments);
    }
    let texts: Vec<_> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    if texts.as_slice() == ["--version"] {
        use std::io::Write;
        return ExitCode::from(u8::from(writeln!(std::io::stdout(), "garboard-launcher {VERSION}").is_err()));
    }
    if let ["--connect"] | ["--show", _] = texts.as_slice() {
        return relay(texts.get(1).copied());
    }
    let (layout, environment) = match arguments.as_slice() {
        [flag] if flag == "--pod" => (Layout::new(RUN_DIRECTORY), Environment::Pod),
        [machine] => (Layout::new(machine), Environment::Host),
        _ => {
            print_error(
                "usage: garboard-launcher MACHINE_DIRECTORY | --pod | --connect | --show FILE | --probe SECONDS WHAT | --backup-hook STEP | --version",
            );
            return ExitCode::from(64);
        }
    };
    // Every descriptor of QEMU passes through here.
    garboard_common::raise_descriptor_limit();
    let lines = garboard_launcher::log::lines(std::io::stderr);
    let (filter, levels) = garboard_log::filter(std::env::var(garboard_log::VARIABLE).ok().as_deref());
    tracing_subscriber::registry().with(lines).with(filter).init();
    if environment == Environment::Pod
        && let Err(error) = garboard_launcher::pod::populate(&PodPlaces::real())
    {
        tracing::error!(error = %ErrorChain(&error), "the launcher pod's files cannot be used");
        return ExitCode::FAILURE;
    }
    if environment == Environment::Host
        && let Err(error) = supervisor::confine(&layout)
    {
        tracing::error!(error = %ErrorChain(&error), "the supervisor failed");
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_error(&format!("could not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = supervisor::span(&layout).and_then(|vm| {
        let _vm = vm.entered();
        runtime.block_on(supervisor::run(&layout, environment, Program { version: VERSION, levels }))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "the supervisor failed");
            ExitCode::FAILURE
        }
    }
}

/// Where the machines of a bare host are, if not at their usual place.
const RUNTIME_VARIABLE: &str = "GARBOARD_RUNTIME_DIR";

/// A reader's `virsh`: over before anything is set up.
fn read_as_virsh(arguments: Vec<OsString>) -> ExitCode {
    use std::io::Write;
    let root = std::env::var_os(RUNTIME_VARIABLE).unwrap_or_else(|| RUN_DIRECTORY.into());
    let texts: Result<Vec<String>, _> = arguments.into_iter().map(OsString::into_string).collect();
    let unknown = |text: OsString| VirshError::Unknown(text.to_string_lossy().into_owned());
    match texts.map_err(unknown).and_then(|texts| virsh::run(Path::new(&root), &texts, VERSION)) {
        // Who closes the pipe has seen enough.
        Ok(text) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A kubelet's probe: over before anything is set up.
fn ask_guest(arguments: Vec<OsString>) -> ExitCode {
    let texts: Result<Vec<String>, _> = arguments.into_iter().skip(1).map(OsString::into_string).collect();
    let outcome = texts.map_err(|_| ProbeError::Usage).and_then(|texts| probe::run(Path::new(INIT_DIRECTORY), &texts));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&ErrorChain(&error).to_string());
            ExitCode::FAILURE
        }
    }
}

/// A step of a backup tool.
fn take_step(arguments: Vec<OsString>) -> ExitCode {
    use std::io::Write;
    let texts: Result<Vec<String>, _> = arguments.into_iter().skip(1).map(OsString::into_string).collect();
    let outcome = texts.map_err(|_| HookError::Usage).and_then(|texts| hook::run(Path::new(INIT_DIRECTORY), &texts));
    match outcome {
        // A log that cannot be written to undoes nothing.
        Ok(line) => {
            let _ = writeln!(std::io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_error(&ErrorChain(&error).to_string());
            ExitCode::FAILURE
        }
    }
}

/// What `kubectl exec` runs beside the supervisor: standard input and output are the control socket, or a file of the
/// machine's record.
fn relay(file: Option<&str>) -> ExitCode {
    let layout = Layout::new(RUN_DIRECTORY);
    let outcome = match file {
        Some(name) => relay::show(&layout, name),
        None => relay::connect(&layout),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&ErrorChain(&error).to_string());
            ExitCode::FAILURE
        }
    }
}

fn print_error(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "garboard-launcher: {text}");
}
