//! Running a program inside a namespace: fixed search path and environment, bounded output, bounded time.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::error::NetError;
use crate::netns::NetNs;

/// Most bytes kept of what a program writes to stdout; a ruleset of a busy node is well below.
const STDOUT_MAX: u64 = 32 << 20;
/// Most bytes kept of what a program writes to stderr.
const STDERR_MAX: u64 = 64 << 10;
/// Most characters of stderr that appear in an error.
const MESSAGE_MAX: usize = 600;
/// Where programs are looked up; the caller's PATH may lack the directories for administrators.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin";

/// A program and what it is run for.
pub(super) struct Tool<'a> {
    /// Name or path.
    pub(super) program: &'a str,
    /// Package of Debian that has it.
    pub(super) package: &'static str,
    /// Its arguments.
    pub(super) arguments: &'a [&'a str],
    /// What it is to do, for messages: "replace the table `x`".
    pub(super) doing: &'a str,
    /// When it is killed.
    pub(super) limit: Duration,
}

impl Tool<'_> {
    /// Runs it in `namespace` with `input` on stdin; its stdout if it succeeds.
    pub(super) async fn run(&self, namespace: &NetNs, input: String) -> Result<String, NetError> {
        let child = self.spawn(namespace)?;
        let hung = |_| NetError::ToolHung {
            program: self.program.to_owned(),
            doing: self.doing.to_owned(),
            after: self.limit,
        };
        let output = tokio::time::timeout(self.limit, exchange(child, input)).await.map_err(hung)?;
        let output = output.map_err(|source| self.missing(source))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(NetError::ToolFailed {
            program: self.program.to_owned(),
            doing: self.doing.to_owned(),
            message: message(&output.stderr),
        })
    }

    fn spawn(&self, namespace: &NetNs) -> Result<Child, NetError> {
        let runtime = tokio::runtime::Handle::current();
        let spawned = namespace.run(|| {
            let _entered = runtime.enter();
            Command::new(self.program)
                .args(self.arguments)
                .env_clear()
                .env("PATH", SEARCH_PATH)
                .env("LC_ALL", "C")
                .current_dir("/")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
        })?;
        spawned.map_err(|source| self.missing(source))
    }

    fn missing(&self, source: std::io::Error) -> NetError {
        NetError::ToolMissing { program: self.program.to_owned(), package: self.package, source }
    }
}

/// Writes and reads at the same time: a program that fills one pipe while we fill another would wait for us
/// forever.
async fn exchange(mut child: Child, input: String) -> std::io::Result<Output> {
    let stdin = child.stdin.take();
    let feed = async move {
        if let Some(mut stdin) = stdin {
            // A program that stops reading early prints the reason to stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let stdout = collect(child.stdout.take(), STDOUT_MAX);
    let stderr = collect(child.stderr.take(), STDERR_MAX);
    let ((), stdout, stderr) = futures::join!(feed, stdout, stderr);
    Ok(Output { status: child.wait().await?, stdout: stdout?, stderr: stderr? })
}

async fn collect(pipe: Option<impl AsyncRead + Unpin>, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(limit).read_to_end(&mut kept).await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(kept)
}

fn message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    text.trim().chars().take(MESSAGE_MAX).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::root_or_skip;

    fn tool<'a>(arguments: &'a [&'a str], limit: Duration) -> Tool<'a> {
        Tool { program: "sh", package: "dash", arguments, doing: "print", limit }
    }

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_program_reads_its_input_and_its_answer_is_returned() {
        if !root_or_skip("a_program_reads_its_input_and_its_answer_is_returned") {
            return;
        }
        let here = NetNs::current().unwrap();
        let big = "x".repeat(1 << 20);
        assert_eq!(tool(&["-c", "cat"], SOON).run(&here, big.clone()).await.unwrap(), big);
    }

    #[tokio::test]
    async fn failure_carries_the_beginning_of_stderr_escaped() {
        if !root_or_skip("failure_carries_the_beginning_of_stderr_escaped") {
            return;
        }
        let here = NetNs::current().unwrap();
        let script = "printf 'no\\033[31m'; printf 'bad\\033[31m' >&2; exit 3";
        let failed = tool(&["-c", script], SOON).run(&here, String::new()).await.unwrap_err();
        assert_eq!(failed.to_string(), r"`sh` failed to print: bad\u{1b}[31m");
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed() {
        if !root_or_skip("a_program_that_hangs_is_killed") {
            return;
        }
        let here = NetNs::current().unwrap();
        let limit = Duration::from_millis(50);
        let hung = tool(&["-c", "exec cat /dev/zero >/dev/null"], limit).run(&here, String::new()).await.unwrap_err();
        assert!(matches!(hung, NetError::ToolHung { .. }), "{hung}");
    }

    #[tokio::test]
    async fn a_missing_program_is_named_with_its_package() {
        if !root_or_skip("a_missing_program_is_named_with_its_package") {
            return;
        }
        let here = NetNs::current().unwrap();
        let tool = Tool { program: "garboard-no-such-tool", package: "nftables", ..tool(&[], SOON) };
        let missing = tool.run(&here, String::new()).await.unwrap_err();
        assert!(missing.to_string().contains("apt-get install nftables"), "{missing}");
    }
}
