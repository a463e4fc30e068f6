//! Errors of kubectl, classified, with what to do about each. Pure.

use crate::exit::{FAILED, NOT_FOUND, REFUSED};

/// Why a call of kubectl failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no kubectl.
    #[error("`{program}` cannot be executed ({reason}); install kubectl, or name it in GARBOARD_KUBECTL")]
    NoProgram {
        /// What was tried.
        program: String,
        /// The kernel's error.
        reason: String,
    },
    /// The API server cannot be reached.
    #[error("the cluster cannot be reached: {0}; is KUBECONFIG or --context the right one, and the API server up?")]
    Unreachable(String),
    /// The API server does not accept the user's credentials.
    #[error("the cluster does not accept your credentials: {0}; log in again, or choose another --context or --user")]
    Unauthorized(String),
    /// The user may not.
    #[error("you may not do this: {0}; ask an administrator of the namespace for that right")]
    Forbidden(String),
    /// The cluster does not have Garboard's kinds.
    #[error("this cluster has no VirtualMachines: {0}; install Garboard with `kubectl garboard cluster install`")]
    NotInstalled(String),
    /// The object is not there.
    #[error("{0}")]
    NotFound(String),
    /// The pod's container does not run.
    #[error("the launcher does not run in its pod: {0}; `kubectl garboard why` shows the machine's state")]
    NotRunning(String),
    /// Another client owns fields that are to be written.
    #[error("the fields are managed by another client: {0}")]
    Conflict(String),
    /// The connection to the pod broke.
    #[error("the connection to the pod was lost: {0}; the machine may still run, `kubectl garboard why` shows it")]
    Lost(String),
    /// The controller has no such subresource, or there is no controller that has any.
    #[error(
        "this cluster does not serve {0}: its controller is of an earlier version than this program, or there is none; \
         `kubectl garboard cluster status` shows it, and `kubectl garboard cluster install` upgrades it"
    )]
    NotServed(String),
    /// The API server has subresources, and reaches no controller that serves them.
    #[error("no controller answers: {0}; `kubectl garboard cluster status` shows how it is")]
    NoController(String),
    /// The machine's state does not allow it.
    #[error("{0}")]
    Refused(String),
    /// A stream ended before the machine's side of it did.
    #[error("the connection to the machine was lost: {0}; the machine may still run, `kubectl garboard why` shows it")]
    Interrupted(String),
    /// There was no answer in time.
    #[error("there was no answer in time: {0}")]
    NoAnswer(String),
    /// Everything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Takes standard error of kubectl apart.
    pub(crate) fn of(stderr: &str) -> Self {
        let text = essence(stderr);
        let has = |parts: &[&str]| parts.iter().any(|part| stderr.contains(part));
        if has(&["the server doesn't have a resource type", "no matches for kind"]) {
            return Self::NotInstalled(text);
        }
        if has(&["container not found", "in a completed pod", "is not valid for pod", "is waiting to start"])
            || has(&["does not have a host assigned", "is terminated", "PodInitializing"])
        {
            return Self::NotRunning(text);
        }
        if has(&["Unauthorized", "must be logged in", "provide credentials"]) {
            return Self::Unauthorized(text);
        }
        if has(&["(Forbidden)", "is forbidden", " forbidden: "]) {
            return Self::Forbidden(text);
        }
        if has(&["(NotFound)", " not found"]) {
            return Self::NotFound(text);
        }
        if has(&["conflict with", "Apply failed with"]) {
            return Self::Conflict(text);
        }
        let unreachable = [
            "was refused",
            "Unable to connect to the server",
            "no such host",
            "i/o timeout",
            "context \"",
            "ServiceUnavailable",
        ];
        if has(&unreachable) || has(&["no configuration has been provided", "TLS handshake timeout", "EOF occurred"]) {
            return Self::Unreachable(text);
        }
        let lost = [
            "unable to upgrade connection",
            "error dialing backend",
            "connection reset",
            "broken pipe",
            "lost connection",
        ];
        if has(&lost) || has(&["unexpected EOF", "close 1006", "terminated with exit code 137"]) {
            return Self::Lost(text);
        }
        Self::Other(text)
    }

    /// The exit code of the command.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::NotFound(_) => NOT_FOUND,
            Self::Forbidden(_) | Self::Unauthorized(_) | Self::NotRunning(_) | Self::Conflict(_) | Self::Refused(_) => {
                REFUSED
            }
            Self::NoProgram { .. }
            | Self::Unreachable(_)
            | Self::NotInstalled(_)
            | Self::Lost(_)
            | Self::NotServed(_)
            | Self::NoController(_)
            | Self::Interrupted(_)
            | Self::NoAnswer(_)
            | Self::Other(_) => FAILED,
        }
    }
}

/// A text from afar as a part of a message: without control characters and the last full stop, bounded.
#[must_use]
pub fn bounded(text: &str) -> String {
    const LONGEST: usize = 600;
    let text: String = text.trim().chars().filter(|one| !one.is_control()).take(LONGEST).collect();
    text.trim_end_matches('.').to_owned()
}

/// The lines of an error in one: without notices and common prefixes, bounded.
fn essence(stderr: &str) -> String {
    let notice = |line: &str| {
        line.is_empty()
            || line.starts_with("Defaulted container")
            || line.starts_with("command terminated with exit code")
            || line.starts_with("See '")
            || line.starts_with("Warning:")
            || is_log_line(line)
    };
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !notice(line)).map(without_prefix).collect();
    let mut seen: Vec<&str> = Vec::new();
    for line in lines {
        if !seen.contains(&line) {
            seen.push(line);
        }
    }
    let text = bounded(&seen.join("; "));
    if text.is_empty() { "kubectl failed without a message".to_owned() } else { text }
}

/// A line of client-go's own log (`E1122 03:00:00.000000 …`), which repeats what follows.
fn is_log_line(line: &str) -> bool {
    let mut bytes = line.bytes();
    matches!(bytes.next(), Some(b'E' | b'W' | b'I'))
        && bytes.by_ref().take(4).all(|byte| byte.is_ascii_digit())
        && bytes.next() == Some(b' ')
}

fn without_prefix(line: &str) -> &str {
    let mut line = line;
    for prefix in
        ["error: ", "Error from server ", "Error from server: ", "(Forbidden): ", "(NotFound): ", "garboard-launcher: "]
    {
        line = line.strip_prefix(prefix).unwrap_or(line);
    }
    if let Some(rest) = line.strip_prefix('(')
        && let Some((reason, rest)) = rest.split_once("): ")
        && reason.chars().all(char::is_alphanumeric)
    {
        return rest;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_message() {
        let table = [
            (
                "Error from server (Forbidden): pods \"p\" is forbidden: User \"bob\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"tenant\"\n",
                REFUSED,
                "you may not do this: pods \"p\" is forbidden: User \"bob\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"tenant\"; ask an administrator of the namespace for that right",
            ),
            (
                "error: the server doesn't have a resource type \"virtualmachines\"\n",
                FAILED,
                "this cluster has no VirtualMachines: the server doesn't have a resource type \"virtualmachines\"; install Garboard with `kubectl garboard cluster install`",
            ),
            (
                "E1122 03:00:00.000000    1234 memcache.go:265] \"Unhandled Error\" err=\"x\"\nThe connection to the server 172.30.0.1:6443 was refused - did you specify the right host or port?\n",
                FAILED,
                "the cluster cannot be reached: The connection to the server 172.30.0.1:6443 was refused - did you specify the right host or port?; is KUBECONFIG or --context the right one, and the API server up?",
            ),
            ("Error from server (NotFound): namespaces \"nix\" not found\n", NOT_FOUND, "namespaces \"nix\" not found"),
            (
                "error: Internal error occurred: unable to upgrade connection: container not found (\"launcher\")\n",
                REFUSED,
                "the launcher does not run in its pod: Internal error occurred: unable to upgrade connection: container not found (\"launcher\"); `kubectl garboard why` shows the machine's state",
            ),
            (
                "error: cannot exec into a container in a completed pod; current phase is Succeeded\n",
                REFUSED,
                "the launcher does not run in its pod: cannot exec into a container in a completed pod; current phase is Succeeded; `kubectl garboard why` shows the machine's state",
            ),
            (
                "error: unable to upgrade connection: error dialing backend: dial tcp 172.30.0.12:10250: connect: no route to host\n",
                FAILED,
                "the connection to the pod was lost: unable to upgrade connection: error dialing backend: dial tcp 172.30.0.12:10250: connect: no route to host; the machine may still run, `kubectl garboard why` shows it",
            ),
            (
                "garboard-launcher: the supervisor does not answer at /run/x: No such file\ncommand terminated with exit code 1\n",
                FAILED,
                "the supervisor does not answer at /run/x: No such file",
            ),
            (
                "error: You must be logged in to the server (Unauthorized)\n",
                REFUSED,
                "the cluster does not accept your credentials: You must be logged in to the server (Unauthorized); log in again, or choose another --context or --user",
            ),
            (
                "error: context \"lab\" does not exist\n",
                FAILED,
                "the cluster cannot be reached: context \"lab\" does not exist; is KUBECONFIG or --context the right one, and the API server up?",
            ),
            ("", FAILED, "kubectl failed without a message"),
        ];
        for (stderr, code, message) in table {
            let failure = Failure::of(stderr);
            assert_eq!(failure.to_string(), message);
            assert_eq!(failure.code(), code, "{stderr}");
        }
    }

    #[test]
    fn what_came_from_afar_is_bounded_and_cannot_drive_the_terminal() {
        let text = Failure::of(&format!("error: \u{1b}[2J{}", "x".repeat(10_000))).to_string();
        assert!(text.len() < 1000 && !text.contains('\u{1b}'));
    }
}
