//! Sending commands.
//!
//! What we send is a generated type of `qapi-qmp`, so that a misspelt argument does not compile: [`Monitor::call`],
//! [`Monitor::ask`], or [`Request::of`] where descriptors, a time limit or a requester go along. [`Request::new`] takes a
//! command by name, for commands that are not ours: those of the broker's clients. One command of ours has arguments
//! of its own, `qmp_capabilities` to a broker: its capabilities are not QEMU's.
//!
//! **What we read is a small struct of our own** with the few fields that are used, and names of QEMU's enums are read as text:
//! `monitor.ask::<Status>(&qmp::query_status {})`. The generated types are those of QEMU 9.1 (`qapi-qmp` 0.15). A reply
//! of another version that lacks a field which they demand, or has a name which their enums do not contain, ends in
//! [`CallError::Undecodable`] although the command worked. So [`Monitor::call`], which reads the generated reply, is for
//! commands whose reply is empty; `tests/contract/real.rs` also reads others with it, to see what decodes.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::time::Duration;

use qapi_qmp::QmpCommand;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use crate::connection::{Link, Monitor, Outcome, Outgoing};
use crate::error::CallError;
use crate::fd::DESCRIPTOR_LIMIT;
use garboard_qmp_commands::CommandClass;

/// One command with everything that goes along.
#[derive(Debug)]
pub struct Request {
    command: Cow<'static, str>,
    /// A failure to write the arguments waits here for `send`, so that requests can be built in one expression.
    arguments: Result<Option<Box<RawValue>>, serde_json::Error>,
    descriptors: Vec<OwnedFd>,
    limit: Option<Duration>,
    requester: Option<String>,
}

impl Request {
    /// A command of a generated type, with the time limit of its class.
    pub fn of<C: QmpCommand>(command: &C) -> Self {
        Self::new(C::NAME).arguments(command)
    }

    /// A command by name, without arguments, with the time limit of its class.
    pub fn new(command: impl Into<Cow<'static, str>>) -> Self {
        let command = command.into();
        Self { command, arguments: Ok(None), descriptors: Vec::new(), limit: None, requester: None }
    }

    /// With these arguments; they must become a JSON object.
    pub fn arguments<T: Serialize + ?Sized>(mut self, arguments: &T) -> Self {
        self.arguments = to_raw_value(arguments).map(Some);
        self
    }

    /// With descriptors, at most [`DESCRIPTOR_LIMIT`]. They are closed here once they are sent.
    pub fn with_descriptors(mut self, descriptors: Vec<OwnedFd>) -> Self {
        self.descriptors = descriptors;
        self
    }

    /// With a time limit of its own.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// For another client, which the transcript names.
    pub fn on_behalf_of(mut self, requester: String) -> Self {
        self.requester = Some(requester);
        self
    }

    fn encode(&self, id: u64, arguments: Option<&RawValue>) -> Result<Vec<u8>, serde_json::Error> {
        #[derive(Serialize)]
        struct Execute<'a> {
            execute: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            arguments: Option<&'a RawValue>,
            id: u64,
        }
        let mut line = serde_json::to_vec(&Execute { execute: &self.command, arguments, id })?;
        line.push(b'\n');
        Ok(line)
    }
}

/// Marks the command as given up when the caller's future is dropped or its time is over. After the reply it does
/// nothing, because the command is no longer pending.
struct GivenUp<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.link.router.abandon(self.id);
    }
}

impl Monitor {
    /// Sends a command of a generated type and decodes its reply as the generated type.
    pub async fn call<C: QmpCommand>(&self, command: &C) -> Result<C::Ok, CallError> {
        self.send_decoding(Request::of(command)).await
    }

    /// Sends a command of a generated type and reads of its reply what `T` has.
    pub async fn ask<T: DeserializeOwned>(&self, command: &impl QmpCommand) -> Result<T, CallError> {
        self.send_decoding(Request::of(command)).await
    }

    /// Sends a request and decodes its reply.
    pub async fn send_decoding<T: DeserializeOwned>(&self, request: Request) -> Result<T, CallError> {
        let command = request.command.clone();
        let reply = self.send(request).await?;
        serde_json::from_str(reply.get()).map_err(|source| CallError::Undecodable { command, source })
    }

    /// Sends a request and gives the reply as raw JSON. When the future is dropped or the time is over, the command is
    /// given up: not sent if it was still queued, else its late reply is dropped.
    pub async fn send(&self, mut request: Request) -> Result<Box<RawValue>, CallError> {
        let command = request.command.clone();
        let given = request.descriptors.len();
        if given > DESCRIPTOR_LIMIT {
            return Err(CallError::TooManyDescriptors { command, given, limit: DESCRIPTOR_LIMIT });
        }
        let arguments = std::mem::replace(&mut request.arguments, Ok(None))
            .map_err(|source| CallError::Unencodable { command: command.clone(), source })?;
        let limit = request.limit.unwrap_or_else(|| CommandClass::of(&command).limit());
        let disconnected = |command| CallError::Disconnected { command, reason: self.shutdown_reason() };

        let Some((id, receiver)) = self.link.router.begin(command.clone()) else {
            return Err(disconnected(command));
        };
        let _given_up = GivenUp { link: &self.link, id };
        let line = request
            .encode(id, arguments.as_deref())
            .map_err(|source| CallError::Unencodable { command: command.clone(), source })?;
        let Request { descriptors, requester, .. } = request;
        let outgoing = Outgoing { id, line, descriptors, command: command.clone(), requester, arguments };

        let exchange = async {
            self.link.outgoing.send(outgoing).await.ok()?;
            receiver.await.ok()
        };
        match tokio::time::timeout(limit, exchange).await {
            Err(_) => Err(CallError::TimedOut { command, after: limit }),
            Ok(None) => Err(disconnected(command)),
            Ok(Some(Outcome::Returned(reply))) => Ok(reply),
            Ok(Some(Outcome::Refused { class, desc })) => Err(CallError::refused(command, &class, &desc)),
            Ok(Some(Outcome::TooLong { length, limit })) => Err(CallError::ReplyTooLong { command, length, limit }),
        }
    }
}
