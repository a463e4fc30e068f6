//! The argv of a plan, taken apart again: the domain describes what is executed, for a plan of an earlier build too.

use garboard_machine::argv::Options;
use garboard_machine::cpu::Cpu;
use serde_json::Value;

/// Options that no value follows.
const SWITCHES: [&str; 3] = ["-S", "-nodefaults", "-no-user-config"];

/// Options with their values, in order.
pub(crate) struct Arguments<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

/// The value of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// `{"key":value,…}`
    Json(Value),
    /// `key=value,…`
    Options(Options),
}

impl<'a> Arguments<'a> {
    pub(crate) fn of(argv: &'a [String]) -> Self {
        let mut pairs = Vec::new();
        let mut rest = argv.iter().skip(1);
        while let Some(option) = rest.next() {
            if SWITCHES.contains(&option.as_str()) {
                continue;
            }
            pairs.extend(rest.next().map(|value| (option.as_str(), value.as_str())));
        }
        Self { pairs }
    }

    /// The value of an option as it is, the first one.
    pub(crate) fn text(&self, option: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(name, _)| *name == option).map(|(_, value)| *value)
    }

    /// The values of an option that may be there several times.
    pub(crate) fn all(&self, option: &str) -> Vec<Values> {
        let values = self.pairs.iter().filter(|(name, _)| *name == option);
        values.map(|(_, value)| Values::of(value)).collect()
    }

    /// A member of the first value of an option.
    pub(crate) fn member(&self, option: &str, path: &str) -> Option<String> {
        Values::of(self.text(option)?).get(path)
    }

    /// The value among those of an option whose member has this text.
    pub(crate) fn find(&self, option: &str, member: &str, text: &str) -> Option<Values> {
        self.all(option).into_iter().find(|values| values.get(member).as_deref() == Some(text))
    }

    /// The value of a property that `-global` sets.
    pub(crate) fn global(&self, driver: &str, property: &str) -> Option<String> {
        let is_it = |values: &Values| {
            values.get("driver").as_deref() == Some(driver) && values.get("property").as_deref() == Some(property)
        };
        self.all("-global").into_iter().find(is_it)?.get("value")
    }

    /// The guest's CPU.
    pub(crate) fn cpu(&self) -> Option<Cpu> {
        Cpu::parse(self.text("-cpu")?).ok()
    }

    /// A property of the guest's CPU, the one that wins.
    pub(crate) fn cpu_property(&self, name: &str) -> Option<String> {
        self.cpu()?.get(name).map(str::to_owned)
    }

    /// Whether KVM runs the guest's instructions.
    pub(crate) fn is_kvm(&self) -> bool {
        self.text("-accel").is_some_and(|accelerator| accelerator.split(',').next() == Some("kvm"))
    }
}

impl Values {
    fn of(text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(value @ Value::Object(_)) => Self::Json(value),
            Ok(_) | Err(_) => Self::Options(Options::parse(text).unwrap_or_default()),
        }
    }

    /// A member by its name, or one below it by `name.name`; those of a list are numbered from 0. A switch is `on` or `off`.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        match self {
            Self::Options(options) => options.get(path).map(str::to_owned),
            Self::Json(value) => {
                let inner = path.split('.').try_fold(value, |at, member| match member.parse::<usize>() {
                    Ok(index) if at.is_array() => at.get(index),
                    Ok(_) | Err(_) => at.get(member),
                });
                scalar(inner?)
            }
        }
    }

    /// A member that is a number.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.get(path)?.parse().ok()
    }

    /// Whether a switch is on.
    pub(crate) fn is_on(&self, path: &str) -> bool {
        matches!(self.get(path).as_deref(), Some("on" | "true"))
    }

    /// The type of a device, which leads the second form.
    pub(crate) fn driver(&self) -> String {
        match self {
            Self::Options(options) => options.head().unwrap_or_default().to_owned(),
            Self::Json(_) => self.get("driver").unwrap_or_default(),
        }
    }

    /// The ID of a device.
    pub(crate) fn id(&self) -> String {
        self.get("id").unwrap_or_default()
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::Bool(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(arguments: &[&str]) -> Vec<String> {
        arguments.iter().map(|&argument| argument.to_owned()).collect()
    }

    #[test]
    fn both_forms_say_the_same() {
        let argv = owned(&[
            "/usr/bin/qemu",
            "-S",
            "-append",
            "-x=1",
            "-device",
            r#"{"driver":"d","id":"a","cache":{"direct":true},"list":[{"iothread":"t1"}],"n":4}"#,
            "-device",
            "d,id=b,cache.direct=on,list.0.iothread=t1,n=4",
        ]);
        let arguments = Arguments::of(&argv);
        assert_eq!(arguments.text("-append"), Some("-x=1"));
        let devices = arguments.all("-device");
        assert_eq!(devices.iter().map(Values::id).collect::<Vec<_>>(), ["a", "b"]);
        for device in devices {
            assert_eq!(device.driver(), "d");
            assert!(device.is_on("cache.direct"));
            assert_eq!(device.get("list.0.iothread").as_deref(), Some("t1"));
            assert_eq!((device.number("n"), device.get("list.1.iothread")), (Some(4), None));
        }
    }
}
