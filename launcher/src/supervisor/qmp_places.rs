//! Places for QMP clients of a machine: those of the API, of the control socket and of `qmp.sock` together. Clients that only read have
//! places of their own, so that those that change the machine keep nobody from looking at it, and one user has half of either at most.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use garboard_protocol::control::QmpAccess;

use super::control::{Caller, Way};
use super::flood::{Flood, Line};

/// Clients of one kind that are connected at the same time: each holds two tasks and their buffers.
pub(crate) const OF_A_KIND: usize = 8;
/// The same of one user.
pub(crate) const OF_A_USER: usize = 4;
/// The most refusals that are logged in ten seconds.
const REFUSALS_LOGGED: u32 = 10;

/// What a client may do, as far as places go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// It only reads.
    Reads,
    /// It may change the machine.
    Changes,
}

impl Kind {
    const fn of(access: QmpAccess) -> Self {
        match access {
            QmpAccess::ReadOnly => Self::Reads,
            QmpAccess::ReadWrite | QmpAccess::Dangerous => Self::Changes,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Reads => "read-only",
            Self::Changes => "read-write",
        })
    }
}

/// Whose a place is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Holder {
    /// A user that an API server has authenticated.
    User(String),
    /// A user of this host, whatever name its client claims. In a pod all processes have the same.
    Uid(u32),
}

impl Holder {
    fn of(caller: &Caller) -> Self {
        match (caller.way, &caller.claimed) {
            (Way::Agent, Some(user)) => Self::User(user.clone()),
            (Way::Agent, None) | (Way::Socket, _) => Self::Uid(caller.uid),
        }
    }
}

/// Why a client has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Its user has as many as one may have.
    OfTheUser(Kind),
    /// All are taken.
    OfAll(Kind),
}

impl fmt::Display for NoPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfTheUser(kind) => {
                write!(formatter, "{OF_A_USER} {kind} QMP clients are connected to this machine by the same user")?;
            }
            Self::OfAll(kind) => write!(formatter, "{OF_A_KIND} {kind} QMP clients are connected to this machine")?,
        }
        formatter.write_str("; end one, or try again")
    }
}

/// The places of one machine.
#[derive(Clone)]
pub(crate) struct QmpPlaces(Arc<Mutex<State>>);

struct State {
    /// How many each has; none has zero.
    taken: HashMap<(Kind, Holder), usize>,
    refusals: Flood,
}

impl Default for QmpPlaces {
    fn default() -> Self {
        let state = State { taken: HashMap::new(), refusals: Flood::new(REFUSALS_LOGGED) };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl QmpPlaces {
    /// A place for a client. A refusal is logged.
    ///
    /// # Errors
    /// There is none for it.
    pub(crate) fn take(&self, access: QmpAccess, caller: &Caller) -> Result<QmpPlace, NoPlace> {
        let (kind, holder) = (Kind::of(access), Holder::of(caller));
        let mut state = self.lock();
        let of_kind: usize = state.taken.iter().filter(|((each, _), _)| *each == kind).map(|(_, count)| *count).sum();
        let whose = (kind, holder);
        let own = state.taken.get(&whose).copied().unwrap_or(0);
        let refused = if own >= OF_A_USER {
            Some(NoPlace::OfTheUser(kind))
        } else {
            (of_kind >= OF_A_KIND).then_some(NoPlace::OfAll(kind))
        };
        if let Some(refused) = refused {
            log(&mut state.refusals, refused, caller);
            return Err(refused);
        }
        state.taken.insert(whose.clone(), own + 1);
        Ok(QmpPlace { places: self.clone(), whose })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(refusals: &mut Flood, refused: NoPlace, caller: &Caller) {
    if let Line::Write { left_out } = refusals.judge(Instant::now()) {
        let reason = refused.to_string();
        tracing::warn!(uid = caller.uid, claimed_user = caller.claimed, reason, left_out, "a QMP client is refused");
    }
}

/// A place; it is free again when this is dropped.
pub(crate) struct QmpPlace {
    places: QmpPlaces,
    whose: (Kind, Holder),
}

impl Drop for QmpPlace {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        if let Some(count) = state.taken.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                state.taken.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(way: Way, claimed: &str) -> Caller {
        Caller { uid: 0, pid: None, claimed: Some(claimed.to_owned()), way }
    }

    /// Places of a user of the API, as many as it gets of so many.
    fn taken(places: &QmpPlaces, access: QmpAccess, user: &str, wanted: usize) -> Vec<QmpPlace> {
        (0..wanted).map_while(|_| places.take(access, &caller(Way::Agent, user)).ok()).collect()
    }

    #[test]
    fn one_user_leaves_places_to_another_and_has_them_again() {
        let places = QmpPlaces::default();
        let mut of_ada = taken(&places, QmpAccess::ReadOnly, "ada", 99);
        assert_eq!(of_ada.len(), OF_A_USER);
        let refused = places.take(QmpAccess::ReadOnly, &caller(Way::Agent, "ada")).err();
        assert_eq!(refused, Some(NoPlace::OfTheUser(Kind::Reads)));
        let of_bob = taken(&places, QmpAccess::ReadOnly, "bob", 99);
        assert_eq!(of_bob.len(), OF_A_USER);
        let refused = places.take(QmpAccess::ReadOnly, &caller(Way::Agent, "eve")).err();
        assert_eq!(refused, Some(NoPlace::OfAll(Kind::Reads)));
        of_ada.pop();
        assert_eq!(taken(&places, QmpAccess::ReadOnly, "eve", 99).len(), 1);
        drop((of_ada, of_bob));
        assert!(places.lock().taken.is_empty(), "nothing is kept of who left");
    }

    #[test]
    fn those_that_change_a_machine_keep_nobody_from_looking_at_it() {
        let places = QmpPlaces::default();
        let dangerous = taken(&places, QmpAccess::Dangerous, "ada", 99);
        let writing = taken(&places, QmpAccess::ReadWrite, "bob", 99);
        assert_eq!(dangerous.len() + writing.len(), OF_A_KIND);
        let refused = places.take(QmpAccess::ReadWrite, &caller(Way::Agent, "eve")).err();
        assert_eq!(refused, Some(NoPlace::OfAll(Kind::Changes)));
        for user in ["ada", "eve"] {
            assert_eq!(taken(&places, QmpAccess::ReadOnly, user, 1).len(), 1, "{user}");
        }
    }

    #[test]
    fn a_name_that_nothing_proves_gives_no_places() {
        let places = QmpPlaces::default();
        let claims = (0..9).map(|number| caller(Way::Socket, &format!("user-{number}")));
        let taken: Vec<QmpPlace> = claims.map_while(|each| places.take(QmpAccess::ReadOnly, &each).ok()).collect();
        assert_eq!(taken.len(), OF_A_USER);
        let other = Caller { uid: 1000, ..caller(Way::Socket, "user-0") };
        assert!(places.take(QmpAccess::ReadOnly, &other).is_ok());
        assert!(places.take(QmpAccess::ReadOnly, &caller(Way::Agent, "user-0")).is_ok());
    }

    #[test]
    fn who_is_refused_reads_how_many_there_are_and_what_to_do() {
        let of_the_user = NoPlace::OfTheUser(Kind::Reads).to_string();
        let expected = "4 read-only QMP clients are connected to this machine by the same user; end one, or try again";
        assert_eq!(of_the_user, expected);
        let of_all = NoPlace::OfAll(Kind::Changes).to_string();
        assert_eq!(of_all, "8 read-write QMP clients are connected to this machine; end one, or try again");
    }
}
