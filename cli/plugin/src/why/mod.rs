//! `kubectl garboard why`: in one screen, how a machine is, since when, why, and what to do.
//!
//! ```text
//!   kubectl get … ──gather──► Facts ──diagnose (pure)──► Diagnosis ──text──► a person, or JSON
//! ```
//!
//! Of a set of instances and of a pool of machines: `sets`.

mod diagnose;
mod diagnosis;
mod facts;
mod gather;
mod rules;
mod sets;
#[cfg(test)]
mod tests;
mod text;

pub use diagnosis::{Diagnosis, DiagnosisVerdict, Evidence, Finding, Health, seen};
pub(crate) use facts::{age, connected_controllers, ready_of};
pub use text::screen;

use anyhow::Context;
use facts::Facts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sets::SetFacts;

use crate::args::{Subject, WhyArgs, WhyOutput};
use crate::exit::{self, BAD_INPUT, exit_error};
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::look::Look;
use crate::output::{out, outln};

/// Looks at a machine and judges it, for the page in the browser.
///
/// # Errors
/// [`Failure`]: the machine itself cannot be looked at. Of what else the user may not see, the diagnosis has a note.
pub fn of_machine(cluster: &impl Look, name: &str) -> Result<Diagnosis, Failure> {
    gather::gather(cluster, name, jiff::Timestamp::now()).map(|facts| diagnose::diagnose(&facts))
}

/// What was looked at.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Seen {
    /// For a machine.
    Machine(Box<Facts>),
    /// For a set or a pool.
    Set(Box<SetFacts>),
}

impl Seen {
    fn of(kubectl: &Kubectl, subject: &Subject) -> Result<Self, Failure> {
        let now = jiff::Timestamp::now();
        match subject {
            Subject::Machine(name) => gather::gather(kubectl, name, now).map(|facts| Self::Machine(Box::new(facts))),
            Subject::Set(kind, name) => sets::gather(kubectl, *kind, name, now).map(|facts| Self::Set(Box::new(facts))),
        }
    }

    /// What `-o facts` wrote: only facts of sets and pools say of which kind they are.
    fn read(bytes: &[u8]) -> serde_json::Result<Self> {
        fn of<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<Box<T>> {
            serde_json::from_slice(bytes).map(Box::new)
        }
        let written: serde_json::Value = serde_json::from_slice(bytes)?;
        if written["kind"].is_null() { of(bytes).map(Self::Machine) } else { of(bytes).map(Self::Set) }
    }

    fn diagnosis(&self) -> Diagnosis {
        match self {
            Self::Machine(facts) => diagnose::diagnose(facts),
            Self::Set(facts) => sets::judge(facts),
        }
    }

    /// When it was looked.
    fn now(&self) -> jiff::Timestamp {
        match self {
            Self::Machine(facts) => facts.now,
            Self::Set(facts) => facts.now,
        }
    }
}

/// `kubectl garboard why MACHINE`, `vmirs/NAME` and `vmpool/NAME`.
pub(super) fn run(kubectl: &Kubectl, args: &WhyArgs) -> anyhow::Result<u8> {
    let seen = match (&args.facts, &args.machine) {
        (Some(path), _) => {
            let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
            Seen::read(&bytes).map_err(|error| {
                exit_error(BAD_INPUT, format!("{}: not what `why -o facts` writes: {error}", path.display()))
            })?
        }
        (None, Some(subject)) => Seen::of(kubectl, subject).map_err(failed)?,
        (None, None) => return Err(exit_error(BAD_INPUT, "name a machine")),
    };
    if args.output == WhyOutput::Facts {
        outln!("{}", serde_json::to_string_pretty(&seen)?)?;
        return Ok(if args.exit_code { seen.diagnosis().exit_code(true) } else { exit::OK });
    }
    let diagnosis = seen.diagnosis();
    match args.output {
        WhyOutput::Json => outln!("{}", serde_json::to_string_pretty(&diagnosis)?)?,
        WhyOutput::Text | WhyOutput::Facts => out!("{}", text::screen(&diagnosis, seen.now()))?,
    }
    Ok(diagnosis.exit_code(args.exit_code))
}
