//! Who may use the server. An address that is printed has a key, which is good once: for a session's token. The page
//! keeps that token and names it with each request. There is no cookie: a browser would send it to every port of 127.0.0.1, and
//! with requests that other pages cause.
//!
//! Who has a key that was used before has seen what one browser alone should have: one of the two is another user, and it is not known
//! which. So the session of that key ends, and the terminal shows a warning.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::session::Session;

/// Keys that are out at once; the oldest is no longer good.
const MOST_KEYS: usize = 16;

/// Keys that were printed.
#[derive(Debug, Default)]
pub(super) struct Keys {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    unused: Vec<String>,
    used: Vec<Used>,
}

/// A key that was used.
#[derive(Debug)]
struct Used {
    key: String,
    /// Nothing once the key was used again.
    session: Option<Arc<Session>>,
}

/// What a key is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redemption {
    /// This token.
    Token(String),
    /// It was used before, and the token of it is no longer good.
    Revoked,
    /// It was never printed, is too old, or is revoked.
    Unknown,
}

impl Keys {
    /// A new key.
    pub(super) fn cut(&self) -> String {
        let key = secret();
        let mut all = self.all();
        all.unused.push(key.clone());
        let surplus = all.unused.len().saturating_sub(MOST_KEYS);
        all.unused.drain(..surplus);
        key
    }

    /// Whether a key is still good.
    pub(super) fn is_unused(&self, key: &str) -> bool {
        self.all().unused.iter().any(|each| same(each, key))
    }

    /// A token for a key that was not used before.
    pub(super) fn redeem(&self, key: &str) -> Redemption {
        let mut all = self.all();
        if let Some(place) = all.unused.iter().position(|each| same(each, key)) {
            let (key, token) = (all.unused.remove(place), secret());
            all.used.push(Used { key, session: Some(Session::new(token.clone())) });
            return Redemption::Token(token);
        }
        match all.used.iter_mut().find(|each| same(&each.key, key)).and_then(|used| used.session.take()) {
            Some(session) => {
                session.end();
                Redemption::Revoked
            }
            None => Redemption::Unknown,
        }
    }

    /// The session of a token.
    pub(super) fn session(&self, token: &str) -> Option<Arc<Session>> {
        let all = self.all();
        let mut sessions = all.used.iter().filter_map(|used| used.session.as_ref());
        sessions.find(|session| same(session.token(), token)).cloned()
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 244 random bits in hexadecimal.
fn secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// In a time that depends on the length alone.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
impl Keys {
    /// The token of a new key.
    pub(super) fn let_in(&self) -> String {
        let Redemption::Token(token) = self.redeem(&self.cut()) else { panic!("a new key is not good") };
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_good_once_for_a_token_of_its_own() {
        let keys = Keys::default();
        let first = keys.cut();
        assert!(first.len() == 64 && first != keys.cut() && keys.is_unused(&first));
        let Redemption::Token(token) = keys.redeem(&first) else { panic!("a new key is not good") };
        assert!(!keys.is_unused(&first));
        assert_eq!([keys.redeem(""), keys.redeem(&token)], [Redemption::Unknown, Redemption::Unknown]);
        assert_ne!(token, keys.let_in());
        assert!(keys.session(&token).is_some());
        assert!(keys.session(&first).is_none() && keys.session("").is_none() && keys.session(&token[1..]).is_none());
    }

    #[test]
    fn a_key_that_is_used_again_ends_its_session_and_no_other() {
        let keys = Keys::default();
        let other = keys.let_in();
        let key = keys.cut();
        let Redemption::Token(token) = keys.redeem(&key) else { panic!("a new key is not good") };
        assert_eq!(keys.redeem(&key), Redemption::Revoked);
        assert!(keys.session(&token).is_none() && keys.session(&other).is_some());
        assert_eq!(keys.redeem(&key), Redemption::Unknown);
    }

    #[test]
    fn keys_that_nobody_uses_are_bounded() {
        let keys = Keys::default();
        let first = keys.cut();
        let last = (0..MOST_KEYS).map(|_| keys.cut()).last().unwrap();
        assert_eq!(keys.redeem(&first), Redemption::Unknown);
        assert!(matches!(keys.redeem(&last), Redemption::Token(_)));
    }
}
