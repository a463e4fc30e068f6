use std::io::Write;
use std::sync::{Mutex, PoisonError};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The message of each line that was logged since the last time.
    fn taken(&self) -> Vec<String> {
        let text = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let text = String::from_utf8(text).unwrap();
        text.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
    }
}

/// A program of this thread.
fn program(asked: Option<&str>) -> (Log, Levels, DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let (filter, levels) = filter(asked);
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    // A callsite that another test meets first is not cached as switched off: every thread has a subscriber.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines).with(filter));
    (log, levels, guard)
}

/// Logs a line at each level, as our own code does, and as another crate.
fn say() {
    tracing::info!(target: "garboard_part::module", "info");
    tracing::debug!(target: "garboard_part::module", "debug");
    tracing::trace!(target: "garboard_part::module", "trace");
    tracing::info!(target: "hyper::client", "theirs");
    tracing::debug!(target: "hyper::client", "secret");
}

#[test]
fn a_number_changes_what_our_own_code_logs_and_the_usual_one_changes_it_back() {
    let (log, levels, _guard) = program(None);
    let everything = ["info", "debug", "trace", "theirs"];
    let usual = ["info", "theirs"];
    say();
    assert_eq!(log.taken(), usual);
    for (verbosity, outcome, expected) in [
        (6, Outcome::Set, everything.as_slice()),
        (9, Outcome::AlreadySo, &everything),
        (4, Outcome::Set, &["info", "debug", "theirs"]),
        (USUAL, Outcome::Set, &usual),
        (0, Outcome::AlreadySo, &usual),
    ] {
        assert_eq!(levels.set(targets(verbosity)), outcome, "{verbosity}");
        say();
        assert_eq!(log.taken(), expected, "{verbosity}");
    }
}

#[test]
fn a_module_may_have_a_number_of_its_own() {
    let (log, levels, _guard) = program(None);
    let wanted = targets(6).with_target("garboard_part::module", level(USUAL));
    assert_eq!(levels.set(wanted), Outcome::Set);
    say();
    tracing::trace!(target: "garboard_part::other", "other");
    assert_eq!(log.taken(), ["info", "theirs", "other"]);
}

#[test]
fn what_the_environment_says_stays() {
    let (log, levels, _guard) = program(Some("hyper=debug,error"));
    assert_eq!(levels.set(targets(6)), Outcome::Fixed);
    say();
    assert_eq!(log.taken(), ["theirs", "secret"]);
}

#[test]
fn what_the_environment_says_counts_only_if_it_can_be_parsed() {
    for asked in ["", "garboard=loud"] {
        let (log, levels, _guard) = program(Some(asked));
        say();
        assert_eq!(log.taken(), ["info", "theirs"], "{asked}");
        assert_eq!(levels.set(targets(3)), Outcome::Set, "{asked}");
    }
}

#[test]
fn numbers_are_those_of_the_table() {
    let levels = [0, 2, 3, 5, 6, u32::MAX].map(level);
    let expected =
        ["INFO", "INFO", "DEBUG", "DEBUG", "TRACE", "TRACE"].map(|name| name.parse::<LevelFilter>().unwrap());
    assert_eq!(levels, expected);
}
