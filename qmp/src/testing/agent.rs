//! A guest agent in memory, honest or hostile.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

use crate::connection::{READ_SIZE, read_some};
use crate::fd::write_with_descriptors;
use crate::wire::LineSplitter;

/// What the agent does with one command.
#[derive(Debug, Clone)]
pub enum AgentBehaviour {
    /// Answers with this.
    Reply(Value),
    /// Refuses with this class and message.
    Refuse(&'static str, &'static str),
    /// Sends nothing.
    Silence,
    /// Writes these bytes.
    Raw(Vec<u8>),
    /// Writes these bytes again and again, for ever.
    Flood(Vec<u8>),
    /// Ends the channel, as the end of QEMU does.
    HangUp,
}

#[derive(Debug, Default)]
struct State {
    behaviours: BTreeMap<String, AgentBehaviour>,
    received: Vec<String>,
    arguments: Vec<Value>,
}

/// A guest agent behind one end of a socket pair. Dropping it ends the channel.
#[derive(Debug)]
pub struct FakeAgent {
    state: Arc<Mutex<State>>,
    task: AbortHandle,
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeAgent {
    /// An agent that supports `guest-ping` and the handshake, and the host's end of its channel. Must be called inside a
    /// tokio runtime. `first_bytes` are waiting in the channel before the first call.
    pub fn pair(first_bytes: &[u8]) -> io::Result<(Self, std::os::unix::net::UnixStream)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ours = UnixStream::from_std(ours)?;
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, first) = (Arc::clone(&state), first_bytes.to_vec());
        let task = tokio::spawn(async move {
            if write_with_descriptors(&ours, &first, &[]).await.is_ok() {
                let _ = serve(&ours, &shared).await;
            }
        });
        Ok((Self { state, task: task.abort_handle() }, theirs))
    }

    /// What is to happen with this command from now on.
    pub fn on(&self, command: &str, behaviour: AgentBehaviour) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.behaviours.insert(command.to_owned(), behaviour);
    }

    /// The commands so far, handshakes included.
    pub fn received(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).received.clone()
    }

    /// The arguments of each time that this command was asked; `null` where there were none.
    pub fn arguments(&self, command: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let both = state.received.iter().zip(&state.arguments);
        both.filter(|(name, _)| *name == command).map(|(_, arguments)| arguments.clone()).collect()
    }
}

async fn serve(stream: &UnixStream, state: &Mutex<State>) -> io::Result<()> {
    let mut splitter = LineSplitter::new(1 << 20);
    let mut chunk = [0; READ_SIZE];
    loop {
        while let Some(line) = splitter.next_line() {
            // The byte 0xFF ends whatever was being read.
            let line = line.unwrap_or_default().rsplit(|&byte| byte == 0xff).next().unwrap_or_default();
            let message: Value = serde_json::from_slice(line).unwrap_or_default();
            if !answer(stream, state, &message).await? {
                return Ok(());
            }
        }
        match read_some(stream, &mut chunk).await? {
            0 => return Ok(()),
            count => splitter.push(&chunk[..count]),
        }
    }
}

/// False when the channel is to end.
async fn answer(stream: &UnixStream, state: &Mutex<State>, message: &Value) -> io::Result<bool> {
    let command = message["execute"].as_str().unwrap_or_default().to_owned();
    let behaviour = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.received.push(command.clone());
        state.arguments.push(message["arguments"].clone());
        state.behaviours.get(&command).cloned()
    };
    let bytes = match behaviour.unwrap_or_else(|| honest(&command, message)) {
        AgentBehaviour::Reply(value) if command == "guest-sync-delimited" => {
            [b"\xff", json!({ "return": value }).to_string().as_bytes(), b"\n"].concat()
        }
        AgentBehaviour::Reply(value) => format!("{}\n", json!({ "return": value })).into_bytes(),
        AgentBehaviour::Refuse(class, desc) => {
            format!("{}\n", json!({"error": {"class": class, "desc": desc}})).into_bytes()
        }
        AgentBehaviour::Silence => return Ok(true),
        AgentBehaviour::Raw(bytes) => bytes,
        AgentBehaviour::HangUp => return Ok(false),
        AgentBehaviour::Flood(bytes) => loop {
            write_with_descriptors(stream, &bytes, &[]).await?;
        },
    };
    write_with_descriptors(stream, &bytes, &[]).await?;
    Ok(true)
}

fn honest(command: &str, message: &Value) -> AgentBehaviour {
    match command {
        "guest-ping" => AgentBehaviour::Reply(json!({})),
        "guest-sync-delimited" | "guest-sync" => AgentBehaviour::Reply(message["arguments"]["id"].clone()),
        _ => AgentBehaviour::Refuse("CommandNotFound", "The command has not been found"),
    }
}
