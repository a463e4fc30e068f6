//! The account of QEMU's end: how, how much memory, last words; kept for the supervisor and for Kubernetes.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use garboard_protocol::exit::{Account, EndHints, ExitReport, ProcessEnd, explain};
use garboard_protocol::paths;

use super::own::OwnDirectory;

const LAST_WORDS_BYTES: u64 = 4096;

/// Counts OOM kills of our cgroup from its creation on. cgroup v2 first, then v1
/// (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`). It holds the files open, because
/// after isolation no path leads to them.
pub struct MemoryWitness {
    events: Option<fs::File>,
    limit: Option<fs::File>,
    kills_before: u64,
}

impl Default for MemoryWitness {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryWitness {
    /// Counts from now on, for the group that this process is in.
    #[must_use]
    pub fn new() -> Self {
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let (v2, v1) = memory_directories(&membership);
        let open = |v2_name: &str, v1_name: &str| {
            let v2_file = v2.as_ref().and_then(|directory| fs::File::open(directory.join(v2_name)).ok());
            v2_file.or_else(|| fs::File::open(v1.as_ref()?.join(v1_name)).ok())
        };
        let events = open("memory.events", "memory.oom_control");
        let limit = open("memory.max", "memory.limit_in_bytes");
        let mut witness = Self { events, limit, kills_before: 0 };
        witness.kills_before = witness.count();
        witness
    }

    /// How many processes of the group the OOM killer has ended since.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.count().saturating_sub(self.kills_before)
    }

    /// The group's limit, bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> Option<u64> {
        // v1 says "no limit" with a number near 2^63, v2 with the word `max`.
        read_again(self.limit.as_ref()?)?.trim().parse::<u64>().ok().filter(|bytes| *bytes < 1 << 60)
    }

    fn count(&self) -> u64 {
        let text = self.events.as_ref().and_then(read_again);
        text.and_then(|text| keyed_number(&text, "oom_kill")).unwrap_or(0)
    }
}

fn read_again(mut file: &fs::File) -> Option<String> {
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Where the memory controller of this process is visible: (v2, v1).
fn memory_directories(membership: &str) -> (Option<PathBuf>, Option<PathBuf>) {
    let (mut v2, mut v1) = (None, None);
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            v2 = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
                .iter()
                .map(|root| Path::new(root).join(path))
                .find(|directory| directory.join("memory.events").exists());
        } else if controllers.split(',').any(|controller| controller == "memory") {
            v1 = [format!("/sys/fs/cgroup/memory/{path}"), "/sys/fs/cgroup/memory".to_owned()]
                .map(PathBuf::from)
                .into_iter()
                .find(|directory| directory.join("memory.oom_control").exists());
        }
    }
    (v2, v1)
}

fn keyed_number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The end of QEMU's log: control characters escaped, bounded.
pub(super) fn last_words(log: &Path) -> String {
    let Ok(mut file) = fs::File::open(log) else { return String::new() };
    let length = file.metadata().map(|metadata| metadata.len()).unwrap_or(0);
    if file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES))).is_err() {
        return String::new();
    }
    let mut bytes = Vec::new();
    if file.take(LAST_WORDS_BYTES).read_to_end(&mut bytes).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    text.trim()
        .chars()
        .flat_map(|character| {
            let printable = character == '\n' || !character.is_control();
            if printable { vec![character] } else { character.escape_default().collect() }
        })
        .collect()
}

/// Where Kubernetes wants the last words: opened before anything is given up, for afterwards no path leads to it. QEMU
/// never has it.
#[derive(Clone)]
pub(super) struct TerminationLog(Option<Arc<fs::File>>);

impl TerminationLog {
    /// One that cannot be opened is told on standard error.
    pub(super) fn open(path: Option<&Path>) -> Self {
        Self(path.and_then(|path| {
            let opened = fs::OpenOptions::new().write(true).open(path);
            opened
                .map(Arc::new)
                .inspect_err(|error| complain(&format!("could not open {}: {error}", path.display())))
                .ok()
        }))
    }

    fn say(&self, text: &str) {
        let Some(file) = &self.0 else { return };
        if let Err(error) = file.write_all_at(text.as_bytes(), 0) {
            complain(&format!("could not write the termination log: {error}"));
        }
    }
}

/// Writes the account where the supervisor and Kubernetes look for it. A full disk must not keep PID 1 from
/// exiting, so failures are only told on standard error.
pub(super) fn write(own: &OwnDirectory, log: &TerminationLog, report: &ExitReport) {
    if let Err(error) = write_report(own, report) {
        complain(&format!("could not write {}: {error}", paths::EXIT));
    }
    let cause = explain(report, EndHints::default());
    let account = Account { word: cause.word(), text: &cause.sentence() }.to_string();
    log.say(&format!("{account}\n{}\n", report.last_words));
}

fn write_report(own: &OwnDirectory, report: &ExitReport) -> std::io::Result<()> {
    let fresh = own.file("exit.json.new");
    fs::write(&fresh, serde_json::to_vec(report)?)?;
    fs::rename(fresh, own.file(paths::EXIT))
}

/// One line on standard error, the only log PID 1 has.
pub(super) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "garboard-init: {text}");
}

/// The exit code of PID 1 itself: 0 when QEMU left with 0, 128+n for a signal, as shells do.
pub(super) fn exit_code(end: ProcessEnd) -> u8 {
    match end {
        ProcessEnd::Exited { code } => u8::try_from(code).unwrap_or(1),
        ProcessEnd::Signalled { signal } => u8::try_from(128 + signal).unwrap_or(255),
        ProcessEnd::NeverStarted => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_whole_name() {
        let text = "low 0\noom 3\noom_kill 2\noom_group_kill 9\n";
        assert_eq!(keyed_number(text, "oom_kill"), Some(2));
        assert_eq!(keyed_number("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "oom_kill"), Some(5));
        assert_eq!(keyed_number("", "oom_kill"), None);
    }

    #[test]
    fn last_words_are_bounded_and_printable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [b"x".repeat(10_000), b"\x1b[31mred\n".to_vec()].concat()).unwrap();
        let words = last_words(file.path());
        assert!(words.len() < 5000 && words.ends_with("\\u{1b}[31mred"), "{words}");
    }

    #[test]
    fn the_last_words_reach_a_log_whose_path_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "").unwrap();
        let log = TerminationLog::open(Some(&path));
        let elsewhere = directory.path().join("moved");
        fs::rename(&path, &elsewhere).unwrap();
        log.say("QEMU crashed with signal 11\n");
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), "QEMU crashed with signal 11\n");
        TerminationLog::open(Some(&path)).say("nobody listens");
    }

    #[test]
    fn the_exit_code_is_a_shells() {
        assert_eq!(exit_code(ProcessEnd::Exited { code: 0 }), 0);
        assert_eq!(exit_code(ProcessEnd::Signalled { signal: 9 }), 137);
        assert_eq!(exit_code(ProcessEnd::NeverStarted), 1);
    }
}
