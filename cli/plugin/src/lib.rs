//! `kubectl garboard`: what the command does for machines of this host, for machines of a cluster; and `garboard cluster`:
//! Garboard itself on one. Supervisors, their protocol and their policy are the same; only the way to them is another
//! (`link`): subresources of KubeVirt and of ours (`subresource`, `stream`, `record`), and the pod (`link`) where no stream can be opened.
//!
//! Portable: no crate that only Linux has, and of the operating system only what the standard library and crossterm offer
//! everywhere. The command `garboard` calls this crate, and takes from it what both write: [`output`], [`table`], [`exit`],
//! [`diagnosis`](Diagnosis), a plan ([`plan_text`]) and a log ([`log_line`]) as people read them.

mod args;
mod complete;
pub mod console;
mod console_session;
mod dashboard;
pub mod difference;
pub mod exit;
mod explain;
mod failure;
mod find;
mod guest_action;
mod kubectl;
mod last_run;
pub mod line;
mod link;
pub mod log_line;
mod logs;
mod look;
mod operate;
pub mod options;
pub mod output;
mod pause;
mod peer;
pub mod plan_text;
mod power;
pub mod qmp;
mod record;
pub mod screen;
mod set_kind;
pub mod several;
mod stream;
mod subresource;
pub mod table;
mod vnc;
mod why;
pub mod yaml;

pub use args::{Plugin, PluginArgs};
#[cfg(unix)]
pub use dashboard::page;
pub use failure::{Failure, bounded};
pub use find::nearest;
pub use look::{Look, Question};
pub use operate::args::{ClusterCommandArgs, host_name};
pub use operate::run as cluster;
pub use set_kind::SetKind;
pub use why::of_machine as diagnose;
pub use why::{Diagnosis, DiagnosisVerdict, Evidence, Finding, Health, screen as diagnosis_screen, seen};

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use args::{ConsoleArgs, PluginCommand};
use console::AttachmentEnd;
use exit::exit_error;
use guest_action::GuestAction;
use kubectl::Kubectl;
use link::Link;

/// The version of this program; images of the same version belong to it.
pub const VERSION: &str = garboard_protocol::version!();

/// The name under which kubectl finds it.
pub const PROGRAM: &str = "kubectl-garboard";

/// The name under which kubectl asks it what may be completed.
const COMPLETER: &str = "kubectl_complete-garboard";

/// As what this program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// By another name.
    Garboard,
    /// As kubectl's plugin.
    Plugin,
    /// As the completer of the plugin's arguments.
    Completer,
}

/// As what this program was called.
#[must_use]
pub fn called() -> Called {
    called_as(std::env::args_os().next().map(PathBuf::from).as_deref())
}

/// By the name alone: `.exe` on Windows does not count.
fn called_as(program: Option<&Path>) -> Called {
    match program.and_then(Path::file_stem).and_then(std::ffi::OsStr::to_str) {
        Some(PROGRAM) => Called::Plugin,
        Some(COMPLETER) => Called::Completer,
        Some(_) | None => Called::Garboard,
    }
}

/// The whole program `kubectl-garboard`: its command line, what it does, its exit code.
#[must_use]
pub fn main() -> ExitCode {
    match Plugin::try_parse() {
        Ok(plugin) => exit::report(run(&plugin.args)),
        Err(error) => misspelt(&error),
    }
}

/// Prints what clap says of a command line that it does not take, or the help that was asked for. Machines are listed by kubectl,
/// so that nobody looks for a command of ours.
#[must_use]
pub fn misspelt(error: &clap::Error) -> ExitCode {
    // Where nobody reads it, there is nobody to tell.
    let _ = error.print();
    if let Some(hint) = hint_for(error.kind()) {
        output::note!("{hint}");
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::BAD_INPUT))
}

fn hint_for(kind: clap::error::ErrorKind) -> Option<&'static str> {
    (kind == clap::error::ErrorKind::InvalidSubcommand)
        .then_some("`kubectl get vm,vmi` lists machines; `kubectl garboard why NAME` says how one is.")
}

/// The whole program `kubectl_complete-garboard`.
#[must_use]
pub fn complete() -> ExitCode {
    exit::report(complete::run())
}

/// `kubectl garboard …`, and `garboard kubectl …`.
pub fn run(args: &PluginArgs) -> anyhow::Result<u8> {
    let kubectl = Kubectl::new(&args.cluster, args.namespace.as_deref());
    match &args.command {
        PluginCommand::Start(args) => power::start(&kubectl, args),
        PluginCommand::Stop(args) => power::stop(&kubectl, args),
        PluginCommand::Restart(args) => power::restart(&kubectl, args),
        PluginCommand::Pause(args) => guest_action::run(&kubectl, args, GuestAction::Pause),
        PluginCommand::Unpause(args) => guest_action::run(&kubectl, args, GuestAction::Unpause),
        PluginCommand::Reset(args) => guest_action::run(&kubectl, args, GuestAction::Reset),
        PluginCommand::SoftReboot(args) => guest_action::run(&kubectl, args, GuestAction::SoftReboot),
        PluginCommand::Freeze(args) => {
            let thaw_after_seconds = (args.unfreeze_timeout > 0).then_some(args.unfreeze_timeout);
            guest_action::run(&kubectl, &args.action, GuestAction::Freeze { thaw_after_seconds })
        }
        PluginCommand::Unfreeze(args) => guest_action::run(&kubectl, args, GuestAction::Unfreeze),
        PluginCommand::Vnc(args) => vnc::run(&kubectl, args),
        PluginCommand::Console(args) => attach(&kubectl, args),
        PluginCommand::Qmp(args) => qmp::run(&kubectl, &args.machine, &args.task),
        PluginCommand::Logs(args) => logs::run(&kubectl, args),
        PluginCommand::Why(args) => why::run(&kubectl, args),
        PluginCommand::Explain(args) => explain::run(&kubectl, args),
        PluginCommand::Dashboard(args) => dashboard::run(&kubectl, args),
        PluginCommand::Cluster { command } => operate::execute(&kubectl, command),
    }
}

fn attach(kubectl: &Kubectl, args: &ConsoleArgs) -> anyhow::Result<u8> {
    match console_session::run(kubectl, &args.machine, console::access(args.mode))? {
        Some(code) => Ok(code),
        None => view(kubectl, args),
    }
}

/// To look on through the pod, where no stream of the subresource can be opened.
fn view(kubectl: &Kubectl, args: &ConsoleArgs) -> anyhow::Result<u8> {
    let place = find::place(kubectl, &args.machine)?;
    let Link { line, mut exec } = Link::open(kubectl, &place)?;
    let outcome = console::view(line);
    // The guest's end and the connection's look alike from here; kubectl's exit code shows which it was.
    let broken = matches!(outcome, Ok(AttachmentEnd::MachineEnded)).then(|| exec.broken()).flatten();
    let left = exec.close(outcome)?;
    if let Some(failure) = broken {
        return Err(exit_error(failure.code(), failure.to_string()));
    }
    console::report_end(left, &place.machine);
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_for_a_list_of_machines_is_sent_to_kubectl() {
        let hint = |arguments: &[&str]| {
            let error = Plugin::try_parse_from(["kubectl-garboard"].iter().chain(arguments)).unwrap_err();
            hint_for(error.kind()).unwrap_or_default()
        };
        for verb in ["ps", "list", "get"] {
            assert!(hint(&[verb]).contains("kubectl get vm,vmi"), "{verb}");
        }
        assert_eq!([hint(&["why", "--nothing"]), hint(&["--help"])], ["", ""]);
    }

    #[test]
    fn it_is_called_by_its_name_wherever_it_is() {
        let table = [
            ("/usr/local/bin/kubectl-garboard", Called::Plugin),
            ("kubectl-garboard.exe", Called::Plugin),
            ("./kubectl_complete-garboard", Called::Completer),
            ("kubectl_complete-garboard.exe", Called::Completer),
            ("garboard", Called::Garboard),
        ];
        for (program, expected) in table {
            assert_eq!(called_as(Some(Path::new(program))), expected, "{program}");
        }
        assert_eq!(called_as(None), Called::Garboard);
    }
}
