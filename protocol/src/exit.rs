//! How a QEMU process ended, as PID 1 saw it and as the supervisor explains it.
//!
//! The one home of causes: [`ExitCause`] is the cause with its details, [`EndReason`] is its name for programs,
//! [`Account`] is reason and message in one text.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::account::Account;

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
    /// In a way that only a later build has a name for.
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
    /// The guest's kernel panicked and reported it (pvpanic).
    GuestPanic,
    /// The guest's watchdog fired with an action that ends the run.
    Watchdog,
    /// Garboard asked the guest to power down, and the guest did.
    StoppedGracefully,
    /// Garboard asked the guest to power down, the grace period passed, and QEMU was ended.
    GracePeriodExceeded,
    /// An immediate stop was requested.
    ForceStopped,
    /// The kernel's OOM killer ended QEMU: the machine used more memory than its limit.
    OutOfMemory {
        /// The cgroup's limit in bytes, when there was one.
        limit_bytes: Option<u64>,
    },
    /// QEMU refused to start or gave up by itself; its last output has the reason.
    QemuFailed {
        /// QEMU's exit code; 0 where it gave up on the guest (`internal-error`) and was sent `quit`.
        code: i32,
    },
    /// A signal that Garboard did not send ended QEMU.
    QemuKilled {
        /// The signal's number.
        signal: i32,
    },
    /// QEMU died by a fault of its own (SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGSYS).
    QemuCrashed {
        /// The signal's number.
        signal: i32,
    },
    /// QEMU and its PID 1 were killed at once, so that neither could report why. In a container that is most often the kernel's
    /// OOM killer on cgroup v2; Kubernetes then reports `OOMKilled`.
    MachineKilled,
    /// QEMU was never started, or could not be driven and was ended before the guest ran; the message has the reason.
    NotStarted {
        /// What stood in the way.
        message: String,
    },
    /// A build that is newer than the reader named a cause that the reader does not have.
    #[serde(other)]
    Unknown,
}

/// Defines the reasons, their list and their names in one place.
macro_rules! end_reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The name of a cause, for programs. The names are stable: they are the reasons of the condition `garboard.dev/Ended`, termination
        /// messages and events begin with them, and `why` reads them. New ones may be added; none is removed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EndReason {
            $($(#[$doc])* $name,)*
        }

        impl EndReason {
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

end_reasons! {
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
    /// [`ExitCause::Unknown`], and what a reader makes of a reason that is newer than the reader.
    Unknown,
}

impl EndReason {
    /// The reason with this name; [`Self::Unknown`] if there is none.
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text).unwrap_or(Self::Unknown)
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

impl fmt::Display for EndReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl ExitCause {
    /// Its name.
    #[must_use]
    pub fn reason(&self) -> EndReason {
        match self {
            Self::GuestShutdown => EndReason::GuestShutdown,
            Self::GuestReboot => EndReason::GuestReboot,
            Self::GuestPanic => EndReason::GuestPanic,
            Self::Watchdog => EndReason::Watchdog,
            Self::StoppedGracefully => EndReason::StoppedGracefully,
            Self::GracePeriodExceeded => EndReason::GracePeriodExceeded,
            Self::ForceStopped => EndReason::ForceStopped,
            Self::OutOfMemory { .. } => EndReason::OutOfMemory,
            Self::QemuFailed { .. } => EndReason::QemuFailed,
            Self::QemuKilled { .. } => EndReason::QemuKilled,
            Self::QemuCrashed { .. } => EndReason::QemuCrashed,
            Self::MachineKilled => EndReason::MachineKilled,
            Self::NotStarted { .. } => EndReason::NotStarted,
            Self::Unknown => EndReason::Unknown,
        }
    }

    /// [`EndReason::is_success`].
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.reason().is_success()
    }

    /// The cause as text for a person.
    #[must_use]
    pub fn message(&self) -> String {
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
                "QEMU and its PID 1 were killed at once, and neither could report why: their container had \
                                    no memory left, or something outside killed them"
                    .into()
            }
            Self::Unknown => "for a reason that this version of Garboard does not have".into(),
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

/// The most letters of QEMU's last line in a message.
const LAST_LINE: usize = 300;

/// The message of the cause, with QEMU's own last line where that is what explains it.
#[must_use]
pub fn full_message(cause: &ExitCause, report: Option<&ExitReport>) -> String {
    let message = cause.message();
    let output = report.filter(|_| cause.is_explained_by_qemu()).map_or("", |report| report.last_output.as_str());
    match output.lines().map(str::trim).rfind(|line| !line.is_empty()) {
        Some(line) => format!("{message}: {}", shortened(line)),
        None => message,
    }
}

/// A line without its middle, where it is too long: QEMU names the argument first and the error last, and an argument that is JSON is long.
fn shortened(line: &str) -> String {
    let count = line.chars().count();
    if count <= LAST_LINE {
        return line.to_owned();
    }
    let (head, tail) = (LAST_LINE / 3, LAST_LINE - LAST_LINE / 3);
    let part = |from, length| line.chars().skip(from).take(length).collect::<String>();
    format!("{} … {}", part(0, head), part(count - tail, tail))
}

/// PID 1's report, written to [`crate::paths::EXIT`] before it exits, so that no exit is lost while the
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
    #[serde(rename = "lastWords")]
    pub last_output: String,
    /// What failed before QEMU could be executed.
    pub failure: Option<String>,
}

/// What the supervisor observed about the end, kept in its journal for a restarted one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndHints {
    /// A graceful stop was asked for.
    pub stop_requested: bool,
    /// An immediate stop was asked for, by a person.
    pub force_requested: bool,
    /// The grace period ran out and the supervisor ended QEMU.
    pub grace_exceeded: bool,
    /// A graceful stop ended QEMU because the guest has no ACPI: it could not be asked, or could not power off in its time.
    pub without_acpi: bool,
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

impl EndHints {
    /// Whether Garboard ended QEMU by force and that is no failure of the guest.
    const fn is_forced(self) -> bool {
        self.force_requested || self.without_acpi
    }
}

const FAULT_SIGNALS: [i32; 6] = [4, 6, 7, 8, 11, 31]; // ILL ABRT BUS FPE SEGV SYS on x86_64 and arm64
const SIGKILL: i32 = 9;

/// Names the one cause of an end. Order matters: what the kernel did explains more than what Garboard intended.
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
    if hints.is_forced() {
        ExitCause::ForceStopped
    } else if hints.grace_exceeded {
        ExitCause::GracePeriodExceeded
    } else {
        ExitCause::MachineKilled
    }
}

fn explain_signal(signal: i32, report: &ExitReport, hints: EndHints) -> ExitCause {
    if hints.is_forced() {
        ExitCause::ForceStopped
    } else if hints.grace_exceeded || report.killed_by_init {
        ExitCause::GracePeriodExceeded
    } else {
        ExitCause::QemuKilled { signal }
    }
}

/// Whether PID 1 had to kill a QEMU that was on its way out. The cause is the reason why it was leaving, not that it hung:
/// QEMU (7.2.9 to 10.0 at least) hangs in `monitor_cleanup` if a command arrives while it leaves.
fn hung_while_it_left(report: &ExitReport, hints: EndHints) -> bool {
    report.killed_by_init && (hints.leaving || handled_signal(&report.last_output).is_some())
}

fn explain_clean_exit(report: &ExitReport, hints: EndHints) -> ExitCause {
    if hints.guest_panicked {
        ExitCause::GuestPanic
    } else if hints.watchdog {
        ExitCause::Watchdog
    } else if hints.internal_error {
        ExitCause::QemuFailed { code: 0 }
    } else if hints.is_forced() {
        ExitCause::ForceStopped
    } else if hints.grace_exceeded {
        ExitCause::GracePeriodExceeded
    } else if let Some(signal) = handled_signal(&report.last_output) {
        ExitCause::QemuKilled { signal }
    } else if hints.stop_requested || report.asked_by_init {
        ExitCause::StoppedGracefully
    } else if hints.guest_reboot {
        ExitCause::GuestReboot
    } else {
        ExitCause::GuestShutdown
    }
}

/// The signal that QEMU left for on its own: it handles SIGTERM, SIGINT and SIGHUP, prints a last line (`qemu_kill_report` in
/// `softmmu/runstate.c`) and exits with 0 as after a power-off.
#[must_use]
pub fn handled_signal(last_output: &str) -> Option<i32> {
    let (_, rest) = last_output.lines().last()?.split_once(": terminating on signal ")?;
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
            last_output: String::new(),
            failure: None,
        }
    }

    #[test]
    fn the_message_of_a_failure_of_qemu_has_its_last_line() {
        let failure =
            ExitReport { last_output: "one\nno lock\n \n".to_owned(), ..report(ProcessEnd::Exited { code: 1 }) };
        let failed = ExitCause::QemuFailed { code: 1 };
        assert_eq!(full_message(&failed, Some(&failure)), "QEMU gave up with exit code 1: no lock");
        assert_eq!(full_message(&failed, None), "QEMU gave up with exit code 1");
        assert_eq!(full_message(&ExitCause::GuestShutdown, Some(&failure)), "the guest powered itself off");
        let endless = ExitReport { last_output: "a".repeat(4096), ..failure.clone() };
        assert!(full_message(&failed, Some(&endless)).len() < 400);
        let argument = format!("qemu: -blockdev {{{}}}: no lock", "é".repeat(1000));
        let whole = full_message(&failed, Some(&ExitReport { last_output: argument, ..failure }));
        assert!(whole.contains("qemu: -blockdev {é") && whole.ends_with("é}: no lock"), "{whole}");
    }

    #[test]
    fn a_cause_of_a_newer_build_is_read() {
        let read = serde_json::from_str::<ExitCause>(r#"{"cause":"eatenByADog","colour":"brown"}"#).unwrap();
        assert_eq!(read, ExitCause::Unknown);
        let ours = serde_json::to_string(&ExitCause::MachineKilled).unwrap();
        assert_eq!(serde_json::from_str::<ExitCause>(&ours).unwrap(), ExitCause::MachineKilled);
    }

    #[test]
    fn each_cause_has_its_own_reason_and_an_account_of_it_is_read_again() {
        let reasons: Vec<EndReason> = crate::testing::causes().iter().map(ExitCause::reason).collect();
        assert_eq!(reasons, EndReason::ALL, "an example of each cause, in the order of the reasons");
        for cause in crate::testing::causes() {
            let message = cause.message();
            let account = Account { reason: cause.reason(), message: &message };
            assert_eq!(Account::read(&account.to_string()), account);
            assert_eq!(Account::read(&account.note()), account);
            // An earlier PID 1 wrote the message alone.
            assert_eq!(Account::read(&message), Account { reason: EndReason::Unknown, message: &message });
            let shape = |one: char| one.is_ascii_alphanumeric();
            assert!(cause.reason().as_str().chars().all(shape), "{cause:?}: a condition's reason");
            assert_eq!(EndReason::read(cause.reason().as_str()), cause.reason());
        }
        let newer = "EatenByADog: the guest was eaten by a dog";
        assert_eq!(Account::read(newer), Account { reason: EndReason::Unknown, message: newer });
    }

    #[test]
    fn the_note_of_an_end_has_the_message_of_kubevirt() {
        let note = |reason| Account { reason, message: "why" }.note();
        assert_eq!(note(EndReason::GuestPanic), "GuestPanic: why. The VirtualMachineInstance crashed.");
        assert_eq!(note(EndReason::GuestShutdown), "GuestShutdown: why. The VirtualMachineInstance was shut down.");
        assert_eq!(note(EndReason::NotStarted), "NotStarted: why");
    }

    #[test]
    fn the_documents_name_every_cause() {
        let page = include_str!("../../docs/debugging.md");
        let (_, table) = page.split_once("| cause | means | look at |").unwrap();
        let table = table.split("\n\n").next().unwrap();
        let named: Vec<EndReason> = table
            .lines()
            .filter_map(|row| row.split('|').nth(1))
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .map(EndReason::read)
            .collect();
        for reason in EndReason::ALL.iter().filter(|reason| **reason != EndReason::Unknown) {
            assert!(named.contains(reason), "docs/debugging.md does not explain {reason}");
        }
        assert!(!named.contains(&EndReason::Unknown), "docs/debugging.md explains a cause that is none: {named:?}");
    }

    #[test]
    fn every_way_to_end_has_its_name() {
        let none = EndHints::default();
        let killed = ProcessEnd::Signalled { signal: 9 };
        let clean = ProcessEnd::Exited { code: 0 };
        let killed_by_init = ExitReport { killed_by_init: true, ..report(killed) };
        let leaving = EndHints { leaving: true, ..none };
        let terminating = "qemu-system-x86_64: terminating on signal 15 from pid 1 (/sbin/init)";
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
            (
                ExitReport { last_output: terminating.to_owned(), ..killed_by_init },
                none,
                ExitCause::QemuKilled { signal: 15 },
            ),
            (report(killed), leaving, ExitCause::QemuKilled { signal: 9 }),
            (report(killed), none, ExitCause::QemuKilled { signal: 9 }),
            (report(killed), EndHints { force_requested: true, ..none }, ExitCause::ForceStopped),
            (report(clean), EndHints { stop_requested: true, without_acpi: true, ..none }, ExitCause::ForceStopped),
            (
                ExitReport { oom_kills: 1, ..report(killed) },
                EndHints { stop_requested: true, ..none },
                ExitCause::OutOfMemory { limit_bytes: Some(1 << 20) },
            ),
            (
                ExitReport { last_output: "qemu: terminating on signal 15 from pid 7 (kill)".into(), ..report(clean) },
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
            assert!(!expected.message().is_empty());
        }
    }
}
