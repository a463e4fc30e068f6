//! `garboard-facts`: prints what this container's QEMU, firmware and processor offer, as JSON. Run once by the launcher of
//! a pod, which must stay small itself.
//!
//! `garboard-facts --node FILE` writes there what a node offers to machines, for its agent, which has no QEMU. It succeeds
//! in any case: an agent without facts of QEMU is better than none, and finds no file.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use garboard_host::offer::NodeOffer;
use garboard_host::{GatherOptions, ProbeCache, gather};
use garboard_protocol::causes::ErrorChain;

/// What is known already of a QEMU in this image; nothing is written there.
const CACHE: &str = "/var/cache/garboard";

fn main() -> ExitCode {
    let options = GatherOptions::new(ProbeCache::at(CACHE), std::env::var_os("PATH"));
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (None, ..) => print_facts(&options),
        (Some(flag), None, None) if flag == OsStr::new("--version") => {
            let version = garboard_protocol::version!();
            ExitCode::from(u8::from(writeln!(std::io::stdout(), "garboard-facts {version}").is_err()))
        }
        (Some(flag), Some(file), None) if flag == OsStr::new("--node") => write_offer(&options, file.as_ref()),
        _ => {
            let _ = writeln!(std::io::stderr(), "usage: garboard-facts [--node FILE | --version]");
            ExitCode::from(64)
        }
    }
}

fn print_facts(options: &GatherOptions) -> ExitCode {
    match gather(options) {
        Ok(facts) => {
            let written = serde_json::to_writer(std::io::stdout(), &facts);
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn write_offer(options: &GatherOptions, file: &Path) -> ExitCode {
    // What an earlier start found may not hold any more.
    let _ = std::fs::remove_file(file);
    match NodeOffer::gather(options) {
        Ok(offer) => {
            let written = serde_json::to_vec(&offer).map_err(std::io::Error::from);
            if let Err(error) = written.and_then(|text| std::fs::write(file, text)) {
                print_error(&error);
            }
        }
        Err(error) => print_error(&error),
    }
    ExitCode::SUCCESS
}

/// The error with its causes.
fn print_error(error: &dyn std::error::Error) {
    let _ = writeln!(std::io::stderr(), "garboard-facts: {}", ErrorChain(error));
}
