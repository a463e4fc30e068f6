//! `garboard-launcher`: the supervisor. Wiring only; see the `supervisor` module.

use std::path::PathBuf;
use std::process::ExitCode;

use garboard_launcher::supervisor;
use garboard_launcher::vm::Chain;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(shared), None) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        complain("usage: garboard-launcher SHARED_DIRECTORY");
        return ExitCode::from(64);
    };
    let filter = EnvFilter::try_from_env("GARBOARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("could not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(supervisor::run(&shared)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %Chain(&error), "the supervisor cannot run");
            ExitCode::FAILURE
        }
    }
}

fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "garboard-launcher: {text}");
}
