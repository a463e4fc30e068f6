//! What PID 1 of a bare host writes to its standard output while it makes a user namespace of its own; the shim reads it. The shim may
//! be older than the PID 1 that it starts: it ignores lines that it does not know, and what follows after those that it does.

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

/// Why a line is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// Only a later PID 1 has it: it is ignored.
    #[error("`{line}` is no message of PID 1 that this version has")]
    Unknown {
        /// The line.
        line: String,
    },
    /// The process ID is none.
    #[error("`{line}` names no process")]
    NoProcess {
        /// The line.
        line: String,
    },
}

impl FromStr for NamespaceReport {
    type Err = ReportError;

    fn from_str(line: &str) -> Result<Self, ReportError> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "ready" => Ok(Self::Ready),
            "pid" => {
                let number = rest.split(' ').next().unwrap_or_default();
                number.parse().map(Self::Pid).map_err(|_| ReportError::NoProcess { line: line.to_owned() })
            }
            "refused" => Ok(Self::Refused(rest.to_owned())),
            _ => Err(ReportError::Unknown { line: line.to_owned() }),
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
    }

    #[test]
    fn what_a_later_pid_1_adds_is_not_an_error_of_what_it_sent_before() {
        assert_eq!("ready since 7".parse(), Ok(NamespaceReport::Ready));
        assert_eq!("pid 7 of 9".parse(), Ok(NamespaceReport::Pid(7)));
        for later in ["", "hello", "readying", "cgroup /x"] {
            let unknown = ReportError::Unknown { line: later.to_owned() };
            assert_eq!(later.parse::<NamespaceReport>(), Err(unknown));
        }
        for bad in ["pid", "pid x"] {
            assert_eq!(bad.parse::<NamespaceReport>(), Err(ReportError::NoProcess { line: bad.to_owned() }));
        }
    }
}
