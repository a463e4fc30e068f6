//! One channel to a guest agent: the handshake and one exchange at a time.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::net::UnixStream;
use tracing::debug;

use super::GuestAgentError;
use super::bounded::{DEPTH_LIMIT, depth_of};
use crate::connection::{READ_SIZE, read_some};
use crate::fd::write_with_descriptors;
use crate::text::{printable, printable_bytes};
use crate::transcript::Transcript;
use crate::wire::{AGENT_LINE_LIMIT, LineSplitter, Message};

/// Cannot occur in JSON text. Sent to an agent it ends whatever half message it was reading; an agent puts it before
/// the answer to `guest-sync-delimited`.
const SENTINEL: u8 = 0xff;

/// Bytes read during one exchange, handshake included, before the guest is called flooding.
const FLOOD_LIMIT: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Session {
    stream: UnixStream,
    splitter: LineSplitter,
    transcript: Transcript,
    /// Whether the next byte of the guest can only be the answer to our next command.
    in_step: bool,
    last_id: u64,
}

/// What is known while one command is under way.
struct Exchange {
    command: &'static str,
    bytes_read: usize,
}

impl Session {
    pub(super) fn new(stream: UnixStream, transcript: Transcript) -> Self {
        // A restarted supervisor must not take the answer to its predecessor's handshake for its own.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let last_id = (now.as_secs() & 0xf_ffff) << 32 | u64::from(now.subsec_nanos());
        Self { stream, splitter: LineSplitter::new(AGENT_LINE_LIMIT), transcript, in_step: false, last_id }
    }

    /// Sends one command and reads its answer. May be dropped at any point: the next exchange then begins with a new
    /// handshake.
    pub(super) async fn exchange(
        &mut self,
        command: &'static str,
        arguments: &RawValue,
    ) -> Result<Box<RawValue>, GuestAgentError> {
        let mut exchange = Exchange { command, bytes_read: 0 };
        let quiet = self.splitter.pending_bytes() == 0 && !self.has_unread_bytes();
        if !std::mem::replace(&mut self.in_step, false) || !quiet {
            self.shake_hands(&mut exchange).await?;
        }
        let id = self.next_id();
        self.transcript.command(command, id, None, arguments.get());
        self.write(command, &encode(command, arguments)?).await?;
        let line = self.next_line(&mut exchange).await?;
        let answer = read_reply(command, &line)?;
        self.in_step = true;
        match &answer {
            Ok(body) => self.transcript.reply(command, id, body.get()),
            Err(Refusal { class, desc }) => self.transcript.refusal(command, id, class, desc),
        }
        answer.map_err(|Refusal { class, desc }| GuestAgentError::Refused { command, class, desc })
    }

    /// Brings both sides to a known point, skipping whatever the guest has sent before.
    async fn shake_hands(&mut self, exchange: &mut Exchange) -> Result<(), GuestAgentError> {
        let id = self.next_id();
        let arguments = RawValue::from_string(format!("{{\"id\":{id}}}")).unwrap_or_default();
        let mut message = vec![SENTINEL];
        message.extend(encode("guest-sync-delimited", &arguments)?);
        self.write(exchange.command, &message).await?;
        loop {
            match self.next_line(exchange).await {
                Ok(line) => {
                    if after_sentinel(&line).is_some_and(|text| is_handshake(text, id)) {
                        return Ok(());
                    }
                }
                // The answer may have been at the end of an endless line of garbage: ask again.
                Err(GuestAgentError::Nonsense { .. }) => self.write(exchange.command, &message).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn write(&self, command: &'static str, bytes: &[u8]) -> Result<(), GuestAgentError> {
        write_with_descriptors(&self.stream, bytes, &[]).await.map_err(|error| {
            debug!(command, %error, "could not write to the guest agent channel");
            GuestAgentError::Disconnected { command }
        })
    }

    async fn next_line(&mut self, exchange: &mut Exchange) -> Result<Vec<u8>, GuestAgentError> {
        let command = exchange.command;
        let mut chunk = [0; READ_SIZE];
        loop {
            if let Some(line) = self.splitter.next_line() {
                return line.map(<[u8]>::to_vec).map_err(|overlong| {
                    let why = overlong.to_string();
                    GuestAgentError::Nonsense { command, why }
                });
            }
            if exchange.bytes_read > FLOOD_LIMIT {
                return Err(GuestAgentError::Flood { command, bytes: exchange.bytes_read, limit: FLOOD_LIMIT });
            }
            match read_some(&self.stream, &mut chunk).await {
                Ok(count) if count > 0 => {
                    exchange.bytes_read += count;
                    self.splitter.push(&chunk[..count]);
                }
                _ => return Err(GuestAgentError::Disconnected { command }),
            }
        }
    }

    /// Whether the guest has sent something unasked.
    fn has_unread_bytes(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.try_read(&mut byte) {
            Ok(count) => {
                self.splitter.push(&byte[..count]);
                count > 0
            }
            Err(_) => false,
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// A command without id: agents before QEMU 3.1 (CentOS 7 has 2.12) refuse a message that has one.
fn encode(command: &'static str, arguments: &RawValue) -> Result<Vec<u8>, GuestAgentError> {
    #[derive(Serialize)]
    struct Execute<'a> {
        execute: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<&'a RawValue>,
    }
    let arguments = Some(arguments).filter(|arguments| arguments.get() != "{}");
    let mut line = serde_json::to_vec(&Execute { execute: command, arguments })
        .map_err(|source| GuestAgentError::Unencodable { command, source })?;
    line.push(b'\n');
    Ok(line)
}

/// What follows the last sentinel of a line, if it has one.
pub(super) fn after_sentinel(line: &[u8]) -> Option<&[u8]> {
    line.iter().rposition(|&byte| byte == SENTINEL).map(|position| &line[position + 1..])
}

fn is_handshake(text: &[u8], id: u64) -> bool {
    matches!(Message::parse(text), Ok(Message::Reply { returned, .. }) if returned.get().parse() == Ok(id))
}

/// The agent refused. Escaped and bounded.
#[derive(Debug)]
pub(super) struct Refusal {
    class: String,
    desc: String,
}

/// Reads one answer. The outer result is whether it makes sense, the inner one the agent's answer.
pub(super) fn read_reply(
    command: &'static str,
    line: &[u8],
) -> Result<Result<Box<RawValue>, Refusal>, GuestAgentError> {
    let nonsense = |why: String| GuestAgentError::Nonsense { command, why };
    if depth_of(line) > DEPTH_LIMIT {
        return Err(nonsense(format!("it is nested deeper than {DEPTH_LIMIT} levels")));
    }
    match Message::parse(line) {
        Ok(Message::Reply { returned, .. }) => Ok(Ok(returned.to_owned())),
        Ok(Message::Refusal { class, desc, .. }) => {
            Ok(Err(Refusal { class: printable(&class, 64), desc: printable(&desc, 300) }))
        }
        Ok(Message::Greeting(_) | Message::Event { .. }) => Err(nonsense("it is no answer".to_owned())),
        Err(error) => Err(nonsense(format!("{error}: {}", printable_bytes(line, 100)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_found_behind_garbage_on_the_same_line() {
        let line = b"half an ans\xffwer\xff{\"return\": 7}";
        assert!(is_handshake(after_sentinel(line).unwrap(), 7));
        assert!(!is_handshake(after_sentinel(line).unwrap(), 8));
        assert!(after_sentinel(b"{\"return\": 7}").is_none());
    }

    #[test]
    fn answers_and_refusals_are_distinguished() {
        let read = |line: &str| read_reply("guest-ping", line.as_bytes());
        assert!(matches!(read(r#"{"return": {}}"#), Ok(Ok(_))));
        assert!(matches!(read(r#"{"error": {"class": "G", "desc": "d"}}"#), Ok(Err(Refusal { .. }))));
        assert!(matches!(read(r#"{"event": "STOP"}"#), Err(GuestAgentError::Nonsense { .. })));
        assert!(matches!(read("\u{1b}[2J"), Err(GuestAgentError::Nonsense { why, .. }) if !why.contains('\u{1b}')));
    }

    #[test]
    fn a_deep_answer_is_nonsense() {
        let line = format!(r#"{{"return": {}1{}}}"#, "[".repeat(40), "]".repeat(40));
        assert!(matches!(read_reply("guest-ping", line.as_bytes()), Err(GuestAgentError::Nonsense { .. })));
    }

    #[test]
    fn empty_arguments_are_not_sent() {
        let arguments = RawValue::from_string("{}".to_owned()).unwrap();
        let line = encode("guest-ping", &arguments).unwrap();
        assert_eq!(line, b"{\"execute\":\"guest-ping\"}\n");
    }
}
