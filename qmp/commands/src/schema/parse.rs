//! The reply of `query-qmp-schema` to entities, one at a time: no copy of the whole as JSON values is made.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};

use super::{Entity, Kind, RawMember};

/// Entities taken; QEMU 7.2 has 1 051, 10.0 about 1 300.
const ENTITY_LIMIT: usize = 20_000;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Wire {
    name: String,
    meta_type: String,
    #[serde(default)]
    arg_type: String,
    #[serde(default)]
    ret_type: String,
    #[serde(default)]
    element_type: String,
    #[serde(default)]
    json_type: String,
    tag: Option<String>,
    #[serde(default)]
    members: Vec<WireMember>,
    #[serde(default)]
    variants: Vec<WireVariant>,
    #[serde(default)]
    values: Vec<String>,
    #[serde(default)]
    features: Vec<String>,
}

/// A member of an object (`name`, `type`), of an enumeration (`name`) or of an alternate (`type`).
#[derive(Deserialize)]
struct WireMember {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "type")]
    type_name: String,
    /// Present, and null, where the member is optional.
    #[serde(default, deserialize_with = "presence")]
    default: bool,
    #[serde(default)]
    features: Vec<String>,
}

#[derive(Deserialize)]
struct WireVariant {
    case: String,
    #[serde(rename = "type")]
    type_name: String,
}

fn presence<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer).map(|_| true)
}

pub(super) fn entities(reply: &str) -> Result<BTreeMap<String, Entity>, serde_json::Error> {
    struct Entities;
    impl<'de> Visitor<'de> for Entities {
        type Value = BTreeMap<String, Entity>;
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("the list of query-qmp-schema")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
            let mut found = BTreeMap::new();
            while let Some(wire) = elements.next_element::<Wire>()? {
                if found.len() == ENTITY_LIMIT {
                    return Err(A::Error::custom(format!("more than {ENTITY_LIMIT} entities")));
                }
                let name = wire.name.clone();
                found.insert(name, wire.into());
            }
            Ok(found)
        }
    }
    serde_json::Deserializer::from_str(reply).deserialize_seq(Entities)
}

impl From<Wire> for Entity {
    fn from(wire: Wire) -> Self {
        let kind = match &*wire.meta_type {
            "command" => Kind::Command { arguments: wire.arg_type, returns: wire.ret_type },
            "event" => Kind::Event { data: wire.arg_type },
            "object" => Kind::Object {
                members: wire.members.into_iter().map(RawMember::from).collect(),
                tag: wire.tag,
                variants: wire.variants.into_iter().map(|variant| (variant.case, variant.type_name)).collect(),
            },
            // `members` came with 6.2; `values` is the older and deprecated form.
            "enum" if wire.members.is_empty() => Kind::Enumeration(wire.values),
            "enum" => Kind::Enumeration(wire.members.into_iter().map(|member| member.name).collect()),
            "array" => Kind::Array(wire.element_type),
            "alternate" => Kind::Alternate(wire.members.into_iter().map(|member| member.type_name).collect()),
            // A kind newer than this program is shown as itself.
            other => Kind::Builtin(if wire.json_type.is_empty() { other.to_owned() } else { wire.json_type }),
        };
        Self { kind, features: wire.features }
    }
}

impl From<WireMember> for RawMember {
    fn from(wire: WireMember) -> Self {
        let WireMember { name, type_name, default, features } = wire;
        Self { name, type_name, is_required: !default, features }
    }
}
