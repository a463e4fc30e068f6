//! Arguments as values, and the only place that turns them into text.
//!
//! QEMU has two syntaxes. Values of `-device`, `-object`, `-blockdev` and `-netdev` may be JSON: nothing needs
//! escaping, and `device_add` and its kin take the same object over QMP. Everything else is `key=value,…`
//! (`util/qemu-option.c`), where a comma inside a value is written twice. [`Argument::render`] writes both, and
//! [`Options::parse`] reads the second back, so that a test can hold that nothing is lost.

mod options;
mod properties;

pub use options::{OptionValue, Options, ParseOptionsError};
pub use properties::{Properties, Property};

use crate::features::{Feature, QemuFeatures};

/// One option of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// With its dash, for example `-device`.
    pub flag: &'static str,
    /// What follows.
    pub value: Value,
}

/// What follows a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing: the flag is a switch.
    Switch,
    /// One text, taken by QEMU as it is.
    Text(String),
    /// `key=value,…`.
    Options(Options),
    /// A JSON object.
    Json(Properties),
}

/// Anything that is one option of the command line.
pub trait Arg {
    /// The option. Cannot fail: whatever could be wrong was refused when the value was made.
    fn argument(&self) -> Argument;
}

impl Argument {
    /// A switch.
    #[must_use]
    pub const fn switch(flag: &'static str) -> Self {
        Self { flag, value: Value::Switch }
    }

    /// A flag with a text that QEMU does not take apart.
    #[must_use]
    pub fn text(flag: &'static str, text: impl Into<String>) -> Self {
        Self { flag, value: Value::Text(text.into()) }
    }

    /// A flag with `key=value,…`.
    #[must_use]
    pub const fn options(flag: &'static str, options: Options) -> Self {
        Self { flag, value: Value::Options(options) }
    }

    /// A flag with a JSON object.
    #[must_use]
    pub const fn json(flag: &'static str, properties: Properties) -> Self {
        Self { flag, value: Value::Json(properties) }
    }

    /// Appends the arguments of this option to `argv`, in the syntax of this QEMU.
    pub fn render(&self, features: &QemuFeatures, argv: &mut Vec<String>) {
        argv.push(self.flag.to_owned());
        match &self.value {
            Value::Switch => {}
            Value::Text(text) => argv.push(text.clone()),
            Value::Options(options) => argv.push(options.to_string()),
            Value::Json(properties) if self.flag == "-device" && !features.has(Feature::JsonCliHotplug) => {
                argv.push(properties.to_options("driver").to_string());
            }
            Value::Json(properties) => argv.push(properties.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commas_are_doubled_and_nothing_else_is_touched() {
        let options = Options::led_by("socket").set("path", "/a,b=c %d\"").set("server", true);
        assert_eq!(options.to_string(), "socket,path=/a,,b=c %d\",server=on");
    }

    #[test]
    fn a_value_that_ends_in_a_comma_keeps_it() {
        let options = Options::new().set("a", "x,").set("b", "y");
        assert_eq!(options.to_string(), "a=x,,,b=y");
        assert_eq!(Options::parse("a=x,,,b=y").unwrap(), options);
    }

    #[test]
    fn an_item_without_a_value_is_refused() {
        assert_eq!(Options::parse("a=b,c").unwrap_err().item, "c");
    }

    #[test]
    fn properties_keep_their_order() {
        let properties = Properties::new().set("driver", "x").set("b", 1_u32).set("a", vec!["p", "q"]);
        assert_eq!(properties.to_string(), r#"{"driver":"x","b":1,"a":["p","q"]}"#);
        assert_eq!(properties.to_options("driver").to_string(), "x,b=1,a.0=p,a.1=q");
    }

    proptest! {
        #[test]
        fn options_survive_rendering(
            head in proptest::option::of("[a-z][a-z0-9-]{0,8}"),
            pairs in proptest::collection::vec(("[a-z][a-z0-9_.-]{0,8}", any::<String>()), 0..6),
        ) {
            let led = head.map_or_else(Options::new, Options::led_by);
            let options = pairs.iter().fold(led, |options, (key, value)| options.set(key, value));
            prop_assert_eq!(Options::parse(&options.to_string()).unwrap(), options);
        }

        #[test]
        fn json_survives_rendering(members in proptest::collection::btree_map(any::<String>(), any::<String>(), 0..6)) {
            let properties = members.iter().fold(Properties::new(), |all, (name, value)| all.set(name, value));
            let read: std::collections::BTreeMap<String, String> =
                serde_json::from_str(&properties.to_string()).unwrap();
            prop_assert_eq!(read, members);
        }
    }
}
