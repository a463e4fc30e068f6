//! `kubectl garboard why`: in one screen, how a machine is, since when, why, and what to do.
//!
//! ```text
//!   kubectl get … ──gather──► Facts ──diagnose (pure)──► Diagnosis ──text──► a person, or JSON
//! ```

mod diagnose;
mod diagnosis;
mod facts;
mod gather;
mod rules;
#[cfg(test)]
mod tests;
mod text;

pub use diagnosis::{Diagnosis, DiagnosisVerdict, Evidence, Finding, Health, seen};
pub(crate) use facts::{age, connected_controllers, ready_of};
pub use text::screen;

use anyhow::Context;
use facts::Facts;

use crate::args::{WhyArgs, WhyOutput};
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

/// `kubectl garboard why MACHINE`.
pub(super) fn run(kubectl: &Kubectl, args: &WhyArgs) -> anyhow::Result<u8> {
    let facts = match (&args.facts, &args.machine) {
        (Some(path), _) => {
            let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
            serde_json::from_slice::<Facts>(&bytes).map_err(|error| {
                exit_error(BAD_INPUT, format!("{}: not what `why -o facts` writes: {error}", path.display()))
            })?
        }
        (None, Some(name)) => gather::gather(kubectl, name, jiff::Timestamp::now()).map_err(failed)?,
        (None, None) => return Err(exit_error(BAD_INPUT, "name a machine")),
    };
    if args.output == WhyOutput::Facts {
        outln!("{}", serde_json::to_string_pretty(&facts)?)?;
        return Ok(if args.exit_code { diagnose::diagnose(&facts).exit_code(true) } else { exit::OK });
    }
    let diagnosis = diagnose::diagnose(&facts);
    match args.output {
        WhyOutput::Json => outln!("{}", serde_json::to_string_pretty(&diagnosis)?)?,
        WhyOutput::Text | WhyOutput::Facts => out!("{}", text::screen(&diagnosis, facts.now))?,
    }
    Ok(diagnosis.exit_code(args.exit_code))
}
