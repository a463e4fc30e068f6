//! What a client of the broker may send: a decision over a table, nothing else.
//!
//! A command's class follows from what it can reach, not from what it is meant for: one that makes QEMU open a file, a
//! socket or a device by name, or adds an object, a device or a backend whose properties are such names, is dangerous.
//! `tests/contract` asks the QEMU at hand which arguments its commands take and fails where the table lists less. A file
//! that a command writes is named by the broker, at every level; commands whose file it cannot name are forbidden.
//!
//! The dangerous level is everything QEMU can do (`human-monitor-command` alone is). Only the two below are a boundary.
//!
//! | class | read-only | read-write | dangerous | taints |
//! | --- | --- | --- | --- | --- |
//! | query | yes | yes | yes | no |
//! | harmless mutation | no | yes | yes | no |
//! | mutation | no | yes | yes | yes |
//! | dangerous, and everything unknown | no | no | yes | yes |
//! | forbidden | no | no | no | – |

use serde_json::Value;

use super::result_file;
use super::table::RULES;

/// What a command can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandRisk {
    /// Changes nothing.
    Query,
    /// Changes something the guest and the supervisor do not notice.
    HarmlessMutation,
    /// Changes the machine.
    Mutation,
    /// Can end the guest, lose its data or show its secrets.
    Dangerous,
    /// Would break the supervisor, or cannot work through the broker.
    Forbidden,
}

/// How much a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientAccess {
    /// Queries.
    ReadOnly,
    /// Queries and mutations that are not dangerous.
    ReadWrite,
    /// Everything that is not forbidden.
    Dangerous,
}

impl ClientAccess {
    /// Every level, the lowest first.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::ReadWrite, Self::Dangerous];

    /// The capability by which a client asks for this level in `qmp_capabilities`; the lowest needs none. The form is
    /// the one QMP reserves for extensions, a reversed domain name between underscores.
    pub const fn capability(self) -> Option<&'static str> {
        match self {
            Self::ReadOnly => None,
            Self::ReadWrite => Some("__dev.garboard_write"),
            Self::Dangerous => Some("__dev.garboard_dangerous"),
        }
    }

    /// The option of `garboard qmp` that asks for this level.
    pub const fn command_line_option(self) -> &'static str {
        match self {
            Self::ReadOnly => "no option",
            Self::ReadWrite => "--allow-write",
            Self::Dangerous => "--allow-dangerous",
        }
    }

    const fn reaches(self) -> CommandRisk {
        match self {
            Self::ReadOnly => CommandRisk::Query,
            Self::ReadWrite => CommandRisk::Mutation,
            Self::Dangerous => CommandRisk::Dangerous,
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The command.
    pub command: &'static str,
    /// If set, the row counts only where this argument has one of these values.
    pub when: Option<(&'static str, &'static [&'static str])>,
    /// What it can do.
    pub risk: CommandRisk,
    /// What is at stake, as the end of a message that begins with the command.
    pub stake: &'static str,
}

impl Rule {
    fn matches(&self, command: &str, arguments: &Value) -> bool {
        let condition = self.when.is_none_or(|(key, values)| {
            arguments.get(key).and_then(Value::as_str).is_some_and(|value| values.contains(&value))
        });
        self.command == command && condition
    }
}

/// For commands without a review.
const UNKNOWN: Rule = Rule {
    command: "",
    when: None,
    risk: CommandRisk::Dangerous,
    stake: "is not in the table of known commands, so its risk is unknown",
};

/// Whether a client may send a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandVerdict {
    /// It may.
    Allowed {
        /// Whether the machine is no longer what the supervisor made.
        taints: bool,
    },
    /// It may not.
    Denied {
        /// What is at stake.
        why: String,
        /// What to do to be allowed, or instead.
        how: String,
    },
}

/// The table and the decision over it.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    rules: &'static [Rule],
}

impl Default for Policy {
    fn default() -> Self {
        Self { rules: RULES }
    }
}

impl Policy {
    /// A policy with a table of its own.
    pub const fn with_rules(rules: &'static [Rule]) -> Self {
        Self { rules }
    }

    /// The rows, for display.
    pub const fn rules(&self) -> &'static [Rule] {
        self.rules
    }

    /// The row for a command; unknown ones are dangerous.
    pub fn rule_for(&self, command: &str, arguments: &Value) -> Rule {
        self.rules.iter().find(|rule| rule.matches(command, arguments)).copied().unwrap_or(UNKNOWN)
    }

    /// Whether a client with this access may send the command with these arguments.
    pub fn judge(&self, access: ClientAccess, command: &str, arguments: &Value) -> CommandVerdict {
        let rule = self.rule_for(command, arguments);
        if rule.risk <= access.reaches() {
            if let Some(argument) = result_file::argument_of(command).filter(|name| arguments.get(name).is_some()) {
                let how = format!("leave `{argument}` out, and the answer contains the file's path");
                return CommandVerdict::Denied { why: format!("`{argument}` would name a file that QEMU writes"), how };
            }
            return CommandVerdict::Allowed { taints: rule.risk > CommandRisk::HarmlessMutation };
        }
        let how = match ClientAccess::ALL.into_iter().find(|level| rule.risk <= level.reaches()) {
            None => "no client of the broker may send it".to_owned(),
            Some(level) => format!(
                "connect with `garboard qmp {}`, or enable the capability `{}` in qmp_capabilities if this socket offers it",
                level.command_line_option(),
                level.capability().unwrap_or_default(),
            ),
        };
        CommandVerdict::Denied { why: format!("it {}", rule.stake), how }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn allowed(access: ClientAccess, command: &str) -> bool {
        matches!(Policy::default().judge(access, command, &Value::Null), CommandVerdict::Allowed { .. })
    }

    #[test]
    fn each_access_reaches_its_classes_and_no_further() {
        let table = [
            ("query-status", [true, true, true]),
            ("trace-event-set-state", [false, true, true]),
            ("screendump", [false, true, true]),
            ("set_link", [false, true, true]),
            // Each of these opens a file or a socket by name, or makes something that does.
            ("chardev-add", [false, false, true]),
            ("blockdev-add", [false, false, true]),
            ("object-add", [false, false, true]),
            ("netdev_add", [false, false, true]),
            ("device_add", [false, false, true]),
            ("blockdev-change-medium", [false, false, true]),
            ("display-update", [false, false, true]),
            ("quit", [false, false, true]),
            ("migrate", [false, false, true]),
            ("device_del", [false, false, true]),
            ("human-monitor-command", [false, false, true]),
            ("system_reset", [false, false, true]),
            ("no-such-command", [false, false, true]),
            ("query-no-such-command", [false, false, true]),
            ("getfd", [false, false, false]),
            ("chardev-remove", [false, false, false]),
            ("watchdog-set-action", [false, false, false]),
            ("pmemsave", [false, false, false]),
            ("dump-guest-memory", [false, false, false]),
        ];
        for (command, expected) in table {
            assert_eq!(ClientAccess::ALL.map(|access| allowed(access, command)), expected, "{command}");
        }
    }

    #[test]
    fn only_what_changes_the_machine_taints() {
        let taints = |command| match Policy::default().judge(ClientAccess::Dangerous, command, &Value::Null) {
            CommandVerdict::Allowed { taints } => taints,
            CommandVerdict::Denied { .. } => panic!("{command} denied"),
        };
        assert!(!taints("query-block") && !taints("screendump") && taints("set_link") && taints("quit"));
    }

    #[test]
    fn reading_a_secret_is_dangerous_though_reading_is_not() {
        let policy = Policy::default();
        let harmless = json!({"path": "/machine", "property": "type"});
        let secret = json!({"path": "/objects/sec0", "property": "data"});
        assert!(matches!(
            policy.judge(ClientAccess::ReadOnly, "qom-get", &harmless),
            CommandVerdict::Allowed { taints: false }
        ));
        assert!(matches!(policy.judge(ClientAccess::ReadWrite, "qom-get", &secret), CommandVerdict::Denied { .. }));
    }

    #[test]
    fn no_client_names_a_file_that_qemu_writes() {
        let named = json!({"filename": "/run/garboard/default/hello/shared/journal.json"});
        for access in [ClientAccess::ReadWrite, ClientAccess::Dangerous] {
            let CommandVerdict::Denied { how, .. } = Policy::default().judge(access, "screendump", &named) else {
                panic!("{access:?} names a file");
            };
            assert!(how.contains("leave `filename` out"), "{how}");
        }
        let unnamed = json!({"format": "png"});
        let verdict = Policy::default().judge(ClientAccess::ReadWrite, "screendump", &unnamed);
        assert_eq!(verdict, CommandVerdict::Allowed { taints: false });
    }

    #[test]
    fn a_denial_contains_the_reason_and_what_to_do() {
        let CommandVerdict::Denied { why, how } =
            Policy::default().judge(ClientAccess::ReadOnly, "set_link", &Value::Null)
        else {
            panic!("allowed");
        };
        assert!(
            why.contains("cable") && how.contains("--allow-write") && how.contains("__dev.garboard_write"),
            "{how}"
        );
        let CommandVerdict::Denied { how, .. } =
            Policy::default().judge(ClientAccess::Dangerous, "getfd", &Value::Null)
        else {
            panic!("allowed");
        };
        assert!(how.contains("no client"), "{how}");
    }

    #[test]
    fn the_table_has_no_contradictions() {
        let rules = Policy::default().rules();
        for (position, rule) in rules.iter().enumerate() {
            let earlier = rules[..position].iter().find(|other| other.command == rule.command);
            assert!(earlier.is_none_or(|other| other.when.is_some()), "{} can never match", rule.command);
            assert!(!rule.stake.ends_with('.') && !rule.stake.is_empty(), "{}", rule.command);
        }
    }
}
