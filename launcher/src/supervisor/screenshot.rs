//! A picture of the screen for a client: QEMU draws it into memory, and it is sent from there.

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::ControlReply;
use garboard_qmp::Monitor;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};

use super::control::{answer, denied};

/// The largest picture that is sent, bytes: several times that of noise on a screen of 3840 × 2160.
const LARGEST: u64 = 64 << 20;
/// How long a guest has to draw its screen after the pointer has moved.
const DRAWING: Duration = Duration::from_millis(300);
/// How long a client may take to read the picture.
const READING: Duration = Duration::from_secs(30);
/// Bytes that are sent at once.
const CHUNK: usize = 64 * 1024;

/// Whether the pointer is moved before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pointer {
    /// It is.
    Moves,
    /// It is not.
    Stays,
}

/// The screen. One picture at a time: each takes memory.
pub(super) struct Screen {
    monitor: watch::Receiver<Option<Monitor>>,
    one_at_a_time: Mutex<()>,
}

impl Screen {
    /// Of the QEMU that answers this monitor.
    pub(super) fn new(monitor: watch::Receiver<Option<Monitor>>) -> Self {
        Self { monitor, one_at_a_time: Mutex::new(()) }
    }

    /// Answers a client with a picture.
    pub(super) async fn send(&self, stream: &mut UnixStream, pointer: Pointer) -> io::Result<()> {
        let _one = self.one_at_a_time.lock().await;
        match self.picture(pointer).await {
            Ok(picture) => timeout(READING, relay(stream, picture)).await.map_err(io::Error::other)?,
            Err(reason) => answer(stream, &denied(reason)).await,
        }
    }

    async fn picture(&self, pointer: Pointer) -> Result<File, String> {
        let monitor = self.monitor.borrow().clone().ok_or("QEMU's monitor is not connected")?;
        if pointer == Pointer::Moves {
            // A guest whose vCPUs are stopped has no use for it.
            if let Err(error) = monitor.move_pointer().await {
                tracing::info!(error = %ErrorChain(&error), "the pointer was not moved");
            }
            sleep(DRAWING).await;
        }
        let (picture, length) = monitor.screenshot().await.map_err(|error| ErrorChain(&error).to_string())?;
        if length > LARGEST {
            return Err(format!("the picture of the screen has {length} bytes, more than {LARGEST}"));
        }
        Ok(picture)
    }
}

async fn relay(stream: &mut UnixStream, mut picture: File) -> io::Result<()> {
    answer(stream, &ControlReply::Streaming).await?;
    let mut chunk = vec![0; CHUNK];
    loop {
        // From memory: it waits for nothing.
        match picture.read(&mut chunk)? {
            0 => return stream.shutdown().await,
            count => stream.write_all(&chunk[..count]).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::wire;
    use garboard_qmp::ConnectOptions;
    use garboard_qmp::testing::{Behaviour, FakeMonitor};
    use serde_json::json;
    use tokio::io::AsyncReadExt;

    use super::*;

    /// What a client gets.
    async fn answered(screen: &Screen, pointer: Pointer) -> (ControlReply, Vec<u8>) {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let mut read = Vec::new();
        let (sent, received) = tokio::join!(screen.send(&mut ours, pointer), async {
            let mut line = Vec::new();
            while line.last() != Some(&b'\n') {
                line.push(theirs.read_u8().await.unwrap());
            }
            let reply: ControlReply = wire::decode(&line).unwrap();
            if reply == ControlReply::Streaming {
                theirs.read_to_end(&mut read).await.unwrap();
            }
            reply
        });
        sent.unwrap();
        (received, read)
    }

    #[tokio::test]
    async fn a_picture_is_sent_after_the_pointer_has_moved() {
        let (fake, stream) = FakeMonitor::pair().unwrap();
        let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("vm")).await.unwrap();
        let (monitor_up, seen) = watch::channel(None);
        let screen = Screen::new(seen);
        let (reply, _) = answered(&screen, Pointer::Stays).await;
        assert_eq!(reply, ControlReply::Denied { reason: "QEMU's monitor is not connected".to_owned() });
        monitor_up.send_replace(Some(monitor));
        let (reply, picture) = answered(&screen, Pointer::Moves).await;
        assert!(reply == ControlReply::Streaming && picture.starts_with(b"\x89PNG"), "{reply:?}");
        let received = fake.received();
        let place = |command: &str| received.iter().position(|each| each.command == command);
        assert!(place("input-send-event").unwrap() < place("screendump").unwrap());
        let dump = &received[place("screendump").unwrap()];
        assert_eq!(dump.arguments["format"], "png");
        fake.script("screendump", Behaviour::Refuse("GenericError", "no surface"));
        let (reply, _) = answered(&screen, Pointer::Stays).await;
        assert!(matches!(reply, ControlReply::Denied { reason } if reason.contains("no surface")));
        assert_eq!(fake.received().iter().filter(|each| each.command == "input-send-event").count(), 2);
        fake.script("screendump", Behaviour::Reply(json!({})));
        let (reply, _) = answered(&screen, Pointer::Stays).await;
        assert!(matches!(reply, ControlReply::Denied { reason } if reason.contains("no PNG")));
    }
}
