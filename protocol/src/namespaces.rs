//! What PID 1 of a bare host writes to its standard output while it makes a user namespace of its own; the shim reads it.

use std::fmt;
use std::str::FromStr;

/// One line of a starting PID 1. It writes `pid` and then one of the others, in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceReport {
    /// PID 1 is this process, as the shim's PID namespace numbers it.
    Pid(i32),
    /// It has its namespaces and its root.
    Ready,
    /// It cannot have them, and has ended: the reason, for a person.
    Refused(String),
}

impl fmt::Display for NamespaceReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(formatter, "pid {pid}"),
            Self::Ready => formatter.write_str("ready"),
            Self::Refused(why) => write!(formatter, "refused {}", why.replace('\n', " ")),
        }
    }
}

impl FromStr for NamespaceReport {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("ready", "") => Ok(Self::Ready),
            ("pid", pid) => pid.parse().map(Self::Pid).map_err(|_| format!("`{line}` names no process")),
            ("refused", why) => Ok(Self::Refused(why.to_owned())),
            _ => Err(format!("`{line}` is no message of PID 1")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for report in [
            NamespaceReport::Pid(7),
            NamespaceReport::Ready,
            NamespaceReport::Refused("could not mount /proc: EPERM".to_owned()),
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        for bad in ["", "pid", "pid x", "hello", "ready now"] {
            assert!(bad.parse::<NamespaceReport>().is_err(), "{bad}");
        }
    }
}
