//! Programs that are run to their end: `ip`, `nsenter`, `ctr`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::files::at;
use crate::wait::{Patience, until_true};

/// In the environment of every program that changes something on behalf of a command, and of nothing that stays.
const HELPER: &str = "GARBOARD_CLUSTER_HELPER";
/// For a helper that its command left behind.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits for helpers of a command that was killed: what they are at would otherwise come as a surprise.
///
/// # Errors
/// One that does not end.
pub fn wait_for_orphans(logs: &Path) -> Result<()> {
    let patience = Patience { what: "the end of an earlier command's helpers", limit: LIMIT, logs };
    until_true(&patience, || Ok(helpers().is_empty()))
}

/// Processes with the cluster's mark in their environment.
fn helpers() -> Vec<PathBuf> {
    let mark = format!("{HELPER}=1");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes
        .filter(|process| {
            let environment = std::fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        })
        .collect()
}

/// Runs a program and returns what it wrote to standard output.
///
/// # Errors
/// It is not there, or it failed; its standard error is in the message.
pub fn run(program: impl AsRef<OsStr>, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
    run_with(program, arguments, "")
}

/// Runs a program that reads `input`.
///
/// # Errors
/// As [`run`].
pub fn run_with(program: impl AsRef<OsStr>, arguments: &[impl AsRef<OsStr>], input: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).env(HELPER, "1");
    finish(command, input)
}

/// Runs a program that reads a file.
///
/// # Errors
/// As [`run`], or the file is not there.
pub fn run_from(program: impl AsRef<OsStr>, arguments: &[impl AsRef<OsStr>], input: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(at("open", input, File::open(input))?);
    finish(command, "")
}

fn finish(mut command: Command, input: &str) -> Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = show(&command);
    let failed_to_start = |source| Error::Start { command: shown.clone(), source };
    let mut child = command.spawn().map_err(failed_to_start)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading reports its own error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed_to_start)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Failed { command: shown, status: output.status, stderr })
}

/// `ip -batch` with one command a line, in the host's namespace or that of the process.
///
/// # Errors
/// A command that failed; those before it were done.
pub fn ip(inside: Option<i32>, commands: &str) -> Result<()> {
    let outcome = match inside {
        None => run_with("ip", &["-batch", "-"], commands),
        Some(process) => {
            run_with("nsenter", &["--target", &process.to_string(), "--net", "ip", "-batch", "-"], commands)
        }
    };
    outcome.map(drop)
}

/// The command as a person would type it.
fn show(command: &Command) -> String {
    let arguments = std::iter::once(command.get_program()).chain(command.get_args());
    arguments.map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_and_writes() {
        assert_eq!(run_with("cat", &[] as &[&str], "hello").unwrap(), "hello");
    }

    #[test]
    fn a_helper_that_was_left_behind_is_waited_for() {
        let mut orphan = Command::new("cat").env(HELPER, "1").stdin(Stdio::piped()).spawn().unwrap();
        let process = PathBuf::from(format!("/proc/{}", orphan.id()));
        // Its environment can be read a moment after it was started.
        let patience = Patience { what: "the helper", limit: LIMIT, logs: Path::new("/") };
        until_true(&patience, || Ok(helpers().contains(&process))).unwrap();
        drop(orphan.stdin.take());
        orphan.wait().unwrap();
        assert!(!helpers().contains(&process));
    }

    #[test]
    fn a_failure_carries_the_command_and_its_standard_error() {
        let error = run("sh", &["-c", "echo no >&2; exit 3"]).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c echo no >&2; exit 3` ended with exit status: 3: no");
        assert!(matches!(run("/does/not/exist", &[] as &[&str]), Err(Error::Start { .. })));
    }
}
