//! `qemu-monitor-command`: one QMP command through the supervisor's broker, which lets queries through and nothing else.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use garboard_protocol::control::{ControlReply, ControlRequest, QmpAccess};
use serde_json::{Value, json};

use super::VirshError;
use super::machines::{Machine, ask as ask_supervisor, read_line};

/// The supervisor gives up on every command of QEMU's earlier.
const PATIENCE: Duration = Duration::from_secs(120);

/// QEMU's answer, whole, as `virsh` prints it: an error of QEMU's is an answer too.
pub(super) fn ask(machine: &Machine, command: &str, pretty: bool) -> Result<String, VirshError> {
    let command = parse(command)?;
    let stream = machine.connect().map_err(VirshError::Supervisor)?;
    let mut stream = BufReader::new(stream);
    match ask_supervisor(&mut stream, ControlRequest::Qmp { access: QmpAccess::ReadOnly })? {
        ControlReply::Streaming => {}
        ControlReply::Denied { reason } => return Err(VirshError::Denied(reason)),
        ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => return Err(VirshError::Answer),
    }
    stream.get_ref().set_read_timeout(Some(PATIENCE)).map_err(VirshError::Supervisor)?;
    // QEMU's greeting, and the end of its negotiation.
    read_line(&mut stream)?;
    execute(&mut stream, &json!({ "execute": "qmp_capabilities" }))?;
    let answer = execute(&mut stream, &command)?;
    let text = if pretty { serde_json::to_string_pretty(&answer) } else { serde_json::to_string(&answer) };
    text.map(|text| text + "\n\n").map_err(|_| VirshError::Answer)
}

/// A command of QMP.
pub(super) fn parse(text: &str) -> Result<Value, VirshError> {
    let command: Value = serde_json::from_str(text).map_err(|_| VirshError::NoQmp)?;
    if command.get("execute").is_some_and(Value::is_string) { Ok(command) } else { Err(VirshError::NoQmp) }
}

/// Sends a command and waits for its answer; events before it are passed over.
fn execute(stream: &mut BufReader<UnixStream>, command: &Value) -> Result<Value, VirshError> {
    let line = serde_json::to_string(command).map_err(|_| VirshError::Answer)? + "\n";
    stream.get_mut().write_all(line.as_bytes()).map_err(VirshError::Supervisor)?;
    loop {
        let answer: Value = serde_json::from_slice(&read_line(stream)?).map_err(|_| VirshError::Answer)?;
        if answer.get("return").is_some() || answer.get("error").is_some() {
            return Ok(answer);
        }
    }
}
