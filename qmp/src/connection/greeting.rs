//! The greeting of QEMU.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::text::printable;

/// The version QEMU gives of itself. For users and for choosing a cache; what QEMU can do is probed, not guessed from
/// this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GreetingVersion {
    /// The `7` of 7.2.22.
    pub major: u32,
    /// The `2` of 7.2.22.
    pub minor: u32,
    /// The `22` of 7.2.22.
    pub micro: u32,
    /// The packager's text, for example `Debian 1:7.2+dfsg-7+deb12u18+b3`; may be empty. Bounded and printable.
    pub package: String,
}

impl std::fmt::Display for GreetingVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { major, minor, micro, package } = self;
        write!(formatter, "{major}.{minor}.{micro}")?;
        if package.is_empty() { Ok(()) } else { write!(formatter, " ({package})") }
    }
}

/// What QEMU sends to a new client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Which QEMU.
    pub version: GreetingVersion,
    /// The capabilities it offers, for example `oob`. This program enables none.
    pub capabilities: Vec<String>,
}

/// Capabilities remembered; QEMU 10.0 has one.
const CAPABILITY_LIMIT: usize = 16;

impl Greeting {
    /// Reads the value of `QMP`; `None` if it has no version.
    pub(crate) fn parse(body: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Body {
            version: Version,
            #[serde(default)]
            capabilities: Vec<serde_json::Value>,
        }
        #[derive(Deserialize)]
        struct Version {
            qemu: Triple,
            #[serde(default)]
            package: String,
        }
        #[derive(Deserialize)]
        struct Triple {
            major: u32,
            minor: u32,
            micro: u32,
        }
        let body: Body = serde_json::from_str(body.get()).ok()?;
        let Triple { major, minor, micro } = body.version.qemu;
        let package = printable(&body.version.package, 200);
        let names = body.capabilities.iter().filter_map(serde_json::Value::as_str);
        let capabilities = names.take(CAPABILITY_LIMIT).map(|name| printable(name, 64)).collect();
        Some(Self { version: GreetingVersion { major, minor, micro, package }, capabilities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Greeting> {
        Greeting::parse(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn the_greeting_of_debian_12_is_read() {
        let greeting = parse(
            r#"{"version": {"qemu": {"micro": 22, "minor": 2, "major": 7},
                "package": "Debian 1:7.2+dfsg-7+deb12u18+b3"}, "capabilities": ["oob"]}"#,
        )
        .unwrap();
        assert_eq!(greeting.version.to_string(), "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)");
        assert_eq!(greeting.capabilities, ["oob"]);
    }

    #[test]
    fn unknown_capabilities_are_no_obstacle_and_a_missing_version_is() {
        let text = r#"{"version": {"qemu": {"micro": 0, "minor": 0, "major": 99}}, "capabilities": ["x", {"y": 1}]}"#;
        assert_eq!(parse(text).unwrap().capabilities, ["x"]);
        assert!(parse("{}").is_none());
        assert!(parse("[1]").is_none());
    }
}
