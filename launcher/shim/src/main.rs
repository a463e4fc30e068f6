//! `garboard-shim`: wiring only; see the library.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use garboard_shim_client::calls::{DELETE, FORCED, RUN, Reason};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [word, machine] if word == RUN => garboard_shim::serve(Path::new(machine)),
        [word, machine] if word == DELETE => garboard_shim::delete(Path::new(machine), Reason::Left),
        [word, machine, forced] if word == DELETE && forced == FORCED => {
            garboard_shim::delete(Path::new(machine), Reason::Forced)
        }
        _ => {
            complain("usage: garboard-shim run MACHINE_DIRECTORY | delete MACHINE_DIRECTORY [--forced]");
            return ExitCode::from(64);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "garboard-shim: {text}");
}
