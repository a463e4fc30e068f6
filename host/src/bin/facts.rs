//! `garboard-facts`: prints what this container's QEMU, firmware and processor offer, as JSON. Run once by the launcher of
//! a pod, which must stay small itself.

use std::io::Write;
use std::process::ExitCode;

use garboard_host::{GatherOptions, ProbeCache, gather};

/// What is known already of a QEMU in this image; nothing is written there.
const CACHE: &str = "/var/cache/garboard";

fn main() -> ExitCode {
    let options = GatherOptions::new(ProbeCache::at(CACHE), std::env::var_os("PATH"));
    match gather(&options) {
        Ok(facts) => tell(&facts),
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn tell(facts: &garboard_machine::facts::HostFacts) -> ExitCode {
    let told = serde_json::to_writer(std::io::stdout(), facts);
    if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The error with its causes.
fn complain(error: &dyn std::error::Error) {
    let mut text = format!("garboard-facts: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    let _ = writeln!(std::io::stderr(), "{text}");
}
