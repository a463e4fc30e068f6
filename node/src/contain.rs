//! A panic ends what it happened in, one request or one object of a watch, and nothing else.
//!
//! Tasks are confined by the runtime; this is for what is done in a task that others depend on. The program is built with
//! unwinding for it (profile `service`), and refuses to be compiled without.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The longest message of a panic that is logged, characters: it may quote a caller.
const LONGEST: usize = 400;

/// Does something; nothing if it panicked, which the panic itself has logged ([`log_panics`]).
///
/// What `work` borrows is seen again after a panic: locks here protect what is whole after every statement.
pub(crate) fn contained<T>(doing: &'static str, work: impl FnOnce() -> T) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome.inspect_err(|_| tracing::error!(doing, "task panicked and was stopped; other tasks continue")).ok()
}

/// Panics become lines of the log, like all else.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message").chars().take(LONGEST).collect::<String>();
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, panic = %text.escape_debug(), "panic in the node agent; please report this defect");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_is_nothing_and_the_rest_goes_on() {
        assert_eq!(contained("a test", || -> u8 { panic!("on purpose") }), None);
        assert_eq!(contained("a test", || 7), Some(7));
    }
}
