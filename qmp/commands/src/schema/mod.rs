//! What this QEMU offers: its commands, events and types, from `query-qmp-schema`.
//!
//! For: completion and documentation in `garboard qmp`, and for probing what a QEMU can do, once per QEMU build. Not
//! for the supervisor: the reply of QEMU 7.2 has 207 009 bytes, and what is kept of it here about twice that.
//!
//! ```text
//! command ─arg-type─► object ─members─► type ─► object | enum | array | alternate | builtin
//!                       └─tag + variants: members that exist only where the tag has a certain value
//! ```
//!
//! QEMU numbers its types instead of naming them, and the numbers differ between builds: nothing here shows them.
//!
//! Source followed: `qapi/introspect.json` of QEMU 7.2 and 10.0.

mod describe;
mod parse;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Nesting followed when types are shown or searched; QEMU's types refer to themselves.
const DEPTH_LIMIT: usize = 12;

/// The reply is no schema, or larger than one may be.
#[derive(Debug, thiserror::Error)]
#[error("the schema of QEMU could not be parsed")]
pub struct Malformed(#[source] serde_json::Error);

/// The schema of one QEMU.
#[derive(Debug, Clone)]
pub struct Schema {
    entities: BTreeMap<String, Entity>,
}

/// Something the schema defines.
#[derive(Debug, Clone)]
struct Entity {
    kind: Kind,
    features: Vec<String>,
}

#[derive(Debug, Clone)]
enum Kind {
    Command { arguments: String, returns: String },
    Event { data: String },
    Object { members: Vec<RawMember>, tag: Option<String>, variants: Vec<(String, String)> },
    Enumeration(Vec<String>),
    Array(String),
    Alternate(Vec<String>),
    Builtin(String),
}

#[derive(Debug, Clone)]
struct RawMember {
    name: String,
    type_name: String,
    is_required: bool,
    features: Vec<String>,
}

/// One argument of a command, or one member of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type, for users: `string`, `int`, `[string]`, `on|off|auto`, `{…}`.
    pub type_text: String,
    /// Whether it must be given.
    pub is_required: bool,
    /// Whether its value decides which other members there are.
    pub is_tag: bool,
    /// The values it may have, if they are listed.
    pub choices: Vec<String>,
    /// `deprecated`, `unstable`, …
    pub features: Vec<String>,
}

impl Schema {
    /// Reads the reply of `query-qmp-schema`.
    pub fn parse(reply: &str) -> Result<Self, Malformed> {
        let entities = parse::entities(reply).map_err(Malformed)?;
        Ok(Self { entities })
    }

    /// The commands, sorted.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.entities.iter().filter(|(_, entity)| matches!(entity.kind, Kind::Command { .. })).map(|(name, _)| &**name)
    }

    /// The events, sorted.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        self.entities.iter().filter(|(_, entity)| matches!(entity.kind, Kind::Event { .. })).map(|(name, _)| &**name)
    }

    /// Whether QEMU has this command.
    pub fn has_command(&self, command: &str) -> bool {
        self.entities.get(command).is_some_and(|entity| matches!(entity.kind, Kind::Command { .. }))
    }

    /// The feature flags of a command or event: `deprecated`, `unstable`, `json-cli-hotplug`, …
    pub fn features(&self, name: &str) -> &[String] {
        self.entities.get(name).map_or(&[], |entity| &entity.features)
    }

    /// The arguments a command takes, given those that are there already: where one of these chooses others (`driver`
    /// of `blockdev-add`), the chosen ones are included. Pass `Value::Null` for the unconditional ones.
    pub fn arguments(&self, command: &str, given: &Value) -> Vec<Member> {
        let type_name = match self.entities.get(command).map(|entity| &entity.kind) {
            Some(Kind::Command { arguments, .. }) => arguments,
            Some(Kind::Event { data }) => data,
            _ => return Vec::new(),
        };
        self.members(type_name, given)
    }

    /// Whether a command accepts something in its arguments. `path` goes down through members with dots, and chooses by
    /// value with an equals sign: `accepts("blockdev-add", "driver=file.aio=io_uring")`,
    /// `accepts("object-add", "qom-type=memory-backend-memfd.hugetlb")`, `accepts("device_add", "id")`.
    pub fn accepts(&self, command: &str, path: &str) -> bool {
        let Some(Kind::Command { arguments, .. }) = self.entities.get(command).map(|entity| &entity.kind) else {
            return false;
        };
        let mut frontier = vec![arguments.as_str()];
        for step in path.split('.') {
            let (name, value) = step.split_once('=').map_or((step, None), |(name, value)| (name, Some(value)));
            frontier = frontier.into_iter().flat_map(|type_name| self.follow(type_name, name, value, 0)).collect();
            frontier.sort_unstable();
            frontier.dedup();
            if frontier.is_empty() {
                return false;
            }
        }
        true
    }

    /// The names of every member that the arguments of a command may have, at any depth and in any variant.
    pub fn member_names(&self, command: &str) -> BTreeSet<&str> {
        let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let Some(Kind::Command { arguments, .. }) = self.kind(command) else { return names };
        let mut waiting = vec![arguments.as_str()];
        while let Some(type_name) = waiting.pop() {
            if !seen.insert(type_name) {
                continue;
            }
            match self.kind(type_name) {
                Some(Kind::Object { members, variants, .. }) => {
                    names.extend(members.iter().map(|member| member.name.as_str()));
                    waiting.extend(members.iter().map(|member| member.type_name.as_str()));
                    waiting.extend(variants.iter().map(|(_, variant)| variant.as_str()));
                }
                Some(Kind::Array(element)) => waiting.push(element),
                Some(Kind::Alternate(types)) => waiting.extend(types.iter().map(String::as_str)),
                _ => {}
            }
        }
        names
    }

    /// Where a step of a path leads: the member's type, or the chosen variant.
    fn follow<'a>(&'a self, type_name: &'a str, name: &str, value: Option<&str>, depth: usize) -> Vec<&'a str> {
        match self.kind(type_name) {
            _ if depth == DEPTH_LIMIT => Vec::new(),
            Some(Kind::Object { members, tag, variants }) => {
                let Some(member) = members.iter().find(|member| member.name == name) else { return Vec::new() };
                match value {
                    None => vec![member.type_name.as_str()],
                    Some(value) if !self.choices(&member.type_name).contains(&value) => Vec::new(),
                    // The common members can still be followed from here, like those of the variant.
                    Some(value) if tag.as_deref() == Some(name) => {
                        let chosen =
                            variants.iter().find(|(case, _)| case == value).map(|(_, variant)| variant.as_str());
                        chosen.into_iter().chain([type_name]).collect()
                    }
                    Some(_) => vec![type_name],
                }
            }
            Some(Kind::Array(element)) => self.follow(element, name, value, depth + 1),
            Some(Kind::Alternate(types)) => {
                self.choosable(types).flat_map(|other| self.follow(other, name, value, depth + 1)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The types of an alternate. QAPI has no alternates of alternates; skipping them keeps a wrong schema from growing
    /// without end.
    fn choosable<'a>(&'a self, types: &'a [String]) -> impl Iterator<Item = &'a str> {
        types.iter().map(String::as_str).filter(|name| !matches!(self.kind(name), Some(Kind::Alternate(_)) | None))
    }

    fn kind(&self, name: &str) -> Option<&Kind> {
        self.entities.get(name).map(|entity| &entity.kind)
    }

    fn members(&self, type_name: &str, given: &Value) -> Vec<Member> {
        let mut found = Vec::new();
        let mut next = Some(type_name);
        // Variants of variants: the depth is small, the bound guards against a schema that turns in a circle.
        for _ in 0..DEPTH_LIMIT {
            let Some(Kind::Object { members, tag, variants }) = next.and_then(|name| self.kind(name)) else { break };
            found.extend(members.iter().map(|member| self.shown(member, tag.as_deref())));
            let case = tag.as_ref().and_then(|tag| given.get(tag)).and_then(Value::as_str);
            next = case.and_then(|case| variants.iter().find(|(name, _)| name == case)).map(|(_, variant)| &**variant);
        }
        found
    }

    fn shown(&self, member: &RawMember, tag: Option<&str>) -> Member {
        Member {
            name: member.name.clone(),
            type_text: self.type_text(&member.type_name, 0),
            is_required: member.is_required,
            is_tag: tag == Some(&*member.name),
            choices: self.choices(&member.type_name).into_iter().map(ToOwned::to_owned).collect(),
            features: member.features.clone(),
        }
    }

    fn choices<'a>(&'a self, type_name: &'a str) -> Vec<&'a str> {
        match self.kind(type_name) {
            Some(Kind::Alternate(types)) => self.choosable(types).flat_map(|other| self.own_choices(other)).collect(),
            _ => self.own_choices(type_name),
        }
    }

    fn own_choices<'a>(&'a self, type_name: &'a str) -> Vec<&'a str> {
        match self.kind(type_name) {
            Some(Kind::Enumeration(values)) => values.iter().map(String::as_str).collect(),
            Some(Kind::Builtin(json_type)) if json_type == "boolean" => vec!["false", "true"],
            _ => Vec::new(),
        }
    }
}
