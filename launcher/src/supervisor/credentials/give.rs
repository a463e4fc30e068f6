//! Asks the guest agent to set what the guest is to have.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::text::printable;
use garboard_qmp::agent::{Agent, GuestAgentError};

use super::wanted::{Password, Wanted};

/// The most letters of a user's name in a message.
const LONGEST_NAME: usize = 64;
/// The most letters of a message: it becomes that of a condition.
const LONGEST_MESSAGE: usize = 1000;
/// What stands for a password that a guest repeats in its answer.
const HIDDEN: &str = "<redacted>";

/// Sets everything. A user for whom it fails does not keep the others from theirs, unless the guest does not answer.
///
/// # Errors
/// What failed for whom, and why: for a person, without any password.
pub(super) async fn give(agent: &Agent, wanted: &Wanted) -> Result<(), String> {
    let mut failures = Vec::new();
    for (user, keys) in &wanted.keys {
        if let Err(error) = agent.set_authorized_keys(user, keys).await {
            failures.push(format!("the SSH keys of user {} were not set: {}", shown(user), ErrorChain(&error)));
            if is_silent(&error) {
                return Err(message(&failures));
            }
        }
    }
    for (user, password) in &wanted.passwords {
        if let Err(error) = agent.set_password(user, password.bytes()).await {
            failures.push(format!("the password of user {} was not set: {}", shown(user), why(&error, password)));
            if is_silent(&error) {
                return Err(message(&failures));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(message(&failures)) }
}

fn shown(user: &str) -> String {
    printable(user, LONGEST_NAME)
}

fn message(failures: &[String]) -> String {
    failures.join("; ").chars().take(LONGEST_MESSAGE).collect()
}

/// Whether the next question would only take as long again.
fn is_silent(error: &GuestAgentError) -> bool {
    match error {
        GuestAgentError::TimedOut { .. } | GuestAgentError::Disconnected { .. } | GuestAgentError::Flood { .. } => true,
        GuestAgentError::Open { .. }
        | GuestAgentError::Prepare { .. }
        | GuestAgentError::Refused { .. }
        | GuestAgentError::Nonsense { .. }
        | GuestAgentError::Unencodable { .. } => false,
    }
}

/// Why, without the password that a guest may repeat in its answer. What is cut may end within it, and is not quoted.
fn why(error: &GuestAgentError, password: &Password) -> String {
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
