//! The transcript of one VM: what was sent on its monitor and agent channels, as JSON lines.
//!
//! For: an administrator who looks for what happened. Not for: replaying, or counting.
//!
//! ```text
//! {"at":"2026-03-01T02:59:58.120391Z","kind":"command","name":"device_add","id":12,"by":"broker client 3","body":{…}}
//! {"at":"2026-03-01T02:59:58.121002Z","kind":"reply","name":"device_add","id":12,"body":{}}
//! {"at":"2026-03-01T02:59:59.000013Z","kind":"event","name":"DEVICE_DELETED","body":{"device":"disk1"}}
//! ```
//!
//! Invariants: no secret gets in (`redact.rs`), every line is printable ASCII and bounded, frequent questions whose
//! answers are not needed are left out unless they fail, and a sink that fails never disturbs the monitor.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::RawValue;
use tracing::warn;

use crate::redact::{Subject, redacted, to_ascii_json};
use crate::text::printable;

/// Commands that are asked again and again. They are written down only when they fail.
const POLLS: &[&str] = &[
    "query-status",
    "query-balloon",
    "query-blockstats",
    // What QEMU holds is compared with the live plan by these, after each event of a tray.
    "query-chardev",
    "qom-list",
    // What the balloon reports, for metrics.
    "qom-get",
    "query-stats",
    "query-migrate",
    "query-jobs",
    "query-block-jobs",
    "query-dirty-rate",
    "query-memory-size-summary",
    "guest-ping",
    "guest-fsfreeze-status",
    "guest-sync",
    "guest-sync-delimited",
];

/// Events a guest can cause as often as it likes and that mean little.
const NOISY_EVENTS: &[&str] =
    &["RTC_CHANGE", "BALLOON_CHANGE", "NIC_RX_FILTER_CHANGED", "MEMORY_DEVICE_SIZE_CHANGE", "HV_BALLOON_STATUS_REPORT"];

/// Takes finished lines. Called from the monitor's task: return quickly, and keep errors to yourself.
pub trait TranscriptSink: Send + Sync {
    /// Keeps one line, which has no line feed.
    fn record(&self, line: &str);
}

/// Writes entries to a sink, or to nowhere.
#[derive(Clone, Default)]
pub(crate) struct Transcript {
    sink: Option<Arc<dyn TranscriptSink>>,
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Transcript").field("recording", &self.sink.is_some()).finish()
    }
}

#[derive(Serialize)]
struct Entry<'a> {
    at: String,
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    body: Box<RawValue>,
}

impl Transcript {
    pub(crate) fn new(sink: Option<Arc<dyn TranscriptSink>>) -> Self {
        Self { sink }
    }

    /// A command is about to be sent, on behalf of `by`.
    pub(crate) fn command(&self, name: &str, id: u64, by: Option<&str>, arguments: &str) {
        if !POLLS.contains(&name) {
            let line = Line { id: Some(id), by, ..Line::of("command", name) };
            self.write(line, || redacted(Subject::Arguments(name), arguments));
        }
    }

    pub(crate) fn reply(&self, name: &str, id: u64, body: &str) {
        if !POLLS.contains(&name) {
            self.write(Line { id: Some(id), ..Line::of("reply", name) }, || redacted(Subject::Reply(name), body));
        }
    }

    pub(crate) fn refusal(&self, name: &str, id: u64, class: &str, desc: &str) {
        // Not redacted: QEMU names the parameter it dislikes, not its value, and "no secret with id" must stay
        // readable.
        let error =
            || to_ascii_json(&serde_json::json!({"class": printable(class, 64), "desc": printable(desc, 1_000)}));
        self.write(Line { id: Some(id), ..Line::of("refusal", name) }, error);
    }

    pub(crate) fn event(&self, name: &str, data: &str) {
        if !NOISY_EVENTS.contains(&name) {
            self.write(Line::of("event", name), || redacted(Subject::EventData, data));
        }
    }

    /// Something that was no message; `shown` is bounded and printable already.
    pub(crate) fn garbage(&self, shown: &str) {
        self.write(Line::of("garbage", ""), || to_ascii_json(&shown));
    }

    /// Something that happened to the connection.
    pub(crate) fn note(&self, what: &'static str, detail: &str) {
        self.write(Line::of("note", what), || to_ascii_json(&printable(detail, 500)));
    }

    fn write(&self, line: Line<'_>, body: impl FnOnce() -> String) {
        let Some(sink) = &self.sink else { return };
        let Line { kind, name, id, by } = line;
        let body = RawValue::from_string(body()).unwrap_or_default();
        let name = &printable(name, 64);
        sink.record(&to_ascii_json(&Entry { at: rfc3339(SystemTime::now()), kind, name, id, by, body }));
    }
}

/// A line without its time and body.
#[derive(Clone, Copy)]
struct Line<'a> {
    kind: &'static str,
    name: &'a str,
    id: Option<u64>,
    by: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn of(kind: &'static str, name: &'a str) -> Self {
        Self { kind, name, id: None, by: None }
    }
}

/// Days of the civil calendar repeat after this many.
const DAYS_PER_ERA: i64 = 146_097;

/// `time` as RFC 3339 in UTC with microseconds. Years 1970 to 9999; earlier times come out as 1970.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(0);
    // Years are counted from March, so that the leap day is the last of its year (Hinnant, "chrono-compatible
    // low-level date algorithms"). Day 719 468 after 1 March of year 0 is 1 January 1970.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let micros = since_epoch.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// A transcript in a file that never grows beyond its limit: when it would, it is renamed to `NAME.1`, replacing the
/// one before, and a new file begins. Disk use is at most twice the limit.
#[derive(Debug)]
pub struct FileTranscript {
    path: PathBuf,
    /// In bytes.
    limit: u64,
    state: Mutex<FileState>,
}

#[derive(Debug)]
struct FileState {
    file: File,
    written: u64,
    /// Whether the last write failed, so that a full disk is logged once and not per line.
    failing: bool,
}

impl FileTranscript {
    /// Opens the file for appending, made readable by its owner only if it is new. `limit` is in bytes.
    pub fn open(path: impl Into<PathBuf>, limit: u64) -> io::Result<Self> {
        let path = path.into();
        let file = open_for_appending(&path)?;
        let written = file.metadata()?.len();
        Ok(Self { path, limit, state: Mutex::new(FileState { file, written, failing: false }) })
    }

    /// Where the file before the present one is, if there was one.
    pub fn previous_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".1");
        PathBuf::from(name)
    }

    fn append(&self, state: &mut FileState, line: &str) -> io::Result<()> {
        let length = line.len() as u64 + 1;
        if state.written > 0 && state.written + length > self.limit {
            std::fs::rename(&self.path, self.previous_path())?;
            state.file = open_for_appending(&self.path)?;
            state.written = 0;
        }
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        state.file.write_all(&bytes)?;
        state.written += length;
        Ok(())
    }
}

fn open_for_appending(path: &Path) -> io::Result<File> {
    let no_link = nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(no_link).open(path)
}

impl TranscriptSink for FileTranscript {
    fn record(&self, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match self.append(&mut state, line) {
            Ok(()) => state.failing = false,
            Err(_) if state.failing => {}
            Err(error) => {
                state.failing = true;
                warn!(path = %self.path.display(), %error, "could not write the QMP transcript; lines are lost");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[derive(Default)]
    struct Lines(Mutex<Vec<String>>);

    impl TranscriptSink for Lines {
        fn record(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }

    fn recorded(write: impl FnOnce(&Transcript)) -> Vec<serde_json::Value> {
        let lines = Arc::new(Lines::default());
        write(&Transcript::new(Some(lines.clone())));
        let lines = lines.0.lock().unwrap();
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_exchange_is_readable_and_holds_no_password() {
        let entries = recorded(|transcript| {
            transcript.command("set_password", 5, Some("broker client 1"), r#"{"password":"hunter2"}"#);
            transcript.refusal("set_password", 5, "GenericError", "no\u{1b}[0m display");
            transcript.event("SHUTDOWN", r#"{"guest":true}"#);
        });
        assert_eq!(entries[0]["body"]["password"], "<redacted>");
        assert_eq!(entries[0]["by"], "broker client 1");
        assert_eq!((&entries[1]["kind"], &entries[1]["id"]), (&"refusal".into(), &5.into()));
        assert_eq!(entries[1]["body"]["desc"], "no\\u{1b}[0m display");
        assert_eq!(entries[2]["body"]["guest"], true);
    }

    #[test]
    fn polls_are_left_out_unless_they_fail() {
        let entries = recorded(|transcript| {
            transcript.command("query-status", 1, None, "{}");
            transcript.reply("query-status", 1, "{}");
            transcript.event("RTC_CHANGE", "{}");
            transcript.refusal("query-status", 2, "GenericError", "why not");
        });
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0]["kind"], "refusal");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| rfc3339(SystemTime::UNIX_EPOCH + Duration::new(seconds, 120_391_000));
        assert_eq!(at(0), "1970-01-01T00:00:00.120391Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.120391Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.120391Z");
        assert_eq!(at(1_772_333_998), "2026-03-01T02:59:58.120391Z");
        assert_eq!(at(4_102_444_800), "2100-01-01T00:00:00.120391Z");
    }

    #[test]
    fn a_file_stays_below_its_limit_and_one_previous_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp.jsonl");
        let file = FileTranscript::open(&path, 1_000).unwrap();
        for number in 0..100 {
            file.record(&format!("{{\"n\":{number:080}}}"));
        }
        let now = std::fs::read_to_string(&path).unwrap();
        let before = std::fs::read_to_string(file.previous_path()).unwrap();
        assert!(now.len() <= 1_000 && before.len() <= 1_000, "{} {}", now.len(), before.len());
        assert!(now.ends_with(&format!("{:080}}}\n", 99)));
        let first_now = now.lines().next().unwrap();
        let last_before = before.lines().last().unwrap();
        assert!(first_now > last_before, "nothing is lost in between");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_is_continued_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp.jsonl");
        for line in ["one", "two"] {
            FileTranscript::open(&path, 1_000).unwrap().record(line);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp.jsonl");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(FileTranscript::open(&path, 1_000).is_err());
    }

    #[test]
    fn a_sink_that_cannot_write_disturbs_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let file = FileTranscript::open(directory.path().join("qmp.jsonl"), 10).unwrap();
        drop(directory);
        for _ in 0..3 {
            file.record("0123456789");
        }
        assert!(file.state.lock().unwrap().failing);
    }
}
