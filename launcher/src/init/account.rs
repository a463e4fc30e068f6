//! The account of QEMU's end: how, how much memory, last output; kept for the supervisor and for Kubernetes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use garboard_protocol::exit::{Account, EndHints, ExitReport, ProcessEnd, explain};
use garboard_protocol::paths;

use super::own::OwnDirectory;

/// The end of QEMU's log.
pub(super) fn last_output(log: &Path) -> String {
    fs::File::open(log).map(crate::last_output::of).unwrap_or_default()
}

/// Kubernetes' termination log, for the last output: opened before anything is given up, for afterwards no path leads to it. QEMU
/// never has it.
#[derive(Clone)]
pub(super) struct TerminationLog(Option<Arc<fs::File>>);

impl TerminationLog {
    /// One that cannot be opened is reported on standard error.
    pub(super) fn open(path: Option<&Path>) -> Self {
        Self(path.and_then(|path| {
            let opened = fs::OpenOptions::new().write(true).open(path);
            opened
                .map(Arc::new)
                .inspect_err(|error| print_error(&format!("could not open {}: {error}", path.display())))
                .ok()
        }))
    }

    fn write_text(&self, text: &str) {
        let Some(file) = &self.0 else { return };
        if let Err(error) = file.write_all_at(text.as_bytes(), 0) {
            print_error(&format!("could not write the termination log: {error}"));
        }
    }
}

/// Writes the account where the supervisor and Kubernetes look for it. A full disk must not keep PID 1 from
/// exiting, so failures are only reported on standard error.
pub(super) fn write(own: &OwnDirectory, log: &TerminationLog, report: &ExitReport) {
    if let Err(error) = write_report(own, report) {
        print_error(&format!("could not write {}: {error}", paths::EXIT));
    }
    let cause = explain(report, EndHints::default());
    let account = Account { reason: cause.reason(), message: &cause.message() }.to_string();
    log.write_text(&format!("{account}\n{}\n", report.last_output));
}

fn write_report(own: &OwnDirectory, report: &ExitReport) -> std::io::Result<()> {
    let fresh = own.file("exit.json.new");
    fs::write(&fresh, serde_json::to_vec(report)?)?;
    fs::rename(fresh, own.file(paths::EXIT))
}

/// One line on standard error, the only log PID 1 has.
pub(super) fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr(), "garboard-init: {text}");
}

/// The exit code of PID 1 itself: 0 when QEMU left with 0, 128+n for a signal, as shells do.
pub(super) fn exit_code(end: ProcessEnd) -> u8 {
    match end {
        ProcessEnd::Exited { code } => u8::try_from(code).unwrap_or(1),
        ProcessEnd::Signalled { signal } => u8::try_from(128 + signal).unwrap_or(255),
        ProcessEnd::NeverStarted | ProcessEnd::Unknown => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_output_reaches_a_log_whose_path_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "").unwrap();
        let log = TerminationLog::open(Some(&path));
        let elsewhere = directory.path().join("moved");
        fs::rename(&path, &elsewhere).unwrap();
        log.write_text("QEMU crashed with signal 11\n");
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), "QEMU crashed with signal 11\n");
        TerminationLog::open(Some(&path)).write_text("no reader");
    }

    #[test]
    fn the_exit_code_is_a_shells() {
        assert_eq!(exit_code(ProcessEnd::Exited { code: 0 }), 0);
        assert_eq!(exit_code(ProcessEnd::Signalled { signal: 9 }), 137);
        assert_eq!(exit_code(ProcessEnd::NeverStarted), 1);
    }
}
