//! `garboard-shim`: wiring only; see the library.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use garboard_shim_client::calls::{DELETE, FORCED, RUN, Reason};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [command, machine] if command == RUN => garboard_shim::serve(Path::new(machine)),
        [command, machine] if command == DELETE => garboard_shim::delete(Path::new(machine), Reason::Left),
        [command, machine, forced] if command == DELETE && forced == FORCED => {
            garboard_shim::delete(Path::new(machine), Reason::Forced)
        }
        _ => {
            print_error("usage: garboard-shim run MACHINE_DIRECTORY | delete MACHINE_DIRECTORY [--forced]");
            return ExitCode::from(64);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn print_error(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "garboard-shim: {text}");
}
