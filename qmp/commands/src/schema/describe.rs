//! The schema as text for users.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{DEPTH_LIMIT, Kind, Member, Schema};

/// Values of an enumeration shown where a type is only mentioned.
const SHOWN_CHOICES: usize = 8;

impl Schema {
    /// The description of a command or event: its arguments with their types, what chooses further arguments,
    /// what it returns, and warnings. `None` if QEMU does not have it.
    pub fn describe(&self, name: &str) -> Option<String> {
        let (heading, returns) = match self.kind(name)? {
            Kind::Command { returns, .. } => ("command", Some(returns)),
            Kind::Event { .. } => ("event", None),
            Kind::Object { .. } | Kind::Enumeration(_) | Kind::Array(_) | Kind::Alternate(_) | Kind::Builtin(_) => {
                return None;
            }
        };
        let mut text = format!("{name}: {heading}{}\n", flags(self.features(name)));
        let members = self.arguments(name, &Value::Null);
        if members.is_empty() {
            text.push_str(if returns.is_some() { "  takes no arguments\n" } else { "  carries no data\n" });
        }
        list(&mut text, &members, "  ");
        for tag in members.iter().filter(|member| member.is_tag) {
            self.list_variants(&mut text, name, tag, members.len());
        }
        if let Some(returns) = returns {
            self.list_returned(&mut text, returns);
        }
        Some(text)
    }

    fn list_variants(&self, text: &mut String, name: &str, tag: &Member, common: usize) {
        for case in &tag.choices {
            let members = self.arguments(name, &json!({ tag.name.as_str(): case }));
            if let Some(more) = members.get(common..).filter(|more| !more.is_empty()) {
                let _ = writeln!(text, "  with {}={case} also", tag.name);
                list(text, more, "    ");
            }
        }
    }

    fn list_returned(&self, text: &mut String, returns: &str) {
        let (element, plural) = match self.kind(returns) {
            Some(Kind::Array(element)) => (element.as_str(), " a list of"),
            _ => (returns, ""),
        };
        let members = self.members(element, &Value::Null);
        match (self.kind(element), members.is_empty()) {
            (Some(Kind::Object { .. }), true) => text.push_str("  returns nothing\n"),
            (Some(Kind::Object { .. }), false) => {
                let _ = writeln!(text, "  returns{plural}");
                list(text, &members, "    ");
            }
            _ => {
                let _ = writeln!(text, "  returns{plural} {}", self.type_text(element, 0));
            }
        }
    }

    /// A type in a few characters.
    pub(super) fn type_text(&self, type_name: &str, depth: usize) -> String {
        match self.kind(type_name) {
            _ if depth == DEPTH_LIMIT => "…".to_owned(),
            Some(Kind::Builtin(json_type)) => json_type.clone(),
            Some(Kind::Enumeration(values)) if values.len() > SHOWN_CHOICES => {
                format!("{}|… ({} values)", values[..SHOWN_CHOICES].join("|"), values.len())
            }
            Some(Kind::Enumeration(values)) => values.join("|"),
            Some(Kind::Array(element)) => format!("[{}]", self.type_text(element, depth + 1)),
            Some(Kind::Alternate(types)) => {
                let texts: Vec<_> = self.choosable(types).map(|other| self.type_text(other, depth + 1)).collect();
                texts.join(" or ")
            }
            Some(Kind::Object { .. }) => "{…}".to_owned(),
            Some(Kind::Command { .. } | Kind::Event { .. }) | None => "?".to_owned(),
        }
    }
}

fn list(text: &mut String, members: &[Member], indent: &str) {
    let width = members.iter().map(|member| member.name.len()).max().unwrap_or(0);
    for member in members {
        let need = if member.is_required { "" } else { ", optional" };
        let choosing = if member.is_tag { ", chooses further arguments" } else { "" };
        let flags = flags(&member.features);
        let _ = writeln!(text, "{indent}{:width$}  {}{need}{choosing}{flags}", member.name, member.type_text);
    }
}

fn flags(features: &[String]) -> String {
    if features.is_empty() { String::new() } else { format!(" [{}]", features.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let reply = json!([
            {"name": "blockdev-add", "meta-type": "command", "arg-type": "1", "ret-type": "0"},
            {"name": "query-things", "meta-type": "command", "arg-type": "0", "ret-type": "[9]",
             "features": ["unstable"]},
            {"name": "GONE", "meta-type": "event", "arg-type": "9"},
            {"name": "0", "meta-type": "object", "members": []},
            {"name": "1", "meta-type": "object", "tag": "driver",
             "members": [{"name": "driver", "type": "2"}, {"name": "read-only", "type": "bool", "default": null}],
             "variants": [{"case": "file", "type": "3"}, {"case": "null-co", "type": "0"}]},
            {"name": "2", "meta-type": "enum", "members": [{"name": "file"}, {"name": "null-co"}],
             "values": ["file", "null-co"]},
            {"name": "3", "meta-type": "object", "members": [
                {"name": "filename", "type": "str"},
                {"name": "aio", "type": "4", "default": null, "features": ["deprecated"]},
                {"name": "backing", "type": "5", "default": null}]},
            {"name": "4", "meta-type": "enum", "values": ["threads", "native"]},
            {"name": "5", "meta-type": "alternate", "members": [{"type": "1"}, {"type": "str"}]},
            {"name": "9", "meta-type": "object", "members": [{"name": "id", "type": "str"}]},
            {"name": "[9]", "meta-type": "array", "element-type": "9"},
            {"name": "str", "meta-type": "builtin", "json-type": "string"},
            {"name": "bool", "meta-type": "builtin", "json-type": "boolean"},
            {"name": "odd", "meta-type": "hologram"}
        ]);
        Schema::parse(&reply.to_string()).unwrap()
    }

    #[test]
    fn a_command_is_described_with_what_its_arguments_choose() {
        let text = schema().describe("blockdev-add").unwrap();
        assert_eq!(
            text,
            "blockdev-add: command
  driver     file|null-co, chooses further arguments
  read-only  boolean, optional
  with driver=file also
    filename  string
    aio       threads|native, optional [deprecated]
    backing   {…} or string, optional
  returns nothing
"
        );
        let text = schema().describe("query-things").unwrap();
        assert_eq!(
            text,
            "query-things: command [unstable]\n  takes no arguments\n  returns a list of\n    id  string\n"
        );
        assert!(schema().describe("GONE").unwrap().contains("event"));
        assert!(schema().describe("9").is_none() && schema().describe("nothing").is_none());
    }

    #[test]
    fn arguments_follow_what_is_given() {
        let names = |given: Value| -> Vec<String> {
            schema().arguments("blockdev-add", &given).into_iter().map(|member| member.name).collect()
        };
        assert_eq!(names(Value::Null), ["driver", "read-only"]);
        assert_eq!(names(json!({"driver": "file"})), ["driver", "read-only", "filename", "aio", "backing"]);
        assert_eq!(names(json!({"driver": "no-such-driver"})), ["driver", "read-only"]);
        assert_eq!(schema().arguments("blockdev-add", &Value::Null)[1].choices, ["false", "true"]);
    }

    #[test]
    fn paths_find_members_variants_and_values() {
        let schema = schema();
        for path in [
            "driver",
            "read-only",
            "driver=file.filename",
            "driver=file.aio=native",
            "driver=file.read-only",
            "driver=file.backing.driver=null-co",
            "driver=null-co",
        ] {
            assert!(schema.accepts("blockdev-add", path), "{path}");
        }
        for path in ["filename", "driver=ftp", "driver=null-co.filename", "driver=file.aio=io_uring", "driver.x", ""] {
            assert!(!schema.accepts("blockdev-add", path), "{path}");
        }
        assert!(!schema.accepts("GONE", "id") && !schema.accepts("nothing", "id"));
    }

    #[test]
    fn a_schema_that_turns_in_a_circle_ends() {
        let reply = json!([
            {"name": "c", "meta-type": "command", "arg-type": "o", "ret-type": "a"},
            {"name": "o", "meta-type": "object", "tag": "t", "members": [{"name": "t", "type": "e"}],
             "variants": [{"case": "x", "type": "o"}]},
            {"name": "e", "meta-type": "enum", "values": ["x"]},
            {"name": "a", "meta-type": "array", "element-type": "a"},
            {"name": "l", "meta-type": "alternate", "members": [{"type": "l"}, {"type": "l"}]},
            {"name": "d", "meta-type": "command", "arg-type": "p", "ret-type": "l"},
            {"name": "p", "meta-type": "object", "members": [{"name": "m", "type": "l"}]}
        ]);
        let schema = Schema::parse(&reply.to_string()).unwrap();
        assert!(schema.describe("c").unwrap().len() < 10_000);
        assert!(schema.accepts("c", "t=x.t=x.t=x"));
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        assert!(Schema::parse("{}").is_err());
        assert!(Schema::parse("[{\"name\": 1}]").is_err());
        assert!(Schema::parse("[]").unwrap().commands().next().is_none());
    }
}
