//! The token that a request has, in one of two places, as Kubernetes documents them: `Authorization: Bearer TOKEN`, or, for a websocket, to
//! which a browser lets a page add no header, a protocol with the token in base64url. Pure.
//!
//! Whether it is good is the API server's to say. What is read here of its content is when it ends, and only of a token that the API
//! server has taken.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use garboard_kubectl::page;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};

use crate::guard::{is_upgrade, one};
use crate::refusal::Refusal;

/// The beginning of the protocol that names a token.
pub const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
/// The longest token, bytes: those of OpenID Connect name all groups of a user.
const LONGEST_TOKEN: usize = 16 * 1024;

/// A bearer token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// One that is written as RFC 6750 has it (`b64token`); nothing if it is not.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_allowed = |one: u8| one.is_ascii_alphanumeric() || b"-._~+/=".contains(&one);
        let is_good = !text.is_empty() && text.len() <= LONGEST_TOKEN && text.bytes().all(is_allowed);
        is_good.then(|| Self(text.to_owned()))
    }

    /// That of a request.
    ///
    /// # Errors
    /// [`Refusal::Token`]: it has none, or several.
    pub fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let found = if is_upgrade(headers) { of_protocol(headers) } else { of_header(headers) };
        found.ok_or(Refusal::Token)
    }

    /// The header with it.
    ///
    /// # Errors
    /// [`Refusal::Token`]: never, as a token has no character that a header may not have.
    pub fn header(&self) -> Result<HeaderValue, Refusal> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.0)).map_err(|_| Refusal::Token)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// When it ends, seconds since 1970, if it says so itself: tokens of service accounts and of OpenID Connect are JSON Web Tokens
    /// (RFC 7519, `exp`, a number that may have a fraction; the whole second before it counts).
    #[must_use]
    pub fn expires(&self) -> Option<u64> {
        let mut parts = self.0.split('.');
        let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return None;
        };
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
        let exp = &claims["exp"];
        let with_fraction = || Duration::try_from_secs_f64(exp.as_f64()?).ok().map(|since_1970| since_1970.as_secs());
        exp.as_u64().or_else(with_fraction)
    }
}

fn of_header(headers: &HeaderMap) -> Option<Token> {
    let (scheme, token) = one(headers, AUTHORIZATION.as_str())?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") { Token::new(token) } else { None }
}

fn of_protocol(headers: &HeaderMap) -> Option<Token> {
    let mut named = protocols(headers).filter_map(|each| each.strip_prefix(TOKEN_PROTOCOL));
    let (Some(encoded), None) = (named.next(), named.next()) else { return None };
    let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    Token::new(std::str::from_utf8(&bytes).ok()?)
}

/// The protocols that a websocket offers.
pub fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    page::protocols(one(headers, SEC_WEBSOCKET_PROTOCOL.as_str()))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut made = HeaderMap::new();
        for &(name, value) in all {
            made.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        made
    }

    fn of(all: &[(&'static str, &str)]) -> Option<Token> {
        Token::of(&headers(all)).ok()
    }

    #[test]
    fn a_token_is_in_the_header_and_of_a_websocket_in_a_protocol() {
        let token = Token::new("abc.def-_~+/=").unwrap();
        assert_eq!(of(&[("authorization", "Bearer abc.def-_~+/=")]), Some(token.clone()));
        let named = format!("plain.kubevirt.io, {TOKEN_PROTOCOL}{}", URL_SAFE_NO_PAD.encode("abc.def-_~+/="));
        let upgrade = ("upgrade", "websocket");
        assert_eq!(of(&[upgrade, ("sec-websocket-protocol", &named)]), Some(token));
        // Neither place counts for the other kind of request.
        assert_eq!(of(&[("sec-websocket-protocol", &named)]), None);
        assert_eq!(of(&[upgrade, ("authorization", "Bearer abc")]), None);
    }

    #[test]
    fn what_is_no_token_is_none() {
        for wrong in ["Basic YWRhOng=", "Bearer", "Bearer ", "Bearer a b", "Bearer a,b", "abc"] {
            assert_eq!(of(&[("authorization", wrong)]), None, "{wrong}");
        }
        assert_eq!(of(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]), None);
        assert_eq!(of(&[("cookie", "token=abc")]), None);
        let twice = format!("{TOKEN_PROTOCOL}YQ, {TOKEN_PROTOCOL}Yg");
        let broken = format!("{TOKEN_PROTOCOL}%%%");
        let header = format!("{TOKEN_PROTOCOL}{}", URL_SAFE_NO_PAD.encode("a\r\nImpersonate-User: root"));
        for wrong in [twice, broken, header] {
            assert_eq!(of(&[("upgrade", "websocket"), ("sec-websocket-protocol", &wrong)]), None, "{wrong}");
        }
        assert!(Token::new(&"a".repeat(LONGEST_TOKEN + 1)).is_none());
    }

    #[test]
    fn a_token_says_when_it_ends_and_is_never_printed() {
        let with = |exp: &str| {
            let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"ada","exp":{exp}}}"#));
            Token::new(&format!("e30.{claims}.c2ln")).unwrap()
        };
        for exp in ["1800000000", "1800000000.75", "1800000000.0", "1.8e9"] {
            assert_eq!(with(exp).expires(), Some(1_800_000_000), "{exp}");
        }
        for none in ["null", "\"1800000000\"", "-1", "-0.5", "1e300"] {
            assert_eq!(with(none).expires(), None, "{none}");
        }
        let token = with("1800000000");
        assert_eq!(format!("{token:?} {:?}", token.header().unwrap()), "Token(…) Sensitive");
        for without in ["opaque", "a.b", "a.b.c", "a.e30.c", &format!("{}.d", token.0)] {
            assert_eq!(Token::new(without).unwrap().expires(), None, "{without}");
        }
    }
}
