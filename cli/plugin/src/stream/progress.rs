//! How far a console was read: by that the next connection goes on where the last one broke.

use std::sync::{Mutex, MutexGuard, PoisonError};

use garboard_protocol::position::{Begun, Position, Resume};

/// Of one console, over all its connections.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Read>);

#[derive(Debug, Default)]
struct Read {
    /// Whether something was read.
    is_begun: bool,
    /// The place behind it; nothing where the controller, or the supervisor, is of a version without places.
    place: Option<Position>,
}

impl Progress {
    /// The parameter that asks for what follows.
    pub(crate) fn parameter(&self) -> String {
        let resume = self.read().place.clone().map_or(Resume::New, Resume::After);
        format!("position={}", String::from(resume))
    }

    /// A connection begins so. What its user is to read: a connection after the first one may not follow it.
    pub(super) fn begin(&self, begun: Option<&Begun>) -> Option<String> {
        let mut read = self.read();
        let is_again = std::mem::replace(&mut read.is_begun, true);
        read.place = begun.map(|begun| begun.position.clone());
        let remark = match begun {
            Some(Begun { resumed: true, missed: 0, .. }) => None,
            Some(Begun { resumed: true, missed, .. }) => Some(format!("{missed} bytes are missing here")),
            Some(Begun { resumed: false, .. }) | None => Some("what follows may have been shown before".to_owned()),
        };
        remark.filter(|_| is_again)
    }

    /// So many bytes were read.
    pub(super) fn add(&self, count: usize) {
        if let Some(place) = &mut self.read().place {
            place.offset = place.offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_connection_goes_on_where_the_last_one_broke_and_says_where_it_does_not() {
        let progress = Progress::default();
        let begun = |text: &str, resumed, missed| Begun { position: text.parse().unwrap(), resumed, missed };
        assert_eq!(progress.parameter(), "position=new");
        assert_eq!(progress.begin(Some(&begun("5e1f.1000", false, 0))), None, "it is the first one");
        progress.add(7);
        assert_eq!(progress.parameter(), "position=5e1f.1007");
        assert_eq!(progress.begin(Some(&begun("5e1f.1007", true, 0))), None);
        let missed = progress.begin(Some(&begun("5e1f.2000", true, 993)));
        assert_eq!(missed.as_deref(), Some("993 bytes are missing here"));
        let anew = Some("what follows may have been shown before");
        assert_eq!(progress.begin(Some(&begun("ab.0", false, 0))).as_deref(), anew);
        // Of a controller without places.
        assert_eq!(progress.begin(None).as_deref(), anew);
        progress.add(7);
        assert_eq!(progress.parameter(), "position=new");
    }
}
