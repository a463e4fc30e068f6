//! Two answers out of `query-qmp-schema`, without ever holding all of it: it has 1500 entries and 200 KB, and as a tree
//! of values several megabytes.
//!
//! The schema names types by numbers and may use a number before it explains it, so what is kept while it streams by
//! are the members of enumerations and the tags of unions.
//!
//! Source followed: `qapi/introspect.json` of QEMU 7.2 and 10.0.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// What the schema contains about plugging devices and networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaAnswers {
    /// Values of `type` that `netdev_add` takes.
    pub(super) netdevs: BTreeSet<String>,
    /// Features of the command `device_add`.
    pub(super) device_add_features: BTreeSet<String>,
}

impl SchemaAnswers {
    /// Reads the reply of `query-qmp-schema`.
    pub(super) fn read(reply: &RawValue) -> serde_json::Result<Self> {
        let Gathered(gathered) = serde_json::from_str(reply.get())?;
        let tag = gathered.tags.get(&gathered.netdev_type);
        let netdevs = tag.and_then(|tag| gathered.enumerations.get(tag)).cloned().unwrap_or_default();
        Ok(Self { netdevs, device_add_features: gathered.device_add_features })
    }
}

#[derive(Default)]
struct Kept {
    netdev_type: String,
    device_add_features: BTreeSet<String>,
    /// Type of a union to type of its tag.
    tags: HashMap<String, String>,
    enumerations: HashMap<String, BTreeSet<String>>,
}

struct Gathered(Kept);

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Entry<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    meta_type: Cow<'a, str>,
    #[serde(borrow, default)]
    arg_type: Cow<'a, str>,
    #[serde(borrow, default)]
    tag: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    members: Vec<Member<'a>>,
    #[serde(borrow, default)]
    features: Vec<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Member<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default, rename = "type")]
    type_name: Cow<'a, str>,
}

impl<'de> Deserialize<'de> for Gathered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Gathered;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the list of schema entries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Gathered, A::Error> {
                let mut kept = Kept::default();
                while let Some(entry) = entries.next_element::<Entry<'de>>()? {
                    kept.take(entry);
                }
                Ok(Gathered(kept))
            }
        }
        deserializer.deserialize_seq(Entries)
    }
}

impl Kept {
    fn take(&mut self, entry: Entry<'_>) {
        match (&*entry.meta_type, &*entry.name) {
            ("command", "netdev_add") => self.netdev_type = entry.arg_type.into_owned(),
            ("command", "device_add") => {
                self.device_add_features = entry.features.into_iter().map(Cow::into_owned).collect();
            }
            ("object", _) => {
                let Some(tag) = entry.tag else { return };
                if let Some(member) = entry.members.into_iter().find(|member| member.name == tag) {
                    self.tags.insert(entry.name.into_owned(), member.type_name.into_owned());
                }
            }
            ("enum", _) => {
                let values = entry.members.into_iter().map(|member| member.name.into_owned()).collect();
                self.enumerations.insert(entry.name.into_owned(), values);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> serde_json::Result<SchemaAnswers> {
        SchemaAnswers::read(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn numbers_are_followed_although_they_are_explained_later() {
        let answers = read(
            r#"[{"name": "device_add", "meta-type": "command", "arg-type": "1", "ret-type": "0",
                 "features": ["json-cli", "json-cli-hotplug"]},
                {"name": "netdev_add", "meta-type": "command", "arg-type": "2", "ret-type": "0"},
                {"name": "2", "meta-type": "object", "tag": "type", "variants": [{"case": "user", "type": "9"}],
                 "members": [{"name": "id", "type": "str"}, {"name": "type", "type": "3"}]},
                {"name": "4", "meta-type": "enum", "members": [{"name": "no"}], "values": ["no"]},
                {"name": "3", "meta-type": "enum", "members": [{"name": "user"}, {"name": "tap"}], "values": []},
                {"name": "[int]", "meta-type": "array", "element-type": "int"},
                {"name": "int", "meta-type": "builtin", "json-type": "int"},
                {"name": "x", "meta-type": "alternate", "members": [{"type": "int"}]}]"#,
        )
        .unwrap();
        assert_eq!(answers.netdevs, ["tap", "user"].map(str::to_owned).into());
        assert_eq!(answers.device_add_features, ["json-cli", "json-cli-hotplug"].map(str::to_owned).into());
    }

    #[test]
    fn a_schema_without_the_commands_gives_nothing() {
        assert_eq!(read("[]").unwrap(), SchemaAnswers::default());
        let loose = r#"[{"name": "netdev_add", "meta-type": "command", "arg-type": "7"}]"#;
        assert_eq!(read(loose).unwrap(), SchemaAnswers::default());
    }

    #[test]
    fn what_is_no_schema_is_an_error() {
        for text in ["{}", "[1]", r#"[{"name": "x"}]"#] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
