//! Whether QEMU is gone although no process reported its end. On cgroup v2 the kernel kills every process of a container
//! that is out of memory at once (`memory.oom.group`, which kubelets set), and `kill -9` of PID 1 does the same: then no
//! process is left to report it.

use std::io::ErrorKind;
use std::time::Duration;

use garboard_common::foreign;
use garboard_protocol::exit::{ExitReport, handled_signal};
use garboard_protocol::launch::FromInit;
use garboard_protocol::paths::{self, Layout};
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, Links};
use tokio::net::UnixStream;

use super::driver::Input;
use super::journal;
use crate::last_output;

/// How long PID 1 may be away before it is asked whether QEMU is still there: it connects again within a second.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// How often QEMU's log is looked at while its monitor has not answered.
const LOOK: Duration = Duration::from_secs(1);

/// The most bytes of PID 1's last account.
const ACCOUNT_BYTES: u64 = 1 << 20;

/// The end of a machine whose PID 1 is silent: its last account, or that there can be none.
pub(super) async fn end(layout: &Layout) -> Option<Input> {
    match account(layout) {
        Some(report) => Some(Input::Init(FromInit::Ended { report })),
        None => is_gone(layout).await.then_some(Input::Lost),
    }
}

/// What PID 1 wrote down before it left.
pub(super) fn account(layout: &Layout) -> Option<ExitReport> {
    let name = BeneathPath::parse(paths::EXIT).ok()?;
    let directory = Dir::open(&layout.init()).ok()?;
    serde_json::from_slice(&directory.read_file(&name, Links::Refused, ACCOUNT_BYTES).ok()?).ok()
}

/// Ends when QEMU's log reports an end by a signal.
pub(super) async fn leaves_for_a_signal(layout: &Layout) {
    loop {
        let log = foreign::open_file(&layout.directory_of(paths::QEMU_LOG), paths::QEMU_LOG).ok().flatten();
        if log.map(last_output::of).is_some_and(|output| handled_signal(&output).is_some()) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether QEMU was executed and lives no more. The sockets it listens on are its own: where one refuses, no process has it.
/// PID 1's monitor has no path any more, so the supervisor's is asked; QEMU takes one client at a time and lets the
/// question wait.
pub(super) async fn is_gone(layout: &Layout) -> bool {
    let own = layout.supervisor();
    let was_launched = journal::read(&own).ok().flatten().is_some_and(|journal| journal.launched);
    if !was_launched {
        return false;
    }
    match UnixStream::connect(own.join(paths::MONITOR_SOCKET)).await {
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
        Ok(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::exit::ProcessEnd;
    use garboard_protocol::journal::Journal;
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_qemu_whose_sockets_refuse_is_gone() {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        let own = layout.supervisor();
        std::fs::create_dir(&own).unwrap();
        let journal = Journal { launched: true, ..Journal::default() };
        assert!(journal::write(&own, &journal));
        assert!(end(&layout).await.is_none(), "no socket is no sign");
        let listener = UnixListener::bind(own.join(paths::MONITOR_SOCKET)).unwrap();
        assert!(end(&layout).await.is_none(), "it lives");
        drop(listener);
        assert!(matches!(end(&layout).await, Some(Input::Lost)));
        assert!(journal::write(&own, &Journal { launched: false, ..journal }));
        assert!(end(&layout).await.is_none(), "it was never executed: the socket is an earlier supervisor's");
    }

    #[tokio::test]
    async fn what_pid_1_wrote_down_is_the_end() {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        std::fs::create_dir(layout.init()).unwrap();
        let report = ExitReport {
            end: ProcessEnd::Exited { code: 0 },
            oom_kills: 0,
            memory_limit_bytes: None,
            asked_by_init: false,
            killed_by_init: false,
            last_output: String::new(),
            failure: None,
        };
        std::fs::write(layout.init().join(paths::EXIT), serde_json::to_vec(&report).unwrap()).unwrap();
        let Some(Input::Init(FromInit::Ended { report: sent })) = end(&layout).await else { panic!("no end") };
        assert_eq!(sent, report);
    }
}
