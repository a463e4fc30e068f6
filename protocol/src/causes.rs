//! Errors as logs and messages show them.

use std::error::Error;
use std::fmt;

/// An error with its causes, from the outermost to the innermost: `could not start: could not open x: no such file`.
pub struct ErrorChain<'a>(pub &'a dyn Error);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(inner) = cause {
            write!(formatter, ": {inner}")?;
            cause = inner.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("could not start")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_follow_the_error() {
        let error = Outer(std::io::Error::other("no room"));
        assert_eq!(ErrorChain(&error).to_string(), "could not start: no room");
        assert_eq!(ErrorChain(&std::io::Error::other("alone")).to_string(), "alone");
    }
}
