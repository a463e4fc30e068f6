//! Who asks: an API server forwards a request with the user's name in its headers, and proves by its certificate that it is
//! one (Kubernetes' authenticating proxy, "request header"). Pure.

use std::collections::BTreeMap;

/// A user, as an API server has authenticated it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Its name.
    pub user: String,
    /// Its UID, where the API server sends one.
    pub uid: Option<String>,
    /// Its groups.
    pub groups: Vec<String>,
    /// What else the authenticator has, such as scopes.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// How API servers of this cluster forward users: the ConfigMap `kube-system/extension-apiserver-authentication`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Certificates of the authorities that sign API servers' client certificates, PEM.
    pub authorities: String,
    /// Common names that such a certificate may have; any if there are none.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name, in order.
    pub username: Vec<String>,
    /// Headers with its UID.
    pub uid: Vec<String>,
    /// Headers with its groups.
    pub group: Vec<String>,
    /// How headers with extra fields begin.
    pub extra_prefixes: Vec<String>,
}

impl RequestHeader {
    /// The name of the ConfigMap.
    pub const CONFIG_MAP: &'static str = "extension-apiserver-authentication";
    /// Its namespace.
    pub const NAMESPACE: &'static str = "kube-system";

    /// Reads the data of the ConfigMap. Nothing, where the cluster forwards no requests: it names no authority, or no header.
    /// Lists are JSON in it; what is none is taken for empty.
    #[must_use]
    pub fn read(data: &BTreeMap<String, String>) -> Option<Self> {
        let text = |key: &str| data.get(key).map(String::as_str).unwrap_or_default();
        let list = |key: &str| serde_json::from_str::<Vec<String>>(text(key)).ok();
        let header = Self {
            authorities: text("requestheader-client-ca-file").to_owned(),
            // A list that cannot be read must not mean that all are allowed.
            allowed_names: match text("requestheader-allowed-names") {
                "" => Vec::new(),
                _ => list("requestheader-allowed-names")?,
            },
            username: list("requestheader-username-headers").unwrap_or_default(),
            uid: list("requestheader-uid-headers").unwrap_or_default(),
            group: list("requestheader-group-headers").unwrap_or_default(),
            extra_prefixes: list("requestheader-extra-headers-prefix").unwrap_or_default(),
        };
        (!header.authorities.trim().is_empty() && !header.username.is_empty()).then_some(header)
    }

    /// Whether a client certificate with these common names is an API server's. That its signature is right was checked before.
    #[must_use]
    pub fn allows(&self, common_names: &[&str]) -> bool {
        self.allowed_names.is_empty()
            || common_names.iter().any(|name| self.allowed_names.iter().any(|allowed| allowed == name))
    }

    /// The user of a request, from its headers (names in any case, in the order in which they came). `None` where no header
    /// has a name.
    #[must_use]
    pub fn caller(&self, headers: &[(&str, &str)]) -> Option<Caller> {
        let values = |names: &[String]| -> Vec<String> {
            let of = |name: &String| {
                let same = headers.iter().filter(|(each, _)| each.eq_ignore_ascii_case(name));
                let found: Vec<String> = same.map(|(_, value)| (*value).to_owned()).collect();
                (!found.is_empty()).then_some(found)
            };
            names.iter().find_map(of).unwrap_or_default()
        };
        let first = |names: &[String]| values(names).into_iter().next().filter(|value| !value.is_empty());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            let rest = self.extra_prefixes.iter().find_map(|prefix| without_prefix(name, prefix));
            if let Some(rest) = rest {
                extra.entry(unescaped(&rest.to_ascii_lowercase())).or_default().push((*value).to_owned());
            }
        }
        Some(Caller { user: first(&self.username)?, uid: first(&self.uid), groups: values(&self.group), extra })
    }
}

fn without_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = name.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Decodes `%2f` and the like; a name that is not well written stays as it is, as API servers have it.
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = after
            .get(..2)
            .filter(|two| two.iter().all(u8::is_ascii_hexdigit))
            .and_then(|two| std::str::from_utf8(two).ok());
        let Some(byte) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) else { return name.to_owned() };
        bytes.push(byte);
        rest = &after[2..];
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let usual = [
            ("requestheader-client-ca-file", "PEM"),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ];
        usual.iter().chain(entries).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_caller_is_read_from_the_headers() {
        let header = RequestHeader::read(&data(&[])).unwrap();
        let headers = [
            ("x-remote-user", "ada"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-extra-scopes.example%2ecom%2fa", "one"),
            ("x-other", "y"),
        ];
        let caller = header.caller(&headers).unwrap();
        assert_eq!((caller.user.as_str(), caller.uid), ("ada", None));
        assert_eq!(caller.groups, ["dev", "system:authenticated"]);
        assert_eq!(caller.extra, BTreeMap::from([("scopes.example.com/a".to_owned(), vec!["one".to_owned()])]));
        assert_eq!(header.caller(&[("x-remote-group", "system:masters")]), None);
        assert_eq!(header.caller(&[("x-remote-user", "")]), None);
    }

    #[test]
    fn names_of_certificates_are_checked() {
        let header = RequestHeader::read(&data(&[])).unwrap();
        assert!(header.allows(&["front-proxy-client"]));
        assert!(!header.allows(&["kubernetes-admin"]) && !header.allows(&[]));
        let all = RequestHeader::read(&data(&[("requestheader-allowed-names", "[]")])).unwrap();
        assert!(all.allows(&["kubernetes-admin"]));
        assert_eq!(
            RequestHeader::read(&data(&[("requestheader-allowed-names", "x")])),
            None,
            "a malformed list allows no client"
        );
    }

    #[test]
    fn a_cluster_that_forwards_nothing_is_known() {
        assert_eq!(RequestHeader::read(&BTreeMap::new()), None);
        assert_eq!(RequestHeader::read(&data(&[("requestheader-client-ca-file", " ")])), None);
        assert_eq!(RequestHeader::read(&data(&[("requestheader-username-headers", "[]")])), None);
    }

    #[test]
    fn strange_names_of_extra_fields_stay_as_they_are() {
        for name in ["%", "%2", "%zz", "%+f", "a%ff"] {
            assert_eq!(unescaped(name), name);
        }
        assert_eq!(unescaped("a%2fb"), "a/b");
    }
}
