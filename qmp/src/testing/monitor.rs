//! The fake monitor: a machine, a script and a socket.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::connection::{self, Outgoing};
use super::machine::{FakeMachine, HeldDescriptor, version};

/// What the monitor does with one command in place of executing it.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Replies with this.
    Reply(Value),
    /// Refuses with this class and message.
    Refuse(&'static str, &'static str),
    /// Never answers.
    Silence,
    /// Executes it, but keeps the reply until [`FakeMonitor::release`].
    Hold,
    /// Writes these bytes and nothing else.
    Raw(Vec<u8>),
    /// Closes the connection.
    HangUp,
}

/// A command that arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// Its name.
    pub command: String,
    /// Its arguments; `null` if there were none.
    pub arguments: Value,
    /// How many descriptors came with it.
    pub descriptors: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    machine: FakeMachine,
    script: BTreeMap<String, VecDeque<Behaviour>>,
    received: Vec<Received>,
    held: Vec<(String, Vec<u8>)>,
    /// The connection that has negotiated, if any.
    current: Option<mpsc::UnboundedSender<Outgoing>>,
}

/// What the tasks of a fake monitor share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) changed: Notify,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn greeting() -> Vec<u8> {
        line(&json!({"QMP": {"version": version(), "capabilities": ["oob"]}}))
    }

    /// One message of the client.
    pub(super) fn accept(
        &self,
        message: &Value,
        descriptors: Vec<HeldDescriptor>,
        to: &mpsc::UnboundedSender<Outgoing>,
    ) {
        let mut state = self.lock();
        let answers = state.answer(message, descriptors, to);
        drop(state);
        for answer in answers {
            let _ = to.send(answer);
        }
        self.changed.notify_waiters();
    }

    pub(super) fn disconnected(&self) {
        self.lock().current = None;
        self.changed.notify_waiters();
    }
}

impl State {
    fn answer(
        &mut self,
        message: &Value,
        descriptors: Vec<HeldDescriptor>,
        to: &mpsc::UnboundedSender<Outgoing>,
    ) -> Vec<Outgoing> {
        let id = &message["id"];
        let Some(command) = message["execute"].as_str() else {
            return vec![refusal(id, "GenericError", "QMP input lacks member 'execute'")];
        };
        let received = Received {
            command: command.to_owned(),
            arguments: message["arguments"].clone(),
            descriptors: descriptors.len(),
        };
        self.received.push(received);
        match (command, self.current.is_some()) {
            ("qmp_capabilities", false) if !self.script.contains_key(command) => {
                self.current = Some(to.clone());
                return vec![reply(id, &json!({}))];
            }
            (_, false) => {
                let desc = "Expecting capabilities negotiation with 'qmp_capabilities'";
                return self.scripted(message, command).unwrap_or_else(|| vec![refusal(id, "CommandNotFound", desc)]);
            }
            (_, true) => {}
        }
        if let Some(answers) = self.scripted(message, command) {
            return answers;
        }
        self.execute(id, command, &message["arguments"], descriptors)
    }

    /// What the script has in place of executing the command.
    fn scripted(&mut self, message: &Value, command: &str) -> Option<Vec<Outgoing>> {
        let id = &message["id"];
        let behaviours = self.script.get_mut(command)?;
        let behaviour = behaviours.pop_front()?;
        if behaviours.is_empty() {
            self.script.remove(command);
        }
        Some(match behaviour {
            Behaviour::Reply(value) => vec![reply(id, &value)],
            Behaviour::Refuse(class, desc) => vec![refusal(id, class, desc)],
            Behaviour::Silence => Vec::new(),
            Behaviour::Raw(bytes) => vec![Outgoing::Bytes(bytes)],
            Behaviour::HangUp => vec![Outgoing::HangUp],
            Behaviour::Hold => {
                let mut answers = self.execute(id, command, &message["arguments"], Vec::new());
                if let Some(Outgoing::Bytes(bytes)) = answers.pop() {
                    self.held.push((command.to_owned(), bytes));
                }
                answers
            }
        })
    }

    fn execute(&mut self, id: &Value, command: &str, arguments: &Value, with: Vec<HeldDescriptor>) -> Vec<Outgoing> {
        let effect = self.machine.execute(command, arguments, with);
        let mut answers: Vec<_> = effect.events.iter().map(|(name, data)| event(name, data)).collect();
        answers.push(match effect.refusal {
            Some((class, desc)) => refusal(id, class, &desc),
            None => reply(id, &effect.reply.unwrap_or_else(|| json!({}))),
        });
        if effect.ends {
            answers.push(Outgoing::HangUp);
        }
        answers
    }
}

fn line(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.extend_from_slice(b"\r\n");
    bytes
}

fn reply(id: &Value, value: &Value) -> Outgoing {
    let mut message = json!({ "return": value });
    if !id.is_null() {
        message["id"] = id.clone();
    }
    Outgoing::Bytes(line(&message))
}

fn refusal(id: &Value, class: &str, desc: &str) -> Outgoing {
    let mut message = json!({"error": {"class": class, "desc": desc}});
    if !id.is_null() {
        message["id"] = id.clone();
    }
    Outgoing::Bytes(line(&message))
}

fn event(name: &str, data: &Value) -> Outgoing {
    let timestamp = json!({"seconds": 1_700_000_000, "microseconds": 42});
    let mut message = json!({"event": name, "timestamp": timestamp});
    if data.as_object().is_none_or(|data| !data.is_empty()) {
        message["data"] = data.clone();
    }
    Outgoing::Bytes(line(&message))
}

/// A QEMU monitor in memory. Dropping it ends it.
#[derive(Debug)]
pub struct FakeMonitor {
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for FakeMonitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeMonitor {
    /// A monitor with one connection, whose client end is given back. Must be called inside a tokio runtime.
    pub fn pair() -> io::Result<(Self, std::os::unix::net::UnixStream)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ours = UnixStream::from_std(ours)?;
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(connection::serve(ours, Arc::clone(&shared))).abort_handle();
        Ok((Self { shared, task }, theirs))
    }

    /// A monitor that listens on a unix socket and serves one client after the other, as QEMU does.
    pub fn listen(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connection::serve(stream, Arc::clone(&served)).await;
            }
        });
        Ok(Self { shared, task: task.abort_handle() })
    }

    /// What is to happen with the next command of this name. Several calls queue up.
    pub fn script(&self, command: &str, behaviour: Behaviour) {
        self.shared.lock().script.entry(command.to_owned()).or_default().push_back(behaviour);
    }

    /// Lets the replies go that were held.
    pub fn release(&self, command: &str) {
        let mut state = self.shared.lock();
        let (released, kept) = std::mem::take(&mut state.held).into_iter().partition(|(held, _)| held == command);
        state.held = kept;
        for (_, bytes) in released {
            state.send(Outgoing::Bytes(bytes));
        }
    }

    /// Something happens. No client receives it before it has negotiated, as with QEMU.
    pub fn emit(&self, name: &str, data: Value) {
        self.shared.lock().send(event(name, &data));
    }

    /// Writes these bytes, whatever they are.
    pub fn write(&self, bytes: &[u8]) {
        self.shared.lock().send(Outgoing::Bytes(bytes.to_vec()));
    }

    /// Closes the connection.
    pub fn hang_up(&self) {
        self.shared.lock().send(Outgoing::HangUp);
    }

    /// The guest gives up a device it had ignored the request for.
    pub fn finish_unplug(&self, device: &str) {
        let mut state = self.shared.lock();
        if let Some((name, data)) = state.machine.finish_unplug(device) {
            state.send(event(name, &data));
        }
    }

    /// Looks at the machine, or changes it without a command.
    pub fn machine<T>(&self, look: impl FnOnce(&mut FakeMachine) -> T) -> T {
        look(&mut self.shared.lock().machine)
    }

    /// Every command so far, `qmp_capabilities` included.
    pub fn received(&self) -> Vec<Received> {
        self.shared.lock().received.clone()
    }

    /// Waits until this many commands of the name have arrived.
    pub async fn until_received(&self, command: &str, count: usize) {
        loop {
            let changed = self.shared.changed.notified();
            let seen = self.shared.lock().received.iter().filter(|received| received.command == command).count();
            if seen >= count {
                return;
            }
            changed.await;
        }
    }
}

impl State {
    fn send(&self, outgoing: Outgoing) {
        if let Some(current) = &self.current {
            let _ = current.send(outgoing);
        }
    }
}
