//! Networking without privilege: passt, a process that translates the guest's frames to ordinary sockets.
//!
//! QEMU's own user network needs nothing from here. passt is faster, passes IPv6 and ping, and shows the
//! guest the host's address. It gets one end of a socket pair (`--fd`), QEMU the other
//! (`-netdev stream,addr.type=fd`, QEMU 7.2 or later), so neither opens a path.
//!
//! passt checks its arguments, binds the published ports, and only then leaves for the background: the end of
//! the process we start means that it is ready. It ends itself when QEMU's end closes, also when everybody
//! else has crashed, so there is nothing to stop and nothing to remove. Source followed: passt(1) of Debian
//! 12 (0.0~git20230309) and 13.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::error::NetError;
use crate::publish::{self, Publish, PublishError, Published};
use crate::sys;

/// How long passt may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of its messages that are looked at.
const MESSAGES_MAX: u64 = 16 << 10;

/// User-mode networking could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserNetError {
    /// A port cannot be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// passt could not be run, or refused to.
    #[error(transparent)]
    Tool(#[from] NetError),
    /// No socket pair.
    #[error("could not make a socket pair for passt")]
    SocketPair(#[source] io::Error),
}

/// Starts passt and returns the descriptor for QEMU's `-netdev stream,addr.type=fd`. Closing it, and QEMU's
/// copy, ends passt. Must run within a tokio runtime with I/O and time enabled.
pub async fn start_passt(program: &Path, published: &[Publish]) -> Result<OwnedFd, UserNetError> {
    // Asked first, because passt tells only in words; let go at once, so that passt can take them.
    drop(publish::listen(published)?);
    let pair = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC);
    let (ours, theirs) = pair.map_err(|error| UserNetError::SocketPair(error.into()))?;
    let mut command = std::process::Command::new(program);
    command.args(arguments(theirs.as_raw_fd(), published));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).current_dir("/");
    sys::process::keep(&mut command, &theirs);
    wait_until_ready(program, command).await?;
    Ok(ours)
}

/// The arguments, in the order in which passt's manual lists them.
fn arguments(descriptor: i32, published: &[Publish]) -> Vec<String> {
    let mut arguments = vec!["--fd".to_owned(), descriptor.to_string()];
    for publish in published {
        let option = match publish.protocol {
            Published::Tcp => "--tcp-ports",
            Published::Udp => "--udp-ports",
        };
        let address = match publish.address {
            Some(IpAddr::V4(address)) => format!("{address}/"),
            Some(IpAddr::V6(address)) => format!("{address}/"),
            None => String::new(),
        };
        arguments.extend([option.to_owned(), format!("{address}{}:{}", publish.host, publish.guest)]);
    }
    arguments
}

async fn wait_until_ready(program: &Path, command: std::process::Command) -> Result<(), NetError> {
    let name = || program.display().to_string();
    let missing = |source| NetError::ToolMissing { program: name(), package: "passt", source };
    let mut child = Command::from(command).kill_on_drop(true).spawn().map_err(missing)?;
    let stderr = child.stderr.take();
    let mut messages = Vec::new();
    let ready = async {
        // The process in the background lets go of stderr; what was said before is all there is.
        if let Some(stderr) = stderr {
            stderr.take(MESSAGES_MAX).read_to_end(&mut messages).await?;
        }
        child.wait().await
    };
    let doing = "connect the guest to the network".to_owned();
    let status = match tokio::time::timeout(READY_LIMIT, ready).await {
        Ok(status) => status.map_err(missing)?,
        Err(_) => return Err(NetError::ToolHung { program: name(), doing, after: READY_LIMIT }),
    };
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&messages);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let message = last.chars().take(300).flat_map(char::escape_default).collect();
    Err(NetError::ToolFailed { program: name(), doing, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::programs_or_skip;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    fn publish(text: &str) -> Publish {
        text.parse().unwrap()
    }

    #[test]
    fn published_ports_become_passts_arguments() {
        let published = [publish("2222:22"), publish("127.0.0.1:5353:53/udp"), publish("[::1]:80:8080")];
        let expected =
            ["--fd", "7", "--tcp-ports", "2222:22", "--udp-ports", "127.0.0.1/5353:53", "--tcp-ports", "::1/80:8080"];
        assert_eq!(arguments(7, &published), expected);
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        length.into_iter().chain(payload.iter().copied()).collect()
    }

    /// An ARP question for `address` from a guest nobody has told its own.
    fn arp(address: [u8; 4]) -> Vec<u8> {
        let mac = [2, 0, 0, 0, 0, 1];
        let mut question = [&[0xff; 6][..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &mac, &[192, 0, 2, 200]].concat();
        question.extend([[0; 6].as_slice(), &address].concat());
        question
    }

    #[tokio::test]
    async fn passt_answers_frames_and_ends_with_its_socket() {
        if !programs_or_skip("passt_answers_frames_and_ends_with_its_socket", &["passt"]) {
            return;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let published = [publish(&format!("127.0.0.1:{port}:22"))];
        let ours = start_passt("passt".as_ref(), &published).await.unwrap();
        assert!(matches!(publish::listen(&published), Err(PublishError::InUse { .. })), "passt holds the port");
        let ours = std::os::unix::net::UnixStream::from(ours);
        ours.set_nonblocking(true).unwrap();
        let mut ours = UnixStream::from_std(ours).unwrap();
        ours.write_all(&frame(&arp([192, 0, 2, 1]))).await.unwrap();
        let length = tokio::time::timeout(READY_LIMIT, ours.read_u32()).await.unwrap().unwrap();
        assert!(length >= 42, "an Ethernet frame of {length} bytes");
        drop(ours);
        let freed = async {
            while publish::listen(&published).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(READY_LIMIT, freed).await.unwrap();
    }

    #[tokio::test]
    async fn a_port_in_use_is_said_before_passt_starts() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let published = [publish(&format!("127.0.0.1:{}:22", taken.local_addr().unwrap().port()))];
        let refused = start_passt("garboard-no-such-passt".as_ref(), &published).await.unwrap_err();
        assert!(matches!(refused, UserNetError::Publish(PublishError::InUse { .. })), "{refused}");
    }

    #[tokio::test]
    async fn a_missing_passt_is_named_with_its_package() {
        let missing = start_passt("/garboard-no-such-passt".as_ref(), &[]).await.unwrap_err();
        assert!(missing.to_string().contains("apt-get install passt"), "{missing}");
    }
}
