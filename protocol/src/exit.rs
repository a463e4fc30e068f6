//! How a QEMU process ended, as PID 1 saw it and as the supervisor explains it.
//!
//! The one home of causes: [`ExitCause`] is the cause with its details, [`CauseWord`] is it in one word for programs,
//! [`Account`] is word and sentence in one text, for where Kubernetes has room for a text only.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the process left, from `waitpid(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "how")]
pub enum ProcessEnd {
    /// It called `exit` with this code, 0–255.
    Exited {
        /// The exit code.
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        /// The signal's number (`signal(7)`).
        signal: i32,
    },
    /// It was never executed.
    NeverStarted,
    /// In a way that only a later build knows.
    #[serde(other)]
    Unknown,
}

/// Why the guest's run is over. Total: every way QEMU can end maps to exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "cause")]
pub enum ExitCause {
    /// The guest powered itself off.
    GuestShutdown,
    /// The guest rebooted and its `rebootPolicy` is `Terminate`.
    GuestReboot,
    /// The guest's kernel panicked and said so (pvpanic).
    GuestPanic,
    /// The guest's watchdog fired with an action that ends the run.
    Watchdog,
    /// We asked the guest to power down and it did.
    StoppedGracefully,
    /// We asked, the grace period passed, and QEMU was ended.
    GracePeriodExceeded,
    /// Somebody asked for an immediate stop.
    ForceStopped,
    /// The kernel's OOM killer ended QEMU: the machine used more memory than its limit.
    OutOfMemory {
        /// The cgroup's limit in bytes, when there was one.
        limit_bytes: Option<u64>,
    },
    /// QEMU refused to start or gave up by itself; its last words say why.
    QemuFailed {
        /// QEMU's exit code; 0 where it gave up on the guest (`internal-error`) and was told to leave.
        code: i32,
    },
    /// A signal nobody here sent ended QEMU.
    QemuKilled {
        /// The signal's number.
        signal: i32,
    },
    /// QEMU died by a fault of its own (SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGSYS).
    QemuCrashed {
        /// The signal's number.
        signal: i32,
    },
    /// QEMU and its PID 1 were killed at once, so that neither could say why. In a container that is most often the kernel's
    /// OOM killer on cgroup v2; Kubernetes then says `OOMKilled`.
    MachineKilled,
    /// QEMU was never started, or could not be driven and was ended before the guest ran; the message says why.
    NotStarted {
        /// What stood in the way.
        message: String,
    },
    /// A build that is newer than the reader named a cause that the reader does not know.
    #[serde(other)]
    Unknown,
}

/// Defines the words, their list and their spelling in one place.
macro_rules! cause_words {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A cause in one word, for programs. The words are stable: they are the reasons of the condition `garboard.dev/Ended`, they begin
        /// termination messages and events, and `why` goes by them. There may be more of them, and none goes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CauseWord {
            $($(#[$doc])* $name,)*
        }

        impl CauseWord {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As it is written.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

cause_words! {
    /// [`ExitCause::GuestShutdown`].
    GuestShutdown,
    /// [`ExitCause::GuestReboot`].
    GuestReboot,
    /// [`ExitCause::GuestPanic`].
    GuestPanic,
    /// [`ExitCause::Watchdog`].
    Watchdog,
    /// [`ExitCause::StoppedGracefully`].
    StoppedGracefully,
    /// [`ExitCause::GracePeriodExceeded`].
    GracePeriodExceeded,
    /// [`ExitCause::ForceStopped`].
    ForceStopped,
    /// [`ExitCause::OutOfMemory`].
    OutOfMemory,
    /// [`ExitCause::QemuFailed`].
    QemuFailed,
    /// [`ExitCause::QemuKilled`].
    QemuKilled,
    /// [`ExitCause::QemuCrashed`].
    QemuCrashed,
    /// [`ExitCause::MachineKilled`].
    MachineKilled,
    /// [`ExitCause::NotStarted`].
    NotStarted,
    /// [`ExitCause::Unknown`], and what a reader makes of a word that is newer than it.
    Unknown,
}

impl CauseWord {
    /// The word that is written so; [`Self::Unknown`] if there is no such word.
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self::ALL.iter().copied().find(|word| word.as_str() == text).unwrap_or(Self::Unknown)
    }

    /// Whether the VMI's phase is `Succeeded` (else `Failed`), inventory: shutdown and asked-for stops
    /// succeed, crashes and a stop that had to be forced do not.
    #[must_use]
    pub const fn is_success(self) -> bool {
        match self {
            Self::GuestShutdown | Self::GuestReboot | Self::StoppedGracefully | Self::ForceStopped => true,
            Self::GuestPanic
            | Self::Watchdog
            | Self::GracePeriodExceeded
            | Self::OutOfMemory
            | Self::QemuFailed
            | Self::QemuKilled
            | Self::QemuCrashed
            | Self::MachineKilled
            | Self::NotStarted
            | Self::Unknown => false,
        }
    }

    /// Whether the event of this end is a warning. The guest's own end and a stop that was asked for are none, even if the
    /// guest had to be ended.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        match self {
            Self::GuestShutdown
            | Self::GuestReboot
            | Self::StoppedGracefully
            | Self::ForceStopped
            | Self::GracePeriodExceeded => false,
            Self::GuestPanic
            | Self::Watchdog
            | Self::OutOfMemory
            | Self::QemuFailed
            | Self::QemuKilled
            | Self::QemuCrashed
            | Self::MachineKilled
            | Self::NotStarted
            | Self::Unknown => true,
        }
    }
}

impl fmt::Display for CauseWord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// How a run ended, as one text: `WORD: SENTENCE`. PID 1's termination message begins so (further lines are what QEMU
/// printed last), and so does the event `Stopped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    /// The cause.
    pub word: CauseWord,
    /// What follows the word.
    pub text: &'a str,
}

impl<'a> Account<'a> {
    /// Reads what [`fmt::Display`] writes. Earlier versions wrote the sentence alone, and later ones may have words that are
    /// not known here: the cause is unknown then, and all of the text is to be shown.
    #[must_use]
    pub fn read(text: &'a str) -> Self {
        let unknown = Self { word: CauseWord::Unknown, text };
        let Some((head, rest)) = text.split_once(": ") else { return unknown };
        if CauseWord::ALL.iter().any(|word| word.as_str() == head) {
            Self { word: CauseWord::read(head), text: rest }
        } else {
            unknown
        }
    }
}

impl fmt::Display for Account<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.word, self.text)
    }
}

impl ExitCause {
    /// It in one word.
    #[must_use]
    pub fn word(&self) -> CauseWord {
        match self {
            Self::GuestShutdown => CauseWord::GuestShutdown,
            Self::GuestReboot => CauseWord::GuestReboot,
            Self::GuestPanic => CauseWord::GuestPanic,
            Self::Watchdog => CauseWord::Watchdog,
            Self::StoppedGracefully => CauseWord::StoppedGracefully,
            Self::GracePeriodExceeded => CauseWord::GracePeriodExceeded,
            Self::ForceStopped => CauseWord::ForceStopped,
            Self::OutOfMemory { .. } => CauseWord::OutOfMemory,
            Self::QemuFailed { .. } => CauseWord::QemuFailed,
            Self::QemuKilled { .. } => CauseWord::QemuKilled,
            Self::QemuCrashed { .. } => CauseWord::QemuCrashed,
            Self::MachineKilled => CauseWord::MachineKilled,
            Self::NotStarted { .. } => CauseWord::NotStarted,
            Self::Unknown => CauseWord::Unknown,
        }
    }

    /// [`CauseWord::is_success`].
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.word().is_success()
    }

    /// The cause as one sentence for a person.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::GuestShutdown => "the guest powered itself off".into(),
            Self::GuestReboot => "the guest rebooted and its rebootPolicy is Terminate".into(),
            Self::GuestPanic => "the guest's kernel panicked".into(),
            Self::Watchdog => "the guest's watchdog fired".into(),
            Self::StoppedGracefully => "the guest powered down when asked".into(),
            Self::GracePeriodExceeded => {
                "the guest did not power down within its grace period, so QEMU was ended".into()
            }
            Self::ForceStopped => "it was stopped by force".into(),
            Self::OutOfMemory { limit_bytes: Some(limit) } => {
                format!("it used more memory than its limit of {limit} bytes and the kernel killed it")
            }
            Self::OutOfMemory { limit_bytes: None } => "the host ran out of memory and the kernel killed it".into(),
            Self::QemuFailed { code: 0 } => "QEMU gave up on the guest, whose processors cannot go on".into(),
            Self::QemuFailed { code } => format!("QEMU gave up with exit code {code}"),
            Self::QemuKilled { signal } => format!("something outside killed QEMU with signal {signal}"),
            Self::QemuCrashed { signal } => format!("QEMU crashed with signal {signal}"),
            Self::MachineKilled => {
                "QEMU and its PID 1 were killed at once, and neither could say why: their container had \
                                    no memory left, or something outside killed them"
                    .into()
            }
            Self::Unknown => "for a reason that this version of Garboard does not know".into(),
            Self::NotStarted { message } => format!("the guest was not started: {message}"),
        }
    }
}

impl ExitCause {
    /// What to do about it, where that follows from the cause alone.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::OutOfMemory { limit_bytes: Some(_) } => {
                Some("raise spec.domain.resources.limits.memory, or leave it out")
            }
            Self::OutOfMemory { limit_bytes: None } => {
                Some("raise spec.domain.resources.requests.memory, or run fewer or smaller machines on this host")
            }
            Self::GuestShutdown
            | Self::GuestReboot
            | Self::GuestPanic
            | Self::Watchdog
            | Self::StoppedGracefully
            | Self::GracePeriodExceeded
            | Self::ForceStopped
            | Self::QemuFailed { .. }
            | Self::QemuKilled { .. }
            | Self::QemuCrashed { .. }
            | Self::MachineKilled
            | Self::NotStarted { .. }
            | Self::Unknown => None,
        }
    }

    /// Whether QEMU's own last line explains it.
    fn is_explained_by_qemu(&self) -> bool {
        match self {
            Self::QemuFailed { .. } | Self::QemuCrashed { .. } => true,
            Self::GuestShutdown
            | Self::GuestReboot
            | Self::GuestPanic
            | Self::Watchdog
            | Self::StoppedGracefully
            | Self::GracePeriodExceeded
            | Self::ForceStopped
            | Self::OutOfMemory { .. }
            | Self::QemuKilled { .. }
            | Self::MachineKilled
            | Self::NotStarted { .. }
            | Self::Unknown => false,
        }
    }
}

/// The most letters of QEMU's last line in a sentence.
const LAST_LINE: usize = 300;

/// The cause as a sentence, with QEMU's own last line where that is what explains it.
#[must_use]
pub fn full_sentence(cause: &ExitCause, report: Option<&ExitReport>) -> String {
    let sentence = cause.sentence();
    let words = report.filter(|_| cause.is_explained_by_qemu()).map_or("", |report| report.last_words.as_str());
    match words.lines().map(str::trim).rfind(|line| !line.is_empty()) {
        Some(line) => format!("{sentence}: {}", line.chars().take(LAST_LINE).collect::<String>()),
        None => sentence,
    }
}

/// PID 1's account, written to [`crate::paths::EXIT`] before it exits, so that no exit is lost while the
/// supervisor is away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitReport {
    /// How the process ended.
    pub end: ProcessEnd,
    /// OOM kills counted in the cgroup since QEMU was executed.
    pub oom_kills: u64,
    /// The cgroup's memory limit in bytes, if any.
    pub memory_limit_bytes: Option<u64>,
    /// Whether PID 1 itself asked for the power-down, because SIGTERM came and no supervisor was there.
    pub asked_by_init: bool,
    /// Whether PID 1 had to kill QEMU.
    pub killed_by_init: bool,
    /// The end of what QEMU printed, at most 4 KiB, lossy UTF-8 with control characters escaped.
    pub last_words: String,
    /// What failed before QEMU could be executed.
    pub failure: Option<String>,
}

/// What the supervisor knew about the end, kept in its journal so that a restarted one still knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndHints {
    /// A graceful stop was asked for.
    pub stop_requested: bool,
    /// An immediate stop was asked for, by a person.
    pub force_requested: bool,
    /// The grace period ran out and the supervisor ended QEMU.
    pub grace_exceeded: bool,
    /// QEMU reported `SHUTDOWN` by the guest.
    pub guest_shutdown: bool,
    /// QEMU reported `RESET` or `SHUTDOWN` with reason guest-reset under rebootPolicy Terminate.
    pub guest_reboot: bool,
    /// QEMU reported `GUEST_PANICKED`.
    pub guest_panicked: bool,
    /// QEMU reported `WATCHDOG` with an action that ends the run.
    pub watchdog: bool,
    /// QEMU's run state was `internal-error`: KVM could not run the guest any further.
    pub internal_error: bool,
    /// QEMU reported `SHUTDOWN`, whatever the reason: it was on its way out.
    pub leaving: bool,
}

const FAULT_SIGNALS: [i32; 6] = [4, 6, 7, 8, 11, 31]; // ILL ABRT BUS FPE SEGV SYS on x86_64 and arm64
const SIGKILL: i32 = 9;

/// Names the one cause of an end. Order matters: what the kernel did explains more than what we meant.
#[must_use]
pub fn explain(report: &ExitReport, hints: EndHints) -> ExitCause {
    match report.end {
        ProcessEnd::NeverStarted => {
            let message = report.failure.clone().unwrap_or_else(|| "no reason was recorded".to_owned());
            ExitCause::NotStarted { message }
        }
        ProcessEnd::Signalled { signal: SIGKILL } if report.oom_kills > 0 => {
            ExitCause::OutOfMemory { limit_bytes: report.memory_limit_bytes }
        }
        ProcessEnd::Signalled { signal: SIGKILL } if hung_while_it_left(report, hints) => {
            explain_clean_exit(report, hints)
        }
        ProcessEnd::Signalled { signal } if FAULT_SIGNALS.contains(&signal) => ExitCause::QemuCrashed { signal },
        ProcessEnd::Signalled { signal } => explain_signal(signal, report, hints),
        ProcessEnd::Exited { code: 0 } => explain_clean_exit(report, hints),
        ProcessEnd::Exited { code } => ExitCause::QemuFailed { code },
        ProcessEnd::Unknown => ExitCause::Unknown,
    }
}

/// Names the cause of an end that PID 1 did not see, because it was killed with QEMU.
#[must_use]
pub fn explain_lost(hints: EndHints) -> ExitCause {
    if hints.force_requested {
        ExitCause::ForceStopped
    } else if hints.grace_exceeded {
        ExitCause::GracePeriodExceeded
    } else {
        ExitCause::MachineKilled
    }
}

fn explain_signal(signal: i32, report: &ExitReport, hints: EndHints) -> ExitCause {
    if hints.force_requested {
        ExitCause::ForceStopped
    } else if hints.grace_exceeded || report.killed_by_init {
        ExitCause::GracePeriodExceeded
    } else {
        ExitCause::QemuKilled { signal }
    }
}

/// Whether PID 1 had to kill a QEMU that was on its way out. Why it was on its way is what the end is about, not that it did
/// not get there: QEMU (7.2.9 to 10.0 at least) hangs in `monitor_cleanup` when it leaves while it is given a command.
fn hung_while_it_left(report: &ExitReport, hints: EndHints) -> bool {
    report.killed_by_init && (hints.leaving || handled_signal(&report.last_words).is_some())
}

fn explain_clean_exit(report: &ExitReport, hints: EndHints) -> ExitCause {
    if hints.guest_panicked {
        ExitCause::GuestPanic
    } else if hints.watchdog {
        ExitCause::Watchdog
    } else if hints.internal_error {
        ExitCause::QemuFailed { code: 0 }
    } else if hints.force_requested {
        ExitCause::ForceStopped
    } else if hints.grace_exceeded {
        ExitCause::GracePeriodExceeded
    } else if let Some(signal) = handled_signal(&report.last_words) {
        ExitCause::QemuKilled { signal }
    } else if hints.stop_requested || report.asked_by_init {
        ExitCause::StoppedGracefully
    } else if hints.guest_reboot {
        ExitCause::GuestReboot
    } else {
        ExitCause::GuestShutdown
    }
}

/// The signal that QEMU left for on its own: it handles SIGTERM, SIGINT and SIGHUP, says so last (`qemu_kill_report` in
/// `softmmu/runstate.c`) and exits with 0 as after a power-off.
#[must_use]
pub fn handled_signal(last_words: &str) -> Option<i32> {
    let (_, rest) = last_words.lines().last()?.split_once(": terminating on signal ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(end: ProcessEnd) -> ExitReport {
        ExitReport {
            end,
            oom_kills: 0,
            memory_limit_bytes: Some(1 << 20),
            asked_by_init: false,
            killed_by_init: false,
            last_words: String::new(),
            failure: None,
        }
    }

    #[test]
    fn a_failure_of_qemus_own_is_told_with_its_last_line() {
        let words = ExitReport { last_words: "one\nno lock\n \n".to_owned(), ..report(ProcessEnd::Exited { code: 1 }) };
        let failed = ExitCause::QemuFailed { code: 1 };
        assert_eq!(full_sentence(&failed, Some(&words)), "QEMU gave up with exit code 1: no lock");
        assert_eq!(full_sentence(&failed, None), "QEMU gave up with exit code 1");
        assert_eq!(full_sentence(&ExitCause::GuestShutdown, Some(&words)), "the guest powered itself off");
        let endless = ExitReport { last_words: "a".repeat(4096), ..words };
        assert!(full_sentence(&failed, Some(&endless)).len() < 400);
    }

    #[test]
    fn a_cause_of_a_newer_build_is_read() {
        let read = serde_json::from_str::<ExitCause>(r#"{"cause":"eatenByADog","colour":"brown"}"#).unwrap();
        assert_eq!(read, ExitCause::Unknown);
        let ours = serde_json::to_string(&ExitCause::MachineKilled).unwrap();
        assert_eq!(serde_json::from_str::<ExitCause>(&ours).unwrap(), ExitCause::MachineKilled);
    }

    #[test]
    fn each_cause_has_a_word_of_its_own_and_an_account_of_it_is_read_again() {
        let words: Vec<CauseWord> = crate::testing::causes().iter().map(ExitCause::word).collect();
        assert_eq!(words, CauseWord::ALL, "an example of each cause, in the order of the words");
        for cause in crate::testing::causes() {
            let sentence = cause.sentence();
            let account = Account { word: cause.word(), text: &sentence };
            assert_eq!(Account::read(&account.to_string()), account);
            // An earlier PID 1 wrote the sentence alone.
            assert_eq!(Account::read(&sentence), Account { word: CauseWord::Unknown, text: &sentence });
            let shape = |one: char| one.is_ascii_alphanumeric();
            assert!(cause.word().as_str().chars().all(shape), "{cause:?}: a condition's reason");
            assert_eq!(CauseWord::read(cause.word().as_str()), cause.word());
        }
        let newer = "EatenByADog: the guest was eaten by a dog";
        assert_eq!(Account::read(newer), Account { word: CauseWord::Unknown, text: newer });
    }

    #[test]
    fn the_documents_name_every_cause() {
        let page = include_str!("../../docs/debugging.md");
        let (_, table) = page.split_once("| cause | means | look at |").unwrap();
        let table = table.split("\n\n").next().unwrap();
        let named: Vec<CauseWord> = table
            .lines()
            .filter_map(|row| row.split('|').nth(1))
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .map(CauseWord::read)
            .collect();
        for word in CauseWord::ALL.iter().filter(|word| **word != CauseWord::Unknown) {
            assert!(named.contains(word), "docs/debugging.md does not explain {word}");
        }
        assert!(!named.contains(&CauseWord::Unknown), "docs/debugging.md explains a cause that is none: {named:?}");
    }

    #[test]
    fn every_way_to_end_has_its_name() {
        let none = EndHints::default();
        let killed = ProcessEnd::Signalled { signal: 9 };
        let clean = ProcessEnd::Exited { code: 0 };
        let killed_by_init = ExitReport { killed_by_init: true, ..report(killed) };
        let leaving = EndHints { leaving: true, ..none };
        let words = "qemu-system-x86_64: terminating on signal 15 from pid 1 (/sbin/init)";
        let table = [
            (report(clean), none, ExitCause::GuestShutdown),
            (
                report(clean),
                EndHints { stop_requested: true, guest_shutdown: true, ..none },
                ExitCause::StoppedGracefully,
            ),
            (report(clean), EndHints { guest_panicked: true, ..none }, ExitCause::GuestPanic),
            (report(clean), EndHints { watchdog: true, ..none }, ExitCause::Watchdog),
            (report(clean), EndHints { internal_error: true, ..none }, ExitCause::QemuFailed { code: 0 }),
            (report(clean), EndHints { guest_reboot: true, ..none }, ExitCause::GuestReboot),
            (
                report(clean),
                EndHints { stop_requested: true, grace_exceeded: true, ..none },
                ExitCause::GracePeriodExceeded,
            ),
            (ExitReport { asked_by_init: true, ..report(clean) }, none, ExitCause::StoppedGracefully),
            (killed_by_init.clone(), none, ExitCause::GracePeriodExceeded),
            // It was on its way out, and hung there.
            (killed_by_init.clone(), EndHints { guest_shutdown: true, ..leaving }, ExitCause::GuestShutdown),
            (killed_by_init.clone(), EndHints { stop_requested: true, ..leaving }, ExitCause::StoppedGracefully),
            (killed_by_init.clone(), EndHints { grace_exceeded: true, ..leaving }, ExitCause::GracePeriodExceeded),
            (killed_by_init.clone(), EndHints { guest_panicked: true, ..leaving }, ExitCause::GuestPanic),
            (ExitReport { last_words: words.to_owned(), ..killed_by_init }, none, ExitCause::QemuKilled { signal: 15 }),
            (report(killed), leaving, ExitCause::QemuKilled { signal: 9 }),
            (report(killed), none, ExitCause::QemuKilled { signal: 9 }),
            (report(killed), EndHints { force_requested: true, ..none }, ExitCause::ForceStopped),
            (
                ExitReport { oom_kills: 1, ..report(killed) },
                EndHints { stop_requested: true, ..none },
                ExitCause::OutOfMemory { limit_bytes: Some(1 << 20) },
            ),
            (
                ExitReport { last_words: "qemu: terminating on signal 15 from pid 7 (kill)".into(), ..report(clean) },
                EndHints { stop_requested: true, ..none },
                ExitCause::QemuKilled { signal: 15 },
            ),
            (report(ProcessEnd::Signalled { signal: 11 }), none, ExitCause::QemuCrashed { signal: 11 }),
            (report(ProcessEnd::Exited { code: 1 }), none, ExitCause::QemuFailed { code: 1 }),
            (
                ExitReport { failure: Some("no QEMU".into()), ..report(ProcessEnd::NeverStarted) },
                none,
                ExitCause::NotStarted { message: "no QEMU".into() },
            ),
        ];
        for (report, hints, expected) in table {
            assert_eq!(explain(&report, hints), expected, "{report:?} {hints:?}");
            assert!(!expected.sentence().is_empty());
        }
    }
}
