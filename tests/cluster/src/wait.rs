//! Waiting for a state, never for time.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};

use crate::error::{Error, Result};

/// Between two looks at something that does not report its changes.
const LOOK_MS: u8 = 20;

/// What is waited for, how long, and where to look when it does not come.
#[derive(Debug, Clone, Copy)]
pub struct Patience<'a> {
    /// Named in the error.
    pub what: &'a str,
    /// At most.
    pub limit: Duration,
    /// The directory of the logs.
    pub logs: &'a Path,
}

/// Looks until there is something.
///
/// # Errors
/// [`Error::Timeout`], or an error of `look`, at once.
pub fn until<T>(patience: &Patience<'_>, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + patience.limit;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            let (what, logs) = (patience.what.to_owned(), patience.logs.to_owned());
            return Err(Error::Timeout { what, limit: patience.limit, logs });
        }
        let _ = poll(&mut [], PollTimeout::from(LOOK_MS));
    }
}

/// Looks until something is so.
///
/// # Errors
/// As [`until`].
pub fn until_true(patience: &Patience<'_>, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
    until(patience, || Ok(look()?.then_some(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_state_or_the_limit() {
        let patience = |limit| Patience { what: "a third look", limit, logs: Path::new("/logs") };
        let mut looks = 0;
        let found = until(&patience(Duration::from_secs(60)), || {
            looks += 1;
            Ok((looks == 3).then_some("there"))
        });
        assert_eq!(found.unwrap(), "there");
        let error = until_true(&patience(Duration::from_millis(200)), || Ok(false)).unwrap_err();
        assert_eq!(error.to_string(), "a third look did not come within 0 s; logs are below /logs");
    }
}
