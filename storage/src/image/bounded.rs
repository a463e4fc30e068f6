//! Runs a child that works on hostile input: bounded in wall time, processor time, address space and output.
//!
//! The limits of the kernel are set by `prlimit` (util-linux), which then becomes the child: they hold from its first
//! instruction, and this crate stays free of `unsafe` code between fork and exec.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::beneath::shown;

/// What a child may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    /// Time on the wall; the child is killed afterwards.
    pub wall_time: Duration,
    /// Processor time in seconds (`RLIMIT_CPU`).
    pub cpu_seconds: u64,
    /// Address space in bytes (`RLIMIT_AS`).
    pub address_space_bytes: u64,
    /// Bytes of standard output kept; more is an error.
    pub output_bytes: usize,
}

impl ToolLimits {
    /// For looking at an image: 30 s, 10 s of processor, 1 GiB, 1 MiB of output.
    pub const LOOK: Self = Self {
        wall_time: Duration::from_secs(30),
        cpu_seconds: 10,
        address_space_bytes: 1 << 30,
        output_bytes: 1 << 20,
    };

    /// For reading all of it: an hour, as much processor, 2 GiB.
    pub const COPY: Self = Self {
        wall_time: Duration::from_secs(3600),
        cpu_seconds: 3600,
        address_space_bytes: 2 << 30,
        output_bytes: 1 << 20,
    };
}

/// Bytes of standard error kept; more is read and dropped.
const STDERR_BYTES: usize = 4096;

/// How a child failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It, or `prlimit`, is not there.
    #[error("{program} could not be started; install qemu-utils and util-linux")]
    Start {
        /// The program.
        program: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Killed by us.
    #[error("{program} was stopped after {} s; the image may be damaged or the storage too slow", after.as_secs())]
    TimedOut {
        /// The program.
        program: String,
        /// The limit.
        after: Duration,
    },
    /// Killed by the kernel or by another process.
    #[error("{program} was killed by signal {signal}, probably by its limits of memory or processor time: {stderr}")]
    Killed {
        /// The program.
        program: String,
        /// The signal.
        signal: i32,
        /// Its output, escaped and cut.
        stderr: String,
    },
    /// Ended by itself with a failure.
    #[error("{program} failed (exit code {code}): {stderr}")]
    Failed {
        /// The program.
        program: String,
        /// Its exit code.
        code: i32,
        /// Its output, escaped and cut.
        stderr: String,
    },
    /// More output than allowed.
    #[error("{program} wrote more than {most_bytes} bytes; the image is not trusted")]
    TooMuchOutput {
        /// The program.
        program: String,
        /// The limit.
        most_bytes: usize,
    },
    /// Waiting for it failed.
    #[error("could not wait for {program}; see the cause")]
    Wait {
        /// The program.
        program: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A child to run: program, arguments, and what its standard input and output are.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) stdin: Stdio,
    /// `None`: collected and returned.
    pub(super) stdout: Option<Stdio>,
}

/// What a finished child left.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

/// Runs the job; an exit code other than zero is returned, not an error: `qemu-img check` reports by codes.
pub(super) fn run(job: Job, limits: ToolLimits) -> Result<Finished, RunError> {
    let program = job.program.clone();
    let mut child = start(job, limits)?;
    let stdout = child.stdout.take().map(|pipe| collect(pipe, limits.output_bytes));
    let stderr = child.stderr.take().map(|pipe| collect(pipe, STDERR_BYTES));
    let status = wait(child, &program, limits.wall_time)?;
    let (errors, _) = stderr.map_or_else(Default::default, |reader| reader.join().unwrap_or_default());
    let (stdout, cut) = stdout.map_or_else(Default::default, |reader| reader.join().unwrap_or_default());
    let stderr = shown(String::from_utf8_lossy(&errors).trim());
    if cut {
        return Err(RunError::TooMuchOutput { program, most_bytes: limits.output_bytes });
    }
    match status.code() {
        Some(code) => Ok(Finished { code, stdout, stderr }),
        None => {
            let signal = std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0);
            Err(RunError::Killed { program, signal, stderr })
        }
    }
}

fn start(job: Job, limits: ToolLimits) -> Result<Child, RunError> {
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--as={}", limits.address_space_bytes))
        .arg(format!("--cpu={}", limits.cpu_seconds))
        .args(["--core=0", "--nofile=64", "--"])
        .arg(&job.program)
        .args(&job.arguments)
        .env("LC_ALL", "C")
        .stdin(job.stdin)
        .stdout(job.stdout.unwrap_or_else(Stdio::piped))
        .stderr(Stdio::piped());
    command.spawn().map_err(|source| RunError::Start { program: job.program, source })
}

/// Reads up to `most` bytes, and the rest for nothing, so that the child never blocks on us. Returns whether it cut.
fn collect(mut pipe: impl Read + Send + 'static, most: usize) -> std::thread::JoinHandle<(Vec<u8>, bool)> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = (&mut pipe).take(most as u64).read_to_end(&mut kept);
        let rest = io::copy(&mut pipe, &mut io::sink()).unwrap_or(0);
        (kept, rest > 0)
    })
}

/// Waits on a thread of its own, because the standard library has no wait with a limit. The process id stays ours until
/// that thread has reaped it, and only then does it send.
fn wait(mut child: Child, program: &str, wall_time: Duration) -> Result<ExitStatus, RunError> {
    let pid = i32::try_from(child.id()).map(Pid::from_raw);
    let (sender, receiver) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let _ = sender.send(child.wait());
    });
    let ended = match receiver.recv_timeout(wall_time) {
        Ok(ended) => ended,
        Err(_) => {
            if let Ok(pid) = pid {
                let _ = kill(pid, Signal::SIGKILL);
            }
            let _ = waiter.join();
            return Err(RunError::TimedOut { program: program.to_owned(), after: wall_time });
        }
    };
    ended.map_err(|source| RunError::Wait { program: program.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limits: ToolLimits) -> Result<Finished, RunError> {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        run(Job { program: "sh".to_owned(), arguments, stdin: Stdio::null(), stdout: None }, limits)
    }

    #[test]
    fn code_and_output_come_back() {
        let done = shell("echo out; echo err >&2; exit 3", ToolLimits::LOOK).unwrap();
        assert_eq!((done.code, done.stdout.as_slice(), done.stderr.as_str()), (3, &b"out\n"[..], "err"));
    }

    #[test]
    fn one_that_hangs_is_stopped_even_with_its_pipes_closed() {
        let limits = ToolLimits { wall_time: Duration::from_millis(200), ..ToolLimits::LOOK };
        assert!(matches!(shell("exec sleep 100", limits), Err(RunError::TimedOut { .. })));
        assert!(matches!(shell("exec sleep 100 >/dev/null 2>&1", limits), Err(RunError::TimedOut { .. })));
    }

    #[test]
    fn one_that_spins_is_killed_by_its_processor_limit() {
        // On a busy machine a second of processor takes many on the wall.
        let limits = ToolLimits { cpu_seconds: 1, wall_time: Duration::from_secs(300), ..ToolLimits::LOOK };
        assert!(matches!(shell("while :; do :; done", limits), Err(RunError::Killed { .. })));
    }

    #[test]
    fn one_that_prints_too_much_is_refused_and_its_errors_are_cut_and_escaped() {
        let limits = ToolLimits { output_bytes: 1000, ..ToolLimits::LOOK };
        assert!(matches!(shell("head -c 100000 /dev/zero", limits), Err(RunError::TooMuchOutput { .. })));
        let done = shell("printf 'a\\033[2Jb' >&2; head -c 1000000 /dev/zero >&2", ToolLimits::LOOK).unwrap();
        assert!(done.stderr.starts_with("a\\u{1b}[2Jb") && done.stderr.len() < 2000, "{}", done.stderr);
    }

    #[test]
    fn its_address_space_is_limited() {
        let done = shell("ulimit -v", ToolLimits { address_space_bytes: 64 << 20, ..ToolLimits::LOOK }).unwrap();
        assert_eq!(done.stdout, b"65536\n");
    }

    #[test]
    fn a_missing_program_is_named() {
        let job = Job { program: "garboard-no-such".into(), arguments: vec![], stdin: Stdio::null(), stdout: None };
        // prlimit itself is there, and reports it in its own way.
        assert_eq!(run(job, ToolLimits::LOOK).unwrap().code, 127);
    }
}
