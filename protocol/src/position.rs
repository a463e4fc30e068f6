//! Places in what a serial console has printed. By one a client whose connection was lost goes on where it was
//! ([ADR 36](../../docs/adr/0036-sessions.md)).
//!
//! ```text
//!   client ─ resume: new ──────────► supervisor
//!          ◄ begun at E.1000, 7 bytes ─          the next byte is E.1007
//!          ─ resume: from E.1007 ──►             on another connection
//!          ◄ begun at E.1007, resumed ─
//! ```

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// No place yet.
const NEW: &str = "new";
/// The longest epoch, bytes. It is letters and digits of ASCII.
const LONGEST_EPOCH: usize = 64;

/// A place. It is written `EPOCH.OFFSET`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Position {
    /// Names the supervisor that counts: another one counts anew.
    pub epoch: String,
    /// How many bytes come before it, of those that this supervisor knows of.
    pub offset: u64,
}

/// What is no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no position: write `new`, or what a console began with and the bytes since, as in `5e1f.1007`")]
pub struct NoPosition;

impl Display for Position {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.epoch, self.offset)
    }
}

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        let (epoch, offset) = text.split_once('.').ok_or(NoPosition)?;
        let is_epoch =
            !epoch.is_empty() && epoch.len() <= LONGEST_EPOCH && epoch.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_number = offset.bytes().all(|byte| byte.is_ascii_digit());
        let offset = offset.parse().map_err(|_| NoPosition)?;
        if is_epoch && is_number { Ok(Self { epoch: epoch.to_owned(), offset }) } else { Err(NoPosition) }
    }
}

impl TryFrom<String> for Position {
    type Error = NoPosition;

    fn try_from(text: String) -> Result<Self, NoPosition> {
        text.parse()
    }
}

impl From<Position> for String {
    fn from(position: Position) -> Self {
        position.to_string()
    }
}

/// With what a client of a console begins that may come again. It is written `new`, or as the place; another word is read as `new`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Resume {
    /// With the end of what was printed.
    New,
    /// With what follows a place; where that is not known any more, with all that is known.
    After(Position),
}

impl FromStr for Resume {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        if text == NEW { Ok(Self::New) } else { text.parse().map(Self::After) }
    }
}

impl From<String> for Resume {
    fn from(text: String) -> Self {
        text.parse().unwrap_or(Self::New)
    }
}

impl From<Resume> for String {
    fn from(resume: Resume) -> Self {
        match resume {
            Resume::New => NEW.to_owned(),
            Resume::After(position) => position.to_string(),
        }
    }
}

/// With what a client begins. It is also the text that a client of the subresource API gets first which asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Begun {
    /// The place of the first byte that follows.
    pub position: Position,
    /// What follows comes after the place that the client named. Otherwise part of it may have been shown before.
    #[serde(default)]
    pub resumed: bool,
    /// How many bytes between that place and this one are not known any more.
    #[serde(default)]
    pub missed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_and_read() {
        let position = Position { epoch: "5e1f".to_owned(), offset: 1007 };
        assert_eq!(
            (position.to_string().as_str(), "5e1f.1007".parse::<Position>()),
            ("5e1f.1007", Ok(position.clone()))
        );
        assert_eq!("new".parse::<Resume>(), Ok(Resume::New));
        assert_eq!("5e1f.1007".parse::<Resume>(), Ok(Resume::After(position.clone())));
        for (resume, text) in [(Resume::New, r#""new""#), (Resume::After(position.clone()), r#""5e1f.1007""#)] {
            assert_eq!(serde_json::to_string(&resume).unwrap(), text);
            assert_eq!(serde_json::from_str::<Resume>(text).unwrap(), resume);
        }
        assert_eq!(serde_json::from_str::<Resume>(r#""a word of a later build""#).unwrap(), Resume::New);
        let begun = Begun { position, resumed: true, missed: 0 };
        assert_eq!(serde_json::to_string(&begun).unwrap(), r#"{"position":"5e1f.1007","resumed":true,"missed":0}"#);
        let least: Begun = serde_json::from_str(r#"{"position":"5e1f.1007"}"#).unwrap();
        assert_eq!(least, Begun { resumed: false, ..begun });
    }

    #[test]
    fn what_is_no_position_is_refused() {
        let long = format!("{}.1", "e".repeat(LONGEST_EPOCH + 1));
        for text in
            ["", "5e1f", ".1", "5e1f.", "5e1f.-1", "5e1f.+1", "5e1f.1.2", "5e 1.1", "5e1f.99999999999999999999", &long]
        {
            assert_eq!(text.parse::<Position>(), Err(NoPosition), "{text:?}");
        }
    }
}
