//! A blocking QMP client for tests: one command at a time, events dropped.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// A connection to a monitor.
pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Qmp {
    /// Connects and leaves negotiation mode. The socket listens before QEMU starts, so this waits for QEMU.
    pub(crate) fn connect(path: &Path) -> Result<Self, String> {
        let writer = UnixStream::connect(path).map_err(|error| error.to_string())?;
        writer.set_read_timeout(Some(Duration::from_secs(60))).map_err(|error| error.to_string())?;
        let reader = BufReader::new(writer.try_clone().map_err(|error| error.to_string())?);
        let mut qmp = Self { reader, writer };
        qmp.line()?;
        qmp.call("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs one command.
    pub(crate) fn call(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        let request = json!({ "execute": command, "arguments": arguments }).to_string() + "\n";
        self.writer.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        loop {
            let mut reply: Value = serde_json::from_str(&self.line()?).map_err(|error| error.to_string())?;
            if let Some(error) = reply.get("error") {
                return Err(format!("{command}: {error}"));
            }
            if reply.get("return").is_some() {
                return Ok(reply["return"].take());
            }
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err("QEMU closed the monitor".to_owned()),
            Ok(_) => Ok(line),
            Err(error) => Err(error.to_string()),
        }
    }
}
