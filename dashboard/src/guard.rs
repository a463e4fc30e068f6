//! Whether a request is the page's own. Pure.
//!
//! A token is in no cookie, so that no browser adds it to what other pages cause. Beside that, `Host` has to be one of the names that this
//! server is known by (a name that was made to lead here is none), and `Origin` and `Sec-Fetch-Site` have to name this page.

use garboard_kubectl::page::origin::{self, Asking, Named};
use hyper::HeaderMap;
use hyper::header::{ORIGIN, UPGRADE};

use crate::refusal::Refusal;

/// Names under which a browser on the computer of `kubectl port-forward` reaches it.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
const FETCH_SITE: &str = "sec-fetch-site";
/// Of a host that is refused, so much is shown.
const LONGEST_SHOWN: usize = 100;

/// The names that this server is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Those of the Service in a namespace, those of a port that is forwarded, and those that an administrator has named.
    #[must_use]
    pub fn new(service: &str, namespace: &str, named: &[String]) -> Self {
        let of_service = [String::new(), ".cluster.local".to_owned()];
        let of_service = of_service.map(|domain| format!("{service}.{namespace}.svc{domain}"));
        let local = LOCAL.map(str::to_owned);
        Self(local.into_iter().chain(of_service).chain(named.iter().map(|name| name.to_ascii_lowercase())).collect())
    }

    /// The host that a request names, with its port, if it is this server at any port: a port that is forwarded may have any number.
    ///
    /// # Errors
    /// [`Refusal::Host`].
    pub fn check<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, Refusal> {
        let named = one(headers, "host").unwrap_or_default();
        let is_ours = name_of(named).is_some_and(|name| self.0.iter().any(|each| each.eq_ignore_ascii_case(name)));
        if is_ours { Ok(named) } else { Err(Refusal::Host(named.chars().take(LONGEST_SHOWN).collect())) }
    }
}

/// A host without its port; nothing if the port is no number.
fn name_of(host: &str) -> Option<&str> {
    // The address of IPv6 has colons itself.
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, port) = host.split_at_checked(end)?;
    let is_port = |text: &str| (1..=5).contains(&text.len()) && text.bytes().all(|one| one.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

/// A header that is there once. Of one that is there twice it is open which one counts, so that none does.
#[must_use]
pub fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// Whether the connection is to become a websocket.
#[must_use]
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    one(headers, UPGRADE.as_str()).is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// That no other page caused it.
///
/// # Errors
/// [`Refusal::OtherPage`].
pub fn own_page(method: &str, headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
    let named = |name: &str| Named::of(one(headers, name), headers.contains_key(name));
    let is_read = method == "GET" && !is_upgrade(headers);
    let asking = Asking { is_read, origin: named(ORIGIN.as_str()), site: named(FETCH_SITE) };
    origin::own_page(asking, &format!("https://{host}")).map_err(Refusal::from)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let mut made = HeaderMap::new();
        for (name, value) in all {
            made.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        made
    }

    #[test]
    fn a_name_that_leads_here_is_not_this_server() {
        let hosts = Hosts::new("garboard-dashboard", "vms", &["VMs.example.com".to_owned()]);
        let table = [
            ("localhost:8443", true),
            ("127.0.0.1:38211", true),
            ("[::1]:8443", true),
            ("garboard-dashboard.vms.svc", true),
            ("garboard-dashboard.vms.svc.cluster.local:443", true),
            ("vms.example.com", true),
            ("vms.example.com:8443", true),
            ("garboard-dashboard.other.svc", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("localhost:8443.evil.example", false),
            ("localhost:", false),
            ("localhost:x", false),
            ("evil.example#localhost", false),
            ("[::1]evil.example", false),
            ("[::1", false),
            ("", false),
        ];
        for (named, expected) in table {
            assert_eq!(hosts.check(&headers(&[("Host", named)])).is_ok(), expected, "{named}");
        }
        assert!(hosts.check(&headers(&[("Host", "localhost"), ("Host", "localhost")])).is_err());
        assert!(hosts.check(&headers(&[])).is_err());
    }

    #[test]
    fn what_a_browser_says_of_the_page_that_asks_is_read() {
        let ours = ("Origin", "https://localhost:8443");
        let upgrade = ("Upgrade", "websocket");
        type Row<'a> = (&'a str, &'a [(&'static str, &'static str)], bool);
        let table: [Row<'_>; 8] = [
            ("GET", &[], true),
            ("PUT", &[ours], true),
            ("GET", &[ours, upgrade], true),
            ("PUT", &[], false),
            ("GET", &[upgrade], false),
            ("PUT", &[("Origin", "http://localhost:8443")], false),
            ("GET", &[("Sec-Fetch-Site", "same-site")], false),
            ("GET", &[ours, ("Origin", "https://evil.example")], false),
        ];
        for (method, all, expected) in table {
            let outcome = own_page(method, &headers(all), "localhost:8443");
            assert_eq!(outcome.is_ok(), expected, "{method} {all:?}: {outcome:?}");
        }
    }
}
