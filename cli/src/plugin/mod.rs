//! `kubectl garboard`: what the command does for machines of this host, for machines of a cluster. Supervisors, their
//! protocol and their policy are the same; only the way to them is another ([`link`]).

pub(crate) mod args;
pub(crate) mod complete;
mod explain;
mod failure;
mod find;
pub(crate) mod kubectl;
mod link;
mod logs;
mod moment;
mod power;
mod vnc;
mod why;

pub(crate) use failure::Failure;
pub(crate) use find::nearest;
pub(crate) use why::{Diagnosis, Evidence, Finding, Health, Verdict, age, ready_of, screen, seen};

use args::{ConsoleArgs, PluginArgs, PluginCommand, QmpArgs};
use kubectl::Kubectl;
use link::Link;
use moment::Moment;
use nix::sys::signal::SigSet;

use crate::console::{self, Left};
use crate::exit::{self, complaint};
use crate::qmp;

/// The name under which kubectl finds it.
pub(crate) const PROGRAM: &str = "kubectl-garboard";

/// The name under which kubectl asks it what may be completed.
const COMPLETER: &str = "kubectl_complete-garboard";

/// As what this program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// By its own name.
    Garboard,
    /// As kubectl's plug-in.
    Plugin,
    /// As what completes the plug-in's words.
    Completer,
}

/// As what this program was called.
pub(crate) fn called() -> Called {
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    match called.as_deref().and_then(std::path::Path::file_name).and_then(std::ffi::OsStr::to_str) {
        Some(PROGRAM) => Called::Plugin,
        Some(COMPLETER) => Called::Completer,
        Some(_) | None => Called::Garboard,
    }
}

/// `kubectl garboard …`, and `garboard kubectl …`.
pub(crate) fn run(args: &PluginArgs) -> anyhow::Result<u8> {
    let kubectl = Kubectl::new(&args.cluster, args.namespace.as_deref());
    match &args.command {
        PluginCommand::Start(args) => power::start(&kubectl, args),
        PluginCommand::Stop(args) => power::stop(&kubectl, args),
        PluginCommand::Restart(args) => power::restart(&kubectl, args),
        PluginCommand::Pause(args) => moment::run(&kubectl, args, Moment::Pause),
        PluginCommand::Unpause(args) => moment::run(&kubectl, args, Moment::Unpause),
        PluginCommand::Reset(args) => moment::run(&kubectl, args, Moment::Reset),
        PluginCommand::Vnc(args) => vnc::run(&kubectl, args),
        PluginCommand::Console(args) => attach(&kubectl, args),
        PluginCommand::Qmp(args) => talk(&kubectl, args),
        PluginCommand::Logs(args) => logs::run(&kubectl, args),
        PluginCommand::Why(args) => why::run(&kubectl, args),
        PluginCommand::Explain(args) => explain::run(&kubectl, args),
    }
}

fn attach(kubectl: &Kubectl, args: &ConsoleArgs) -> anyhow::Result<u8> {
    let place = find::place(kubectl, &args.machine)?;
    let mut link = Link::open(kubectl, &place)?;
    let outcome = console::attend_on(&link.line, console::access(args.mode), &SigSet::empty());
    // The guest's end and the connection's look alike from here; kubectl knows which it was.
    let broken = matches!(outcome, Ok(Left::MachineEnded)).then(|| link.broken()).flatten();
    let left = link.close(outcome)?;
    if let Some(failure) = broken {
        return Err(complaint(failure.code(), failure.to_string()));
    }
    console::tell(left, &place.machine);
    Ok(exit::OK)
}

fn talk(kubectl: &Kubectl, args: &QmpArgs) -> anyhow::Result<u8> {
    let place = find::place(kubectl, &args.machine)?;
    let link = Link::open(kubectl, &place)?;
    let outcome = qmp::converse(&link.line, &args.task);
    link.close(outcome)
}
