//! `garboard qmp`: one command or a session, through the supervisor's debug broker.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use garboard_protocol::control::{ControlRequest, QmpAccess};
use garboard_qmp::CommandClass;
use serde_json::{Value, json};

use crate::args::{QmpArgs, QmpTask};
use crate::client::Line;
use crate::exit::{self, BAD_INPUT, REFUSED, complaint};
use crate::output::{note, outln};

mod session;

/// How long a reply of QEMU is waited for: the supervisor gives up on every command earlier, and says so.
const PATIENCE: Duration = CommandClass::Slow.limit().saturating_add(Duration::from_secs(30));

/// `garboard qmp MACHINE [COMMAND [JSON]]`.
pub(crate) fn run(args: &QmpArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let machine = args.here.id(&args.machine)?;
    converse(&Line::to(&places, &machine)?, &args.task)
}

/// Does what was asked for over a connection to a supervisor.
pub(crate) fn converse(line: &Line, task: &QmpTask) -> anyhow::Result<u8> {
    let access = match (task.allow_dangerous, task.allow_write) {
        (true, _) => QmpAccess::Dangerous,
        (false, true) => QmpAccess::ReadWrite,
        (false, false) => QmpAccess::ReadOnly,
    };
    line.open(ControlRequest::Qmp { access })?;
    let mut connection = Connection::greet(line.stream.try_clone()?)?;
    // So far it was the supervisor that answered, at once.
    line.stream.set_read_timeout(Some(PATIENCE))?;
    match &task.command {
        Some(command) => one(&mut connection, command, task.arguments.as_deref()),
        None => session::run(&mut connection, &line.machine),
    }
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
            Err(complaint(REFUSED, format!("{command}: {description}")))
        }
    }
}

fn parse_arguments(text: &str) -> anyhow::Result<Value> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(complaint(BAD_INPUT, "the arguments must be a JSON object, for example '{\"id\":\"net0\"}'")),
        Err(error) => Err(complaint(BAD_INPUT, format!("the arguments are not JSON: {error}"))),
    }
}

/// A QMP connection after its greeting.
struct Connection {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    next_id: u64,
}

impl Connection {
    fn greet(stream: UnixStream) -> anyhow::Result<Self> {
        let reader = BufReader::new(stream.try_clone()?);
        let mut connection = Self { stream, reader, next_id: 1 };
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
        writeln!(self.stream, "{message}").context("send the command")?;
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
        if self.reader.read_line(&mut line).context("hear from QEMU")? == 0 {
            anyhow::bail!("the connection to QEMU was closed");
        }
        serde_json::from_str(&line).context("QEMU did not speak JSON")
    }
}
