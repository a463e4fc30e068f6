//! Who may use the server. An address that is printed has a key, which is good once: for the session's token. The page
//! keeps that token and names it with each request. There is no cookie: a browser would send it to every port of 127.0.0.1, and
//! with requests that other pages cause.

use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

/// Keys that are out at once; the oldest is no longer good.
const MOST_KEYS: usize = 16;

/// Keys that were printed and not used, and the token.
#[derive(Debug)]
pub(super) struct Keys {
    unused: Mutex<Vec<String>>,
    token: String,
}

impl Default for Keys {
    fn default() -> Self {
        Self { unused: Mutex::default(), token: secret() }
    }
}

impl Keys {
    /// A new key.
    pub(super) fn cut(&self) -> String {
        let key = secret();
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        unused.push(key.clone());
        let surplus = unused.len().saturating_sub(MOST_KEYS);
        unused.drain(..surplus);
        key
    }

    /// The token, for a key that was not used before.
    pub(super) fn redeem(&self, key: &str) -> Option<&str> {
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        let place = unused.iter().position(|each| same(each, key))?;
        unused.remove(place);
        Some(&self.token)
    }

    /// Whether this is the token.
    pub(super) fn admits(&self, token: &str) -> bool {
        same(&self.token, token)
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
mod tests {
    use super::*;

    #[test]
    fn a_key_is_good_once_and_only_the_token_admits() {
        let keys = Keys::default();
        let (first, second) = (keys.cut(), keys.cut());
        assert!(first.len() == 64 && first != second);
        let token = keys.redeem(&first).unwrap().to_owned();
        assert!(keys.redeem(&first).is_none() && keys.redeem("").is_none() && keys.redeem(&token).is_none());
        assert_eq!(keys.redeem(&second), Some(token.as_str()));
        assert!(keys.admits(&token));
        assert!(!keys.admits(&second) && !keys.admits("") && !keys.admits(&token[1..]));
    }

    #[test]
    fn keys_that_nobody_uses_are_bounded() {
        let keys = Keys::default();
        let first = keys.cut();
        let last = (0..MOST_KEYS).map(|_| keys.cut()).last().unwrap();
        assert!(keys.redeem(&first).is_none());
        assert!(keys.redeem(&last).is_some());
    }
}
