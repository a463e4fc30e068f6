//! A QEMU started for nothing but questions: no machine, no guest, QMP on its standard input and output.
//!
//! One question after the other, each answered before the next is put: there are a dozen and starting QEMU takes a
//! hundred times as long as one of them. Not for a QEMU that runs a machine: that is `garboard_qmp::connection`.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use garboard_qmp::qmp::{self, QmpCommand};
use garboard_qmp::wire::{LineSplitter, MONITOR_LINE_LIMIT, Message};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::locate::QemuBinary;

/// Time QEMU has to start and to answer everything. It takes 20 to 150 ms, on a busy machine a few times as long.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Bytes kept of what QEMU writes to standard error.
const LAST_OUTPUT_BYTES: usize = 2048;

/// QEMU did not answer.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// It could not be executed.
    #[error("could not start {path}")]
    Start {
        /// The binary.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended before it had answered.
    #[error("QEMU ended before it answered `{command}`; its last output: {last_output}")]
    Ended {
        /// The question.
        command: &'static str,
        /// The end of its standard error.
        last_output: String,
    },
    /// It did not answer in time.
    #[error("QEMU did not answer `{command}` within {limit:?}")]
    TimedOut {
        /// The question.
        command: &'static str,
        /// The time allowed.
        limit: Duration,
    },
    /// It refused a question.
    #[error("QEMU refused `{command}`: {desc}")]
    Refused {
        /// The question.
        command: &'static str,
        /// QEMU's message.
        desc: String,
    },
    /// Its answer was not of the expected form.
    #[error("QEMU's answer to `{command}` could not be parsed")]
    Undecodable {
        /// The question.
        command: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The pipes to it failed.
    #[error("the connection to QEMU failed")]
    Talk(#[source] io::Error),
}

/// A running QEMU; killed and waited for when dropped.
pub(super) struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Does not block; `None` once it is closed.
    stderr: Option<ChildStderr>,
    lines: LineSplitter,
    last_output: Vec<u8>,
    limit: Duration,
    deadline: Instant,
    next_id: u64,
}

#[derive(Serialize)]
struct Question<'a, C> {
    execute: &'a str,
    arguments: &'a C,
    id: u64,
}

impl Session {
    /// Starts QEMU with the first of `accelerators` that works, and negotiates. Everything together may take `limit`.
    pub(super) fn start(binary: &QemuBinary, accelerators: &[&str], limit: Duration) -> Result<Self, SessionError> {
        let failed = |source| SessionError::Start { path: binary.path.clone(), source };
        let mut command = Command::new(&binary.path);
        command.args(["-M", "none", "-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio"]);
        command.args(accelerators.iter().flat_map(|accelerator| ["-accel", accelerator]));
        command.args(binary.firmware_dirs.iter().flat_map(|directory| ["-L".as_ref(), directory.as_os_str()]));
        command.env_clear().current_dir("/");
        command.envs(binary.module_dir.iter().map(|directory| ("QEMU_MODULE_DIR", directory)));
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let flags = fcntl(&stderr, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        let mut session = Self {
            child,
            stdin,
            stdout,
            stderr: flags.is_ok().then_some(stderr),
            lines: LineSplitter::new(MONITOR_LINE_LIMIT),
            last_output: Vec::new(),
            limit,
            deadline: Instant::now() + limit,
            next_id: 0,
        };
        session.ask_raw(&qmp::qmp_capabilities { enable: None }, |_| Ok(()))?;
        Ok(session)
    }

    /// Puts a question and reads of its answer what `T` has.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, question: &impl QmpCommand) -> Result<T, SessionError> {
        self.ask_raw(question, |answer| serde_json::from_str(answer.get()))
    }

    /// Puts a question and lets `read` convert the answer's text, which is not kept.
    pub(super) fn ask_raw<C: QmpCommand, T>(
        &mut self,
        question: &C,
        read: impl FnOnce(&RawValue) -> serde_json::Result<T>,
    ) -> Result<T, SessionError> {
        self.next_id += 1;
        let (id, command) = (self.next_id, C::NAME);
        let undecodable = |source| SessionError::Undecodable { command, source };
        let question = Question { execute: command, arguments: question, id };
        let mut line = serde_json::to_vec(&question).map_err(undecodable)?;
        line.push(b'\n');
        // A QEMU that is gone already is reported below, with its output.
        let _ = self.stdin.write_all(&line);
        loop {
            while let Some(line) = self.lines.next_line() {
                let Ok(line) = line else { continue };
                match Message::parse(line) {
                    Ok(Message::Reply { id: Some(got), returned }) if got == id => {
                        return read(returned).map_err(undecodable);
                    }
                    Ok(Message::Refusal { id: Some(got), desc, .. }) if got == id => {
                        return Err(SessionError::Refused { command, desc: desc.into_owned() });
                    }
                    // The greeting, events, and whatever a future QEMU may add.
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "QEMU wrote a line that is not a QMP message"),
                }
            }
            self.read_more(command)?;
        }
    }

    fn read_more(&mut self, command: &'static str) -> Result<(), SessionError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SessionError::TimedOut { command, limit: self.limit });
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut wait = vec![PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN)];
        wait.extend(self.stderr.iter().map(|stderr| PollFd::new(stderr.as_fd(), PollFlags::POLLIN)));
        match poll(&mut wait, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(SessionError::Talk(error.into())),
        }
        // A closed pipe counts as ready, and reading it gives nothing.
        let ready = |at: usize| wait.get(at).and_then(PollFd::any).unwrap_or(false);
        let (answered, has_output) = (ready(0), ready(1));
        if has_output {
            self.read_stderr();
        }
        if answered { self.read_answer(command) } else { Ok(()) }
    }

    fn read_answer(&mut self, command: &'static str) -> Result<(), SessionError> {
        let mut buffer = [0_u8; 16 << 10];
        let count = self.stdout.read(&mut buffer).map_err(SessionError::Talk)?;
        if count > 0 {
            self.lines.push(&buffer[..count]);
            return Ok(());
        }
        // It has closed its side, so it is ending; its output is in the pipe once it is gone.
        self.end();
        self.read_stderr();
        let printed = String::from_utf8_lossy(&self.last_output).trim().escape_debug().to_string();
        Err(SessionError::Ended { command, last_output: if printed.is_empty() { "nothing".into() } else { printed } })
    }

    /// Takes what is in the pipe of standard error, without waiting for more.
    fn read_stderr(&mut self) {
        let mut buffer = [0_u8; 4 << 10];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut buffer) {
                Ok(0) => self.stderr = None,
                Ok(count) => self.keep_last_output(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn keep_last_output(&mut self, bytes: &[u8]) {
        self.last_output.extend_from_slice(bytes);
        let excess = self.last_output.len().saturating_sub(LAST_OUTPUT_BYTES);
        self.last_output.drain(..excess);
    }
}

impl Session {
    /// Ends QEMU and whatever a wrapper script started beside it: they are a process group of their own.
    fn end(&mut self) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
