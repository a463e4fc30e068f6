//! `virsh`, as far as it reads: what people who know libvirt ask of a machine, from its plan and its supervisor.
//!
//! ```text
//!   kubectl exec POD -c launcher -- virsh domblklist default_hello
//!     plan.json ──► domain, disks, interfaces        control.sock ──► state, QMP through the broker, which only reads
//! ```
//!
//! In a pod there is one machine; on a bare host those of a directory, numbered by name. Nothing here changes a machine.

mod arguments;
mod machines;
mod monitor;
mod table;

use std::path::Path;

use garboard_domain_xml::{DomainContext, block_rows, domain_xml, interface_rows};
use garboard_protocol::control::{PauseReason, ReportedPhase, Status};

use self::arguments::{Command, Listed, Which};
use self::machines::Machine;
use self::table::table;

/// The name by which this is called, and the option that has the same effect.
pub const NAME: &str = "virsh";

/// Why a command did not end well: what `virsh` prints behind `error: `.
#[derive(Debug, thiserror::Error)]
pub enum VirshError {
    /// No command of libvirt's.
    #[error("unknown command: '{0}'")]
    Unknown(String),
    /// One that changes a machine or a host.
    #[error("'{command}' is not here, as this virsh only reads; {instead}")]
    ReadOnly {
        /// The command.
        command: String,
        /// What does it.
        instead: &'static str,
    },
    /// An option before the command that is not here.
    #[error("unsupported option '{0}'. See --help.")]
    Global(String),
    /// An option that the command does not have here.
    #[error("command '{command}' doesn't support option {option}")]
    Option {
        /// The command.
        command: &'static str,
        /// The option.
        option: String,
    },
    /// More than the command takes.
    #[error("unexpected data '{0}'")]
    Excess(String),
    /// Less than the command takes.
    #[error("command '{command}' requires <{option}> option")]
    Requires {
        /// The command.
        command: &'static str,
        /// What is missing.
        option: &'static str,
    },
    /// There is no such machine.
    #[error("failed to get domain '{0}'")]
    NoDomain(String),
    /// A file of a machine cannot be read.
    #[error("could not read {name} of the machine: {source}")]
    File {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The supervisor does not answer.
    #[error("the supervisor did not answer: {0}")]
    Supervisor(#[source] std::io::Error),
    /// Its answer is of another version.
    #[error("the supervisor's answer could not be parsed")]
    Answer,
    /// It refuses.
    #[error("{0}")]
    Denied(String),
    /// What is to be sent to QEMU is no QMP.
    #[error("the command is not QMP: write for example '{{\"execute\":\"query-status\"}}'")]
    NoQmp,
}

/// What a command line prints to standard output; `version` is the program's.
///
/// # Errors
/// [`VirshError`].
pub fn run(root: &Path, arguments: &[String], version: &str) -> Result<String, VirshError> {
    match arguments::parse(arguments)? {
        Command::Help => Ok(arguments::help()),
        Command::Version => Ok(format!("{version}\n")),
        Command::List { states, listed } => list(&Machine::all(root), states, listed),
        Command::DumpXml { domain, inactive } => {
            let machine = Machine::find(root, &domain)?;
            let id = if inactive { None } else { machine.number_if_active() };
            let sockets = machine.layout.supervisor().to_string_lossy().into_owned();
            let context = DomainContext { sockets: &sockets, id };
            Ok(domain_xml(&machine.plan()?, context) + "\n")
        }
        Command::State { domain, reason } => {
            let (state, because) = state(Machine::find(root, &domain)?.status()?.as_ref());
            Ok(if reason { format!("{state} ({because})\n\n") } else { format!("{state}\n\n") })
        }
        Command::Disks { domain, details } => disks(&Machine::find(root, &domain)?, details),
        Command::Interfaces { domain } => interfaces(&Machine::find(root, &domain)?),
        Command::Monitor { domain, pretty, command } => monitor::ask(&Machine::find(root, &domain)?, &command, pretty),
    }
}

/// State and reason of a machine with libvirt's names; nothing of one that is still prepared.
fn state(status: Option<&Status>) -> (&'static str, &'static str) {
    let Some(status) = status else { return ("shut off", "unknown") };
    match (status.phase, status.paused) {
        (ReportedPhase::Scheduled, _) => ("shut off", "unknown"),
        (ReportedPhase::Succeeded, _) => ("shut off", "shutdown"),
        (ReportedPhase::Failed, _) => ("shut off", "failed"),
        (ReportedPhase::Running, Some(PauseReason::PausedIOError)) => ("paused", "I/O error"),
        (ReportedPhase::Running, Some(PauseReason::PausedByUser)) => ("paused", "user"),
        (ReportedPhase::Running, None) if status.stopping => ("in shutdown", "user"),
        (ReportedPhase::Running, None) => ("running", "booted"),
    }
}

fn list(machines: &[Machine], states: Which, listed: Listed) -> Result<String, VirshError> {
    let mut rows = Vec::new();
    let mut text = String::new();
    for machine in machines {
        let (state, _) = state(machine.status()?.as_ref());
        let is_active = state != "shut off";
        let is_listed = match states {
            Which::Active => is_active,
            Which::Inactive => !is_active,
            Which::All => true,
        };
        if !is_listed {
            continue;
        }
        let id = if is_active { machine.number.to_string() } else { "-".to_owned() };
        match listed {
            Listed::Table => rows.push(vec![id, machine.name()?, state.to_owned()]),
            Listed::Name => text.push_str(&format!("{}\n", machine.name()?)),
            Listed::Uuid => text.push_str(&format!("{}\n", machine.uuid()?.unwrap_or_else(|| "-".to_owned()))),
            Listed::Id => text.push_str(&format!("{id}\n")),
        }
    }
    Ok(match listed {
        Listed::Table => table(&["Id", "Name", "State"], &rows),
        Listed::Name | Listed::Uuid | Listed::Id => text + "\n",
    })
}

fn disks(machine: &Machine, details: bool) -> Result<String, VirshError> {
    let rows = block_rows(&machine.plan()?).into_iter().map(|row| {
        let mut cells = if details { vec![row.kind.to_owned(), row.device.to_owned()] } else { Vec::new() };
        cells.extend([row.target, row.source.unwrap_or_else(|| "-".to_owned())]);
        cells
    });
    let rows: Vec<_> = rows.collect();
    let headings: &[&str] = if details { &["Type", "Device", "Target", "Source"] } else { &["Target", "Source"] };
    Ok(table(headings, &rows))
}

fn interfaces(machine: &Machine) -> Result<String, VirshError> {
    let rows = interface_rows(&machine.plan()?).into_iter().map(|row| {
        let tap = row.interface.unwrap_or_else(|| "-".to_owned());
        vec![tap, row.kind.to_owned(), "-".to_owned(), row.model.to_owned(), row.mac]
    });
    let rows: Vec<_> = rows.collect();
    Ok(table(&["Interface", "Type", "Source", "Model", "MAC"], &rows))
}

#[cfg(test)]
mod tests;
