//! What Kubernetes calls a name: labels, subdomains, port names, label keys and label values.
//!
//! Not for the names of our own block nodes or devices; those are types of the `machine` crate. The rules follow
//! RFC 1123 and the limits of the Kubernetes API conventions. The functions answer with what is wrong, as the
//! continuation of a text that begins with the field, or with nothing; the types hold only valid names.

use std::fmt;
use std::str::FromStr;

/// The longest DNS label, in bytes (RFC 1123).
const LABEL_MAX: usize = 63;
/// The longest DNS subdomain, in bytes (RFC 1123).
pub(crate) const SUBDOMAIN_MAX: usize = 253;
/// The longest port name, in bytes (RFC 6335, an IANA service name).
const PORT_NAME_MAX: usize = 15;

/// The longest serial number of a disk, in characters.
pub const DISK_SERIAL_MAX: usize = 256;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {problem}", text.escape_debug())]
pub struct NameError {
    /// The text.
    pub text: String,
    /// What is wrong with it, as the continuation of a message that begins with the text.
    pub problem: String,
}

/// A DNS label of RFC 1123: 1 to 63 lower-case letters, digits and inner dashes. Names of disks, volumes and hosts are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsLabel(String);

/// A DNS subdomain of RFC 1123: labels joined by dots, at most 253 bytes. Names of most Kubernetes objects are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsSubdomain(String);

impl DnsLabel {
    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl DnsSubdomain {
    /// The subdomain as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a disk can show a text as its serial number.
#[must_use]
pub fn is_disk_serial(text: &str) -> bool {
    text.chars().count() <= DISK_SERIAL_MAX && text.chars().all(is_of_disk_serials)
}

/// Whether a serial number of a disk may have a character.
pub(crate) fn is_of_disk_serials(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.+-".contains(character)
}

impl FromStr for DnsLabel {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match label_problem(text) {
            None => Ok(Self(text.to_owned())),
            Some(problem) => Err(NameError { text: text.to_owned(), problem }),
        }
    }
}

impl FromStr for DnsSubdomain {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match subdomain_problem(text) {
            None => Ok(Self(text.to_owned())),
            Some(problem) => Err(NameError { text: text.to_owned(), problem }),
        }
    }
}

impl From<DnsLabel> for DnsSubdomain {
    fn from(label: DnsLabel) -> Self {
        Self(label.0)
    }
}

impl fmt::Display for DnsLabel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for DnsSubdomain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// What keeps `text` from being a DNS label, as a disk or a host name must be.
pub(crate) fn label_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty, and a name of 1 to 63 characters is needed".to_owned());
    }
    if text.len() > LABEL_MAX {
        return Some(format!("is {} characters long, and {LABEL_MAX} is the limit", text.len()));
    }
    label_shape_problem(text)
}

/// What keeps `text` from being a DNS subdomain: labels joined by dots.
pub(crate) fn subdomain_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty, and a name of 1 to 253 characters is needed".to_owned());
    }
    if text.len() > SUBDOMAIN_MAX {
        return Some(format!("is {} characters long, and {SUBDOMAIN_MAX} is the limit", text.len()));
    }
    text.split('.').find_map(label_shape_problem)
}

/// What keeps `text` from being the name of a port.
pub(crate) fn port_name_problem(text: &str) -> Option<String> {
    if text.is_empty() || text.len() > PORT_NAME_MAX {
        return Some(format!("is {} characters long, and a port name has 1 to {PORT_NAME_MAX}", text.len()));
    }
    if !text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        return Some("has other characters than lower-case letters, digits and dashes".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Some("has no letter".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') || text.contains("--") {
        return Some("begins or ends with a dash, or has two in a row".to_owned());
    }
    None
}

/// What keeps `text` from being a label key: an optional subdomain and a slash, then a name.
pub(crate) fn label_key_problem(text: &str) -> Option<String> {
    let name = match text.split_once('/') {
        Some((prefix, name)) => {
            if let Some(problem) = subdomain_problem(prefix) {
                return Some(format!("has the prefix `{prefix}`, which {problem}"));
            }
            name
        }
        None => text,
    };
    if name.is_empty() {
        return Some("has no name".to_owned());
    }
    qualified_text_problem(name)
}

/// What keeps `text` from being a label value. The empty value is one.
pub(crate) fn label_value_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    qualified_text_problem(text)
}

fn label_shape_problem(text: &str) -> Option<String> {
    if let Some(strange) =
        text.chars().find(|each| !(each.is_ascii_lowercase() || each.is_ascii_digit() || *each == '-'))
    {
        return Some(format!(
            "has `{}`, and only lower-case letters, digits and dashes may stand there",
            strange.escape_default()
        ));
    }
    if text.is_empty() || text.starts_with('-') || text.ends_with('-') {
        return Some("does not begin and end with a letter or digit".to_owned());
    }
    None
}

fn qualified_text_problem(text: &str) -> Option<String> {
    if text.len() > LABEL_MAX {
        return Some(format!("is {} characters long, and {LABEL_MAX} is the limit", text.len()));
    }
    if let Some(strange) = text.chars().find(|each| !(each.is_ascii_alphanumeric() || matches!(each, '-' | '_' | '.')))
    {
        return Some(format!(
            "has `{}`, and only letters, digits, dashes, underscores and dots may stand there",
            strange.escape_default()
        ));
    }
    let at_the_ends = [text.chars().next(), text.chars().next_back()];
    if !at_the_ends.iter().flatten().all(char::is_ascii_alphanumeric) {
        return Some("does not begin and end with a letter or digit".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_dns_label_has_lower_case_letters_digits_and_inner_dashes() {
        for good in ["a", "a-b", "0", &"a".repeat(63)] {
            assert_eq!(label_problem(good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ä", &"a".repeat(64)] {
            assert!(label_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_subdomain_is_labels_joined_by_dots() {
        for good in ["a", "a.b.c", "a-b.c0"] {
            assert_eq!(subdomain_problem(good), None, "{good}");
        }
        for bad in ["", ".", "a..b", "a.", "A.b", &"a.".repeat(127)] {
            assert!(subdomain_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_port_name_has_a_letter_and_no_doubled_dash() {
        for good in ["a", "http", "http-2", "80a"] {
            assert_eq!(port_name_problem(good), None, "{good}");
        }
        for bad in ["", "80", "-a", "a-", "a--b", "Http", "a_b", &"a".repeat(16)] {
            assert!(port_name_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_label_key_may_have_a_subdomain_before_its_name() {
        for good in ["app", "kubevirt.io/created-by", "A_b.c"] {
            assert_eq!(label_key_problem(good), None, "{good}");
        }
        for bad in ["", "bad key!", "/name", "kubevirt.io/", "a/b/c", "-a"] {
            assert!(label_key_problem(bad).is_some(), "{bad}");
        }
        assert_eq!(label_value_problem(""), None);
        assert!(label_value_problem("a b").is_some());
    }

    #[test]
    fn a_refused_name_is_shown_escaped_with_its_problem() {
        let error = "A\n".parse::<DnsLabel>().unwrap_err();
        assert_eq!(error.to_string(), "`A\\n` has `A`, and only lower-case letters, digits and dashes may stand there");
    }

    proptest! {
        #[test]
        fn what_is_a_label_is_a_subdomain_and_is_written_as_it_was_read(text in "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?") {
            let label: DnsLabel = text.parse().unwrap();
            prop_assert_eq!(label.to_string(), &text[..]);
            let subdomain: DnsSubdomain = text.parse().unwrap();
            prop_assert_eq!(DnsSubdomain::from(label), subdomain);
        }

        #[test]
        fn no_text_makes_the_checks_panic(text in "\\PC{0,80}") {
            let _ = (text.parse::<DnsLabel>(), text.parse::<DnsSubdomain>());
            let _ = (port_name_problem(&text), label_key_problem(&text), label_value_problem(&text));
        }
    }
}
