//! What a machine's keeper and the commands tell each other while there is no supervisor to talk to: files in the
//! machine's directory, which only its owner may write.
//!
//! | file | by | says |
//! | --- | --- | --- |
//! | `between.json` | keeper | the last run is over and the next one will begin; gone when it does |
//! | `stay-down` | commands | whenever the run ends, do not start another |

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::decide::Wish;

const BETWEEN: &str = "between.json";
const STAY_DOWN: &str = "stay-down";
/// How often a waiting keeper looks for the wish; a person does not notice it.
const LOOK: Duration = Duration::from_millis(100);

/// A machine between two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Between {
    /// How the last run ended, as a sentence.
    pub(crate) ended: String,
    /// Starts that failed since the guest last ran.
    pub(crate) failures: u32,
    /// When the next run begins, milliseconds since 1970.
    pub(crate) again_at_ms: i64,
}

impl Between {
    /// Seconds until the next run begins, rounded up.
    pub(crate) fn seconds_left(&self) -> i64 {
        (self.again_at_ms - garboard_launcher::clock::now_ms() + 999).max(0) / 1000
    }

    /// One line for a person.
    pub(crate) fn sentence(&self) -> String {
        let Self { ended, failures, .. } = self;
        match (failures, self.seconds_left()) {
            (0, 0) => format!("{ended}; it is started again"),
            (0, left) => format!("{ended}; it is started again in {left} s"),
            (1, left) => format!("{ended}; its start failed, the next try is in {left} s"),
            (_, left) => format!("{ended}; {failures} starts failed, the next try is in {left} s"),
        }
    }
}

/// What is going on between two runs, if the machine is there.
pub(crate) fn read(machine: &Path) -> Option<Between> {
    serde_json::from_slice(&std::fs::read(machine.join(BETWEEN)).ok()?).ok()
}

/// Says that the machine is between two runs.
pub(super) fn announce(machine: &Path, between: &Between) -> anyhow::Result<()> {
    garboard_launcher::supervisor::journal::replace(machine, BETWEEN, &serde_json::to_vec(between)?)
        .with_context(|| format!("write {}", machine.join(BETWEEN).display()))
}

/// Says that it is not any more.
pub(super) fn withdraw(machine: &Path) {
    let _ = std::fs::remove_file(machine.join(BETWEEN));
}

/// Wishes that no run follows the present one, or the pause. To be said before a stop is asked for: then it does not
/// matter whether the run ends first.
pub(crate) fn wish_it_down(machine: &Path) -> anyhow::Result<()> {
    match std::fs::write(machine.join(STAY_DOWN), b"") {
        // The machine is gone already.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.with_context(|| format!("write {}", machine.join(STAY_DOWN).display())),
    }
}

/// What the commands wish.
pub(super) fn wish(machine: &Path) -> Wish {
    if machine.join(STAY_DOWN).exists() { Wish::StayDown } else { Wish::Unspoken }
}

/// Waits for the next run's time, or for the wish that there be none.
pub(super) async fn pause(machine: &Path, length: Duration) -> Wish {
    let end = tokio::time::Instant::now() + length;
    while wish(machine) == Wish::Unspoken {
        let left = end.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() {
            return Wish::Unspoken;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
    Wish::StayDown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(failures: u32, again_at_ms: i64) -> Between {
        Between { ended: "the guest powered itself off".into(), failures, again_at_ms }
    }

    #[test]
    fn what_the_keeper_announces_the_commands_read_until_it_is_withdrawn() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()), None);
        announce(directory.path(), &between(2, 5)).unwrap();
        assert_eq!(read(directory.path()), Some(between(2, 5)));
        withdraw(directory.path());
        withdraw(directory.path());
        assert_eq!(read(directory.path()), None);
    }

    #[test]
    fn the_sentence_says_what_was_and_what_will_be() {
        let soon = garboard_launcher::clock::now_ms() + 60_000;
        assert!(between(0, 0).sentence().ends_with("; it is started again"));
        assert!(between(0, soon).sentence().ends_with("again in 60 s"), "{}", between(0, soon).sentence());
        assert!(between(3, soon).sentence().ends_with("3 starts failed, the next try is in 60 s"));
    }

    #[test]
    fn a_pause_ends_when_somebody_wishes_the_machine_down() {
        let directory = tempfile::tempdir().unwrap();
        let machine = directory.path().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(pause(&machine, Duration::ZERO)), Wish::Unspoken);
        let wishing = std::thread::spawn({
            let machine = machine.clone();
            move || wish_it_down(&machine).unwrap()
        });
        assert_eq!(runtime.block_on(pause(&machine, Duration::from_secs(600))), Wish::StayDown);
        wishing.join().unwrap();
        // A machine that is gone is down.
        wish_it_down(&directory.path().join("nowhere")).unwrap();
    }
}
