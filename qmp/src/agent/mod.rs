//! The guest agent, seen from a host that does not trust it.
//!
//! For: asking qemu-guest-agent (or a Windows, BSD or home-made one) about the guest, over the virtio-serial channel
//! `org.qemu.guest_agent.0`. Not for: deciding anything that matters to others by its answers.
//!
//! ```text
//!            0xFF {"execute":"guest-sync-delimited","arguments":{"id":N}}
//!   host ───────────────────────────────────────────────────────────────► guest     before the first command and
//!        ◄─────────────────────────────────────── …stale bytes… 0xFF {"return":N}    whenever sense may be lost
//!        ──── {"execute":"guest-get-osinfo"} ────────────────────────────►
//!        ◄─── {"return":{…}} ─────────────────────────────────────────────
//! ```
//!
//! Root in the guest can write anything here. So: one command in flight; nothing is read without a
//! call (a flood then blocks the guest's writer, not us); lines, nesting, bytes per exchange, list lengths and string
//! lengths are bounded; strings are escaped; every call has a time limit; after anything odd the next call starts with
//! a new handshake, which skips stale replies. The fuzz target `agent_replies` holds this.
//!
//! An agent that is not running is not an error of the channel: the request stays in the channel and the call runs out
//! of time. Ask when `VSERPORT_CHANGE` reports that the guest has opened its end, or rarely.
//!
//! Sources followed: `qga/qapi-schema.json`, `docs/interop/qemu-ga.rst` of QEMU 7.2 and 10.0.

mod answer;
mod bounded;
mod session;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qapi_qga::QgaCommand;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::connection::Endpoint;
use crate::text::printable;
use crate::transcript::{Transcript, TranscriptSink};

pub use answer::{
    AgentCommand, AgentInfo, Filesystem, FilesystemDisk, GuestProcess, GuestProcessState, GuestUser, Interface,
    InterfaceAddress, OsInfo, Timezone,
};
pub use bounded::{GuestList, GuestText};
use session::Session;

/// Why the guest agent gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GuestAgentError {
    /// The socket cannot be opened.
    #[error("could not connect to the guest agent socket {path}")]
    Open {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The given stream cannot be used with the runtime.
    #[error("could not prepare the guest agent stream")]
    Prepare {
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// No answer in time: no agent runs, or it is busy or hangs.
    #[error("the guest agent did not answer `{command}` within {after:?}")]
    TimedOut {
        /// The command.
        command: &'static str,
        /// The time limit.
        after: Duration,
    },
    /// The channel ended, which means that QEMU did.
    #[error("the guest agent channel ended during `{command}`")]
    Disconnected {
        /// The command.
        command: &'static str,
    },
    /// The agent refused.
    #[error("the guest agent refused `{command}`: {desc}")]
    Refused {
        /// The command.
        command: &'static str,
        /// `GenericError`, `CommandNotFound`, … Escaped and bounded.
        class: String,
        /// The agent's message. Escaped and bounded.
        desc: String,
    },
    /// The guest sent far more than an answer has.
    #[error("the guest sent {bytes} bytes without answering `{command}`; the limit is {limit}")]
    Flood {
        /// The command.
        command: &'static str,
        /// Bytes read.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The answer is no JSON, too long, too deep, or not of the expected form.
    #[error("the answer of the guest agent to `{command}` could not be parsed: {why}")]
    Nonsense {
        /// The command.
        command: &'static str,
        /// What is wrong with it. Escaped and bounded.
        why: String,
    },
    /// The arguments cannot be written as JSON. Nothing was sent.
    #[error("the arguments of `{command}` cannot be written as JSON")]
    Unencodable {
        /// The command.
        command: &'static str,
        /// What cannot be written.
        #[source]
        source: serde_json::Error,
    },
}

impl GuestAgentError {
    /// Whether the agent answered, with an unknown or disabled command.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Refused { class, .. } if class == "CommandNotFound")
    }

    /// Whether the guest may have done what it was asked, or may do it yet: there is no answer to be sure by.
    pub fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Disconnected { .. } | Self::Flood { .. } | Self::Nonsense { .. } => true,
            Self::Open { .. } | Self::Prepare { .. } | Self::Refused { .. } | Self::Unencodable { .. } => false,
        }
    }
}

/// How long a guest may take to freeze or thaw its file systems: it writes to disk what waits, and runs scripts of its own.
pub const FREEZE_LIMIT: Duration = Duration::from_secs(60);

/// How long a guest may take to write the SSH keys or the password of one user: Windows asks its directory, others run `chpasswd`.
const CREDENTIALS_LIMIT: Duration = Duration::from_secs(30);

/// How to ask.
#[derive(Clone)]
pub struct AgentOptions {
    /// How long one command may take, handshake included; 5 s by default. A command that waits for another one to
    /// finish begins to count afterwards.
    pub limit: Duration,
    /// Where the transcript goes; nowhere by default.
    pub transcript: Option<Arc<dyn TranscriptSink>>,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self { limit: Duration::from_secs(5), transcript: None }
    }
}

impl std::fmt::Debug for AgentOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let transcript = self.transcript.is_some();
        formatter.debug_struct("AgentOptions").field("limit", &self.limit).field("transcript", &transcript).finish()
    }
}

/// How the guest is to end (`guest-shutdown`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Stop, but stay powered.
    Halt,
    /// Stop and power off.
    PowerDown,
    /// Stop and start again.
    Reboot,
}

/// How the agent took a shutdown request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownAnswer {
    /// It confirmed it.
    Acknowledged,
    /// No answer, which is what a working agent does: the guest may be on its way down.
    Silent,
}

/// A channel to a guest agent. Clones share it.
#[derive(Debug, Clone)]
pub struct Agent {
    session: Arc<Mutex<Session>>,
    limit: Duration,
}

impl Agent {
    /// Opens the channel. Nothing is sent yet, so this succeeds although no agent may be running.
    pub async fn connect(endpoint: impl Into<Endpoint>, options: AgentOptions) -> Result<Self, GuestAgentError> {
        let stream = match endpoint.into() {
            Endpoint::Path(path) => {
                UnixStream::connect(&path).await.map_err(|source| GuestAgentError::Open { path, source })?
            }
            Endpoint::Stream(stream) => stream
                .set_nonblocking(true)
                .and_then(|()| UnixStream::from_std(stream))
                .map_err(|source| GuestAgentError::Prepare { source })?,
        };
        let session = Session::new(stream, Transcript::new(options.transcript));
        Ok(Self { session: Arc::new(Mutex::new(session)), limit: options.limit })
    }

    /// Whether an agent answers.
    pub async fn ping(&self) -> Result<(), GuestAgentError> {
        self.call_raw(&qapi_qga::guest_ping {}).await.map(drop)
    }

    /// The agent's version and the commands it has. A command may be there and switched off.
    pub async fn info(&self) -> Result<AgentInfo, GuestAgentError> {
        self.ask(&qapi_qga::guest_info {}).await
    }

    /// Operating system and kernel.
    pub async fn os_info(&self) -> Result<OsInfo, GuestAgentError> {
        self.ask(&qapi_qga::guest_get_osinfo {}).await
    }

    /// Network interfaces with their addresses, as the guest sees them.
    pub async fn interfaces(&self) -> Result<GuestList<Interface, 64>, GuestAgentError> {
        self.ask(&qapi_qga::guest_network_get_interfaces {}).await
    }

    /// The guest's host name.
    pub async fn host_name(&self) -> Result<GuestText, GuestAgentError> {
        #[derive(serde::Deserialize)]
        struct HostName {
            #[serde(rename = "host-name")]
            host_name: GuestText,
        }
        self.ask::<_, HostName>(&qapi_qga::guest_get_host_name {}).await.map(|answer| answer.host_name)
    }

    /// Mounted file systems.
    pub async fn filesystems(&self) -> Result<GuestList<Filesystem, 128>, GuestAgentError> {
        self.ask(&qapi_qga::guest_get_fsinfo {}).await
    }

    /// Users who are logged in.
    pub async fn users(&self) -> Result<GuestList<GuestUser, 128>, GuestAgentError> {
        self.ask(&qapi_qga::guest_get_users {}).await
    }

    /// The guest's time zone.
    pub async fn timezone(&self) -> Result<Timezone, GuestAgentError> {
        self.ask(&qapi_qga::guest_get_timezone {}).await
    }

    /// Freezes all file systems that can be. Programs that write to one wait from then on, and the agent answers few
    /// commands. Scripts of the guest may run first, so that it may take up to [`FREEZE_LIMIT`]; gives how many were frozen.
    pub async fn freeze(&self) -> Result<i64, GuestAgentError> {
        self.ask_within(&qapi_qga::guest_fsfreeze_freeze {}, FREEZE_LIMIT).await
    }

    /// Thaws them; gives how many were.
    pub async fn thaw(&self) -> Result<i64, GuestAgentError> {
        self.ask_within(&qapi_qga::guest_fsfreeze_thaw {}, FREEZE_LIMIT).await
    }

    /// Whether file systems are frozen.
    pub async fn is_frozen(&self) -> Result<bool, GuestAgentError> {
        let status: GuestText = self.ask(&qapi_qga::guest_fsfreeze_status {}).await?;
        Ok(status.as_str() == "frozen")
    }

    /// Gives a user of the guest these SSH public keys, and no others: the agent writes its file of authorized keys anew. Without
    /// keys it becomes empty.
    pub async fn set_authorized_keys(&self, user: &str, keys: &[String]) -> Result<(), GuestAgentError> {
        let command = qapi_qga::guest_ssh_add_authorized_keys {
            username: user.to_owned(),
            keys: keys.to_vec(),
            reset: Some(true),
        };
        self.call_within(&command, CREDENTIALS_LIMIT).await.map(drop)
    }

    /// Sets the password of a user of the guest, as it would be typed; it is sent in base64.
    pub async fn set_password(&self, user: &str, password: &[u8]) -> Result<(), GuestAgentError> {
        let command = qapi_qga::guest_set_user_password {
            username: user.to_owned(),
            password: password.to_vec(),
            crypted: false,
        };
        self.call_within(&command, CREDENTIALS_LIMIT).await.map(drop)
    }

    /// Asks the guest to end. A working agent does not answer this one, so silence is a success; whether the guest ends
    /// is for the caller to see. Takes up to the time limit.
    pub async fn shut_down(&self, mode: ShutdownMode) -> Result<ShutdownAnswer, GuestAgentError> {
        let mode = match mode {
            ShutdownMode::Halt => qapi_qga::GuestShutdownMode::Halt,
            ShutdownMode::PowerDown => qapi_qga::GuestShutdownMode::Powerdown,
            ShutdownMode::Reboot => qapi_qga::GuestShutdownMode::Reboot,
        };
        // An agent that is not running would be silent as well.
        self.ping().await?;
        match self.call_raw(&qapi_qga::guest_shutdown { mode: Some(mode) }).await {
            Ok(_) => Ok(ShutdownAnswer::Acknowledged),
            Err(GuestAgentError::TimedOut { .. } | GuestAgentError::Disconnected { .. }) => Ok(ShutdownAnswer::Silent),
            Err(error) => Err(error),
        }
    }

    /// Starts a program in the guest, whose output is not kept. Its end is seen by [`Self::look_after`]; an agent keeps
    /// the account of one without a question for it.
    pub async fn execute(&self, program: &str, arguments: &[String]) -> Result<GuestProcess, GuestAgentError> {
        let command = qapi_qga::guest_exec {
            path: program.to_owned(),
            arg: Some(arguments.to_vec()),
            env: None,
            input_data: None,
            capture_output: None,
        };
        self.ask(&command).await
    }

    /// How a program that was started is.
    pub async fn look_after(&self, process: GuestProcess) -> Result<GuestProcessState, GuestAgentError> {
        self.ask(&qapi_qga::guest_exec_status { pid: process.pid }).await
    }

    /// Sends any command and gives the answer as raw JSON, at most
    /// [`AGENT_LINE_LIMIT`](crate::wire::AGENT_LINE_LIMIT) bytes. What is in it is the guest's: bound and escape it.
    pub async fn call_raw<C: QgaCommand>(&self, command: &C) -> Result<Box<RawValue>, GuestAgentError> {
        self.call_within(command, self.limit).await
    }

    async fn call_within<C: QgaCommand>(&self, command: &C, limit: Duration) -> Result<Box<RawValue>, GuestAgentError> {
        let name = C::NAME;
        let arguments =
            to_raw_value(command).map_err(|source| GuestAgentError::Unencodable { command: name, source })?;
        let mut session = self.session.lock().await;
        match tokio::time::timeout(limit, session.exchange(name, &arguments)).await {
            Ok(answer) => answer,
            Err(_) => Err(GuestAgentError::TimedOut { command: name, after: limit }),
        }
    }

    async fn ask<C: QgaCommand, A: DeserializeOwned>(&self, command: &C) -> Result<A, GuestAgentError> {
        self.ask_within(command, self.limit).await
    }

    async fn ask_within<C: QgaCommand, A: DeserializeOwned>(
        &self,
        command: &C,
        limit: Duration,
    ) -> Result<A, GuestAgentError> {
        let answer = self.call_within(command, limit).await?;
        decode(C::NAME, &answer)
    }
}

fn decode<A: DeserializeOwned>(command: &'static str, answer: &RawValue) -> Result<A, GuestAgentError> {
    serde_json::from_str(answer.get())
        .map_err(|error| GuestAgentError::Nonsense { command, why: printable(&error.to_string(), 200) })
}

/// Everything this module does with one line of a guest, without a channel. For the fuzz target.
#[cfg(feature = "testing")]
pub fn read_one_line(line: &[u8]) {
    let text = session::after_sentinel(line).unwrap_or(line);
    let Ok(Ok(answer)) = session::read_reply("guest-ping", text) else { return };
    drop(decode::<AgentInfo>("guest-info", &answer));
    drop(decode::<OsInfo>("guest-get-osinfo", &answer));
    drop(decode::<GuestList<Interface, 64>>("guest-network-get-interfaces", &answer));
    drop(decode::<GuestList<Filesystem, 128>>("guest-get-fsinfo", &answer));
    drop(decode::<GuestList<GuestUser, 128>>("guest-get-users", &answer));
    drop(decode::<Timezone>("guest-get-timezone", &answer));
    drop(decode::<GuestText>("guest-get-host-name", &answer));
    drop(decode::<GuestProcess>("guest-exec", &answer));
    drop(decode::<GuestProcessState>("guest-exec-status", &answer));
}
