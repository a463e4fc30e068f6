//! `garboard qmp` and `kubectl garboard qmp`: one command or a session, through the supervisor's debug broker; the latter over
//! the subresource of its level.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use garboard_protocol::control::{ControlRequest, QmpAccess};
use garboard_qmp_commands::CommandClass;
use garboard_qmp_commands::schema::Schema;
use serde_json::{Value, json};

use crate::exit::{self, BAD_INPUT, ExitError, REFUSED, exit_error};
use crate::find;
use crate::kubectl::{Kubectl, failed};
use crate::line::{Incoming, Line, Outgoing};
use crate::options::QmpTask;
use crate::output::{note, outln};
use crate::stream::{self, Stream, Streams};
use crate::subresource::{QMP_DANGEROUS, QMP_READ, QMP_WRITE, Resource, Subresource};

mod session;

/// How long a reply of QEMU is waited for: the supervisor gives up on every command earlier, and answers that.
const PATIENCE: Duration = CommandClass::LONGEST.limit().saturating_add(Duration::from_secs(30));

/// Where the commands of earlier sessions are, for a user of this computer; nowhere if there is no home directory.
#[must_use]
pub fn history_of_caller() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let ours = variable("GARBOARD_STATE_DIR");
    let of_system =
        || variable("XDG_STATE_HOME").or_else(|| variable("LOCALAPPDATA")).map(|path| path.join("garboard"));
    let at_home = || std::env::home_dir().map(|home| home.join(".local/state/garboard"));
    Some(history_in(&ours.or_else(of_system).or_else(at_home)?))
}

/// Where they are in a directory for state.
#[must_use]
pub fn history_in(state: &Path) -> PathBuf {
    state.join("qmp-history")
}

fn access(task: &QmpTask) -> QmpAccess {
    match (task.allow_dangerous, task.allow_write) {
        (true, _) => QmpAccess::Dangerous,
        (false, true) => QmpAccess::ReadWrite,
        (false, false) => QmpAccess::ReadOnly,
    }
}

/// Does what was asked for over a connection to a supervisor of this host. `history` is for sessions.
pub fn run_session(mut line: Line, task: &QmpTask, history: Option<PathBuf>) -> anyhow::Result<u8> {
    line.open(ControlRequest::Qmp { access: access(task) })?;
    let Line { incoming, outgoing, machine, .. } = line;
    converse(incoming, outgoing, &Asked { machine: &machine, task, history: history.as_deref() })
}

/// `kubectl garboard qmp MACHINE [COMMAND [JSON]]`: a stream of the subresource of its level.
pub(crate) fn run(kubectl: &Kubectl, machine: &str, task: &QmpTask) -> anyhow::Result<u8> {
    let verb = match access(task) {
        QmpAccess::ReadOnly => QMP_READ,
        QmpAccess::ReadWrite => QMP_WRITE,
        QmpAccess::Dangerous => QMP_DANGEROUS,
    };
    // A mistake in them is one before anything is opened.
    task.arguments.as_deref().map(parse_arguments).transpose()?;
    let running = find::running(kubectl, machine)?;
    let machine = running.machine();
    let streams = Streams::start(kubectl, running.subresource(verb))?;
    let Stream { incoming, outgoing, ending } = streams.open("").map_err(failed)?;
    let history = history_of_caller();
    let outcome = converse(incoming, outgoing, &Asked { machine: &machine, task, history: history.as_deref() });
    match outcome {
        // QEMU, or its broker, has answered: the stream was there.
        Err(error) if error.downcast_ref::<ExitError>().is_none() => {
            stream::judge(&ending, &machine)?;
            Err(error)
        }
        other => other,
    }
}

/// What is done over a connection.
struct Asked<'a> {
    machine: &'a str,
    task: &'a QmpTask,
    history: Option<&'a Path>,
}

fn converse(incoming: Incoming, outgoing: Outgoing, asked: &Asked<'_>) -> anyhow::Result<u8> {
    let mut connection = Connection::greet(incoming, outgoing)?;
    // So far it was the supervisor that answered, at once.
    connection.reader.get_mut().set_patience(Some(PATIENCE));
    match &asked.task.command {
        Some(command) => one(&mut connection, command, asked.task.arguments.as_deref()),
        None => session::run(&mut connection, asked.machine, asked.history),
    }
}

/// The commands that QEMU of a machine has, from its schema; none where it cannot be asked.
pub(crate) fn commands(kubectl: &Kubectl, namespace: &str, name: &str) -> Vec<String> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let of_machine = Subresource { resource: Resource::Instance, namespace, name, verb: QMP_READ };
    let path = format!("{}{}/query-qmp-schema", kubectl.server_path(), of_machine.path());
    let reply: Value =
        serde_json::from_slice(&kubectl.run(&["get", "--raw", &path]).unwrap_or_default()).unwrap_or_default();
    let schema = Schema::parse(&reply["return"].to_string()).ok();
    schema.iter().flat_map(|schema| schema.commands().map(str::to_owned)).collect()
}

fn one(connection: &mut Connection, command: &str, arguments: Option<&str>) -> anyhow::Result<u8> {
    let arguments = match arguments {
        Some(text) => Some(parse_arguments(text)?),
        None => None,
    };
    let reply = connection.execute(command, arguments)?;
    match reply.get("error") {
        None => {
            outln!("{}", serde_json::to_string_pretty(&reply["return"])?)?;
            Ok(exit::OK)
        }
        Some(error) => {
            let description = error["desc"].as_str().unwrap_or("QEMU refused without a reason");
            Err(exit_error(REFUSED, format!("{command}: {description}")))
        }
    }
}

fn parse_arguments(text: &str) -> anyhow::Result<Value> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(exit_error(BAD_INPUT, "the arguments must be a JSON object, for example '{\"id\":\"net0\"}'")),
        Err(error) => Err(exit_error(BAD_INPUT, format!("the arguments are not JSON: {error}"))),
    }
}

/// A QMP connection after its greeting.
struct Connection {
    reader: BufReader<Incoming>,
    writer: Outgoing,
    next_id: u64,
}

impl Connection {
    fn greet(incoming: Incoming, writer: Outgoing) -> anyhow::Result<Self> {
        let mut connection = Self { reader: BufReader::new(incoming), writer, next_id: 1 };
        connection.read().context("no QMP greeting")?;
        connection.execute("qmp_capabilities", None)?;
        Ok(connection)
    }

    /// Sends a command and waits for its reply; events on the way are shown on standard error.
    fn execute(&mut self, command: &str, arguments: Option<Value>) -> anyhow::Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        let mut message = json!({ "execute": command, "id": id });
        if let Some(arguments) = arguments {
            message["arguments"] = arguments;
        }
        writeln!(self.writer, "{message}").and_then(|()| self.writer.flush()).context("send the command")?;
        loop {
            let reply = self.read()?;
            if reply.get("event").is_some() {
                note!("{reply}");
            } else if reply["id"] == id {
                return Ok(reply);
            }
        }
    }

    fn read(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).context("read QEMU's answer")? == 0 {
            anyhow::bail!("the connection to QEMU was closed");
        }
        serde_json::from_str(&line).context("QEMU did not answer in JSON")
    }
}
