//! Asks the guest agent to set what the guest is to have.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::text::printable;
use garboard_qmp::agent::{Agent, GuestAgentError};

use super::wanted::{Gift, Password};

/// The most letters of a user's name in a message.
const LONGEST_NAME: usize = 64;
/// The most letters of a message: it becomes that of a condition.
const LONGEST_MESSAGE: usize = 1000;
/// What stands for a password that a guest repeats in its answer.
const HIDDEN: &str = "<redacted>";

/// Why the guest does not have something, by what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The agent refused, or its answer makes no sense.
    Refused,
    /// The agent has no such command, or it is switched off.
    Unsupported,
    /// The agent does not answer: the next question would only take as long again.
    Silent,
}

/// A failure, for a person: without any password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// What comes next.
    pub(super) why: Why,
    /// What was not set for whom, and why.
    pub(super) message: String,
}

/// Sets one thing for one user.
///
/// # Errors
/// [`Failure`].
pub(super) async fn give(agent: &Agent, gift: Gift<'_>) -> Result<(), Failure> {
    let failed = match gift {
        Gift::Keys { user, keys } => {
            let outcome = agent.set_authorized_keys(user, keys).await;
            outcome.map_err(|error| (why(&error), ErrorChain(&error).to_string()))
        }
        Gift::Password { user, password } => {
            let outcome = agent.set_password(user, password.bytes()).await;
            outcome.map_err(|error| (why(&error), reason(&error, password)))
        }
    };
    failed.map_err(|(why, reason)| Failure { why, message: not_set(gift, &reason) })
}

/// The failure of what was not tried, after an agent did not answer.
pub(super) fn not_tried(gift: Gift<'_>) -> Failure {
    Failure { why: Why::Silent, message: not_set(gift, "the guest agent is silent") }
}

fn not_set(gift: Gift<'_>, reason: &str) -> String {
    match gift {
        Gift::Keys { user, .. } => format!("the SSH keys of user {} were not set: {reason}", shown(user)),
        Gift::Password { user, .. } => format!("the password of user {} was not set: {reason}", shown(user)),
    }
}

fn shown(user: &str) -> String {
    printable(user, LONGEST_NAME)
}

/// All failures in one message.
pub(super) fn message(failures: &[&str]) -> String {
    failures.join("; ").chars().take(LONGEST_MESSAGE).collect()
}

fn why(error: &GuestAgentError) -> Why {
    match error {
        GuestAgentError::TimedOut { .. } | GuestAgentError::Disconnected { .. } | GuestAgentError::Flood { .. } => {
            Why::Silent
        }
        GuestAgentError::Refused { .. } if error.is_unsupported() => Why::Unsupported,
        GuestAgentError::Open { .. }
        | GuestAgentError::Prepare { .. }
        | GuestAgentError::Refused { .. }
        | GuestAgentError::Nonsense { .. }
        | GuestAgentError::Unencodable { .. } => Why::Refused,
    }
}

/// Why, without the password that a guest may repeat in its answer. What is cut may end within it, and is not quoted.
fn reason(error: &GuestAgentError, password: &Password) -> String {
    match error {
        GuestAgentError::Nonsense { command, .. } => {
            format!("the answer of the guest agent to `{command}` could not be parsed")
        }
        GuestAgentError::Refused { command, class, desc } if desc.contains('…') => {
            format!("the guest agent refused `{command}` ({class}), at a length that is not repeated here")
        }
        GuestAgentError::Refused { .. }
        | GuestAgentError::Open { .. }
        | GuestAgentError::Prepare { .. }
        | GuestAgentError::TimedOut { .. }
        | GuestAgentError::Disconnected { .. }
        | GuestAgentError::Flood { .. }
        | GuestAgentError::Unencodable { .. } => without(password, &ErrorChain(error).to_string()),
    }
}

/// A text without the password: as it is, escaped, or as it was sent.
fn without(password: &Password, text: &str) -> String {
    let plain = String::from_utf8_lossy(password.bytes());
    let forms = [STANDARD.encode(password.bytes()), printable(&plain, usize::MAX), plain.into_owned()];
    forms.iter().fold(text.to_owned(), |text, form| text.replace(form.as_str(), HIDDEN))
}
