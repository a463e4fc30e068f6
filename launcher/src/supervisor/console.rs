//! The serial console: many viewers, one writer, scroll-back.
//!
//! One task holds the connection to QEMU's serial port and a ring of the last bytes. A viewer gets the ring
//! and from then on every byte, in order, without loss or repetition; one that cannot keep up gets a notice
//! and is disconnected, because a slow terminal must not slow the guest down. One of the viewers may be the session of the
//! subresource API ([`super::session`]): the next session disconnects it.

use std::collections::VecDeque;
use std::path::PathBuf;

use garboard_protocol::control::{ConsoleAccess, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use super::serial_log::SerialLog;
use super::session::{CONSOLE_REPLACED, Reason};

/// Bytes of scroll-back kept in memory.
const RING_BYTES: usize = 32 * 1024;
/// Chunks a viewer may be behind before it is disconnected.
const VIEWER_BACKLOG: usize = 128;
/// Keystrokes waiting for the guest, in chunks.
const KEYBOARD_BACKLOG: usize = 64;
const CHUNK_BYTES: usize = 4096;
/// More viewers than this are refused.
const MAX_VIEWERS: usize = 32;
/// The reason that a session gets that cannot keep up.
const TOO_SLOW: &str = "the guest prints faster than this client reads";

/// A new viewer.
pub(crate) struct Attach {
    /// What it may do.
    pub(crate) access: ConsoleAccess,
    /// Whether it is the session.
    pub(crate) session: Session,
    /// Where it is answered: a pair of channels or the reason why not.
    pub(crate) reply: oneshot::Sender<Result<Attached, String>>,
}

/// A viewer that is in.
pub(crate) struct Attached {
    /// What was printed before.
    pub(crate) scrollback: Vec<u8>,
    /// What is printed from now on; closed when the machine ends or the viewer is too slow.
    pub(crate) output: mpsc::Receiver<Vec<u8>>,
    /// Where keystrokes go, if it may type.
    pub(crate) keyboard: Option<mpsc::Sender<Keys>>,
    /// Its number, for [`Keys`].
    pub(crate) id: u64,
    /// Why `output` was closed, if not by the end of the machine.
    pub(crate) over: watch::Receiver<Reason>,
}

/// What a viewer typed.
pub(crate) struct Keys {
    pub(crate) viewer: u64,
    /// What was typed; empty: nothing more will be.
    pub(crate) bytes: Vec<u8>,
}

struct Viewer {
    id: u64,
    output: mpsc::Sender<Vec<u8>>,
    over: watch::Sender<Reason>,
}

/// The task's state.
struct Console {
    ring: VecDeque<u8>,
    viewers: Vec<Viewer>,
    writer: Option<u64>,
    session: Option<u64>,
    next_id: u64,
    keyboard: mpsc::Sender<Keys>,
    log: SerialLog,
}

/// Serves viewers until QEMU closes the serial port. `log` is the file QEMU appends to.
pub(crate) async fn serve(serial: UnixStream, log: PathBuf, mut attaching: mpsc::Receiver<Attach>) {
    let (keyboard, mut keys) = mpsc::channel(KEYBOARD_BACKLOG);
    let log = SerialLog::new(log);
    let ring = log.tail(RING_BYTES).into();
    let mut console = Console { ring, viewers: Vec::new(), writer: None, session: None, next_id: 1, keyboard, log };
    let (mut from_guest, mut to_guest): (OwnedReadHalf, OwnedWriteHalf) = serial.into_split();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut typed = Vec::new();
    loop {
        tokio::select! {
            read = from_guest.read(&mut chunk) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => console.publish(&chunk[..count]),
            },
            Some(attach) = attaching.recv() => console.attach(attach),
            Some(keys) = keys.recv(), if typed.is_empty() => {
                if keys.bytes.is_empty() {
                    console.release(keys.viewer);
                } else if console.writer == Some(keys.viewer) {
                    typed = keys.bytes;
                }
            }
            // Beside the guest's output: one that does not read what is typed may be printing, and waits for us to read that.
            written = to_guest.write(&typed), if !typed.is_empty() => match written {
                Ok(count) => drop(typed.drain(..count)),
                Err(_) => return,
            },
        }
    }
}

impl Console {
    fn publish(&mut self, bytes: &[u8]) {
        self.ring.extend(bytes);
        let excess = self.ring.len().saturating_sub(RING_BYTES);
        self.ring.drain(..excess);
        self.viewers.retain(|viewer| match viewer.output.try_send(bytes.to_vec()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                viewer.over.send_replace(Some(TOO_SLOW));
                false
            }
            Err(TrySendError::Closed(_)) => false,
        });
        self.log.note_appended(bytes.len());
    }

    /// A viewer will not type any more.
    fn release(&mut self, viewer: u64) {
        self.writer = self.writer.filter(|writer| *writer != viewer);
    }

    fn attach(&mut self, attach: Attach) {
        self.viewers.retain(|viewer| !viewer.output.is_closed());
        let answer = self.admit(attach.access, attach.session);
        let _ = attach.reply.send(answer);
    }

    fn admit(&mut self, access: ConsoleAccess, session: Session) -> Result<Attached, String> {
        if self.viewers.len() >= MAX_VIEWERS {
            return Err(format!("{MAX_VIEWERS} viewers are attached already; close one"));
        }
        let has_session = self.session.is_some_and(|id| self.viewers.iter().any(|viewer| viewer.id == id));
        if session == Session::Only && has_session {
            return Err("another client has opened this console".into());
        }
        let has_writer = self.writer.is_some_and(|id| self.viewers.iter().any(|viewer| viewer.id == id));
        if access == ConsoleAccess::Write && has_writer {
            return Err(
                "another client writes to this console; watch with --view or replace it with --take-over".into()
            );
        }
        let id = self.next_id;
        self.next_id += 1;
        if session != Session::None {
            self.end_session();
            self.session = Some(id);
        }
        let (sender, output) = mpsc::channel(VIEWER_BACKLOG);
        let (ends, over) = watch::channel(None);
        self.viewers.push(Viewer { id, output: sender, over: ends });
        let keyboard = (access != ConsoleAccess::View).then(|| {
            self.writer = Some(id);
            self.keyboard.clone()
        });
        Ok(Attached { scrollback: self.ring.iter().copied().collect(), output, keyboard, id, over })
    }

    /// Disconnects the viewer that is the session.
    fn end_session(&mut self) {
        let Some(session) = self.session.take() else { return };
        self.viewers.retain(|viewer| {
            if viewer.id == session {
                viewer.over.send_replace(Some(CONSOLE_REPLACED));
            }
            viewer.id != session
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn attach(to: &mpsc::Sender<Attach>, access: ConsoleAccess) -> Result<Attached, String> {
        attach_as(to, access, Session::None).await
    }

    async fn attach_as(to: &mpsc::Sender<Attach>, access: ConsoleAccess, session: Session) -> Result<Attached, String> {
        let (reply, answer) = oneshot::channel();
        to.send(Attach { access, session, reply }).await.ok();
        answer.await.unwrap()
    }

    fn start() -> (UnixStream, mpsc::Sender<Attach>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let (guest, ours) = UnixStream::pair().unwrap();
        let (sender, receiver) = mpsc::channel(4);
        tokio::spawn(serve(ours, directory.path().join("serial0.log"), receiver));
        (guest, sender, directory)
    }

    #[tokio::test]
    async fn a_late_viewer_sees_what_was_printed_and_what_follows() {
        let (mut guest, console, _directory) = start();
        let mut first = attach(&console, ConsoleAccess::View).await.unwrap();
        guest.write_all(b"boot\n").await.unwrap();
        assert_eq!(first.output.recv().await.unwrap(), b"boot\n");
        let mut second = attach(&console, ConsoleAccess::View).await.unwrap();
        assert_eq!(second.scrollback, b"boot\n");
        guest.write_all(b"login:").await.unwrap();
        assert_eq!(second.output.recv().await.unwrap(), b"login:");
        assert_eq!(first.output.recv().await.unwrap(), b"login:");
    }

    #[tokio::test]
    async fn only_one_viewer_types_until_another_takes_over() {
        let (mut guest, console, _directory) = start();
        let first = attach(&console, ConsoleAccess::Write).await.unwrap();
        assert!(attach(&console, ConsoleAccess::Write).await.is_err());
        let second = attach(&console, ConsoleAccess::TakeOver).await.unwrap();
        let typed = |viewer: &Attached, bytes: &[u8]| Keys { viewer: viewer.id, bytes: bytes.to_vec() };
        first.keyboard.as_ref().unwrap().send(typed(&first, b"lost")).await.ok();
        second.keyboard.as_ref().unwrap().send(typed(&second, b"typed")).await.ok();
        let mut received = [0; 5];
        guest.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"typed");
    }

    #[tokio::test]
    async fn the_next_session_ends_the_one_before_and_no_other_viewer() {
        let (mut guest, console, _directory) = start();
        let mut beside = attach(&console, ConsoleAccess::Write).await.unwrap();
        let mut first = attach_as(&console, ConsoleAccess::TakeOver, Session::Replace).await.unwrap();
        guest.write_all(b"login:").await.unwrap();
        assert_eq!(beside.output.recv().await.unwrap(), b"login:");
        let second = attach_as(&console, ConsoleAccess::TakeOver, Session::Replace).await.unwrap();
        assert_eq!(second.scrollback, b"login:");
        assert_eq!(first.output.recv().await.unwrap(), b"login:", "what came before is still read");
        assert_eq!(first.output.recv().await, None);
        assert_eq!(*first.over.borrow(), Some(CONSOLE_REPLACED));
        let refused = attach_as(&console, ConsoleAccess::TakeOver, Session::Only).await;
        assert!(refused.is_err(), "there is a session");
        let _viewer = attach(&console, ConsoleAccess::View).await.unwrap();
        guest.write_all(b"#").await.unwrap();
        assert_eq!(beside.output.recv().await.unwrap(), b"#");
        assert_eq!((*beside.over.borrow(), *second.over.borrow()), (None, None));
        drop(second);
        assert!(attach_as(&console, ConsoleAccess::TakeOver, Session::Only).await.is_ok(), "there is none any more");
    }

    #[tokio::test]
    async fn the_output_of_a_guest_that_does_not_read_its_input_arrives() {
        let (mut guest, console, _directory) = start();
        let mut viewer = attach(&console, ConsoleAccess::Write).await.unwrap();
        let (keyboard, id) = (viewer.keyboard.clone().unwrap(), viewer.id);
        // Until the socket to the guest and the keyboard's queue are full.
        let typing = async { while keyboard.send(Keys { viewer: id, bytes: vec![b'x'; 4096] }).await.is_ok() {} };
        assert!(tokio::time::timeout(std::time::Duration::from_millis(300), typing).await.is_err());
        guest.write_all(b"booting").await.unwrap();
        let received = tokio::time::timeout(std::time::Duration::from_secs(60), viewer.output.recv()).await;
        assert_eq!(received.unwrap().unwrap(), b"booting");
    }

    #[tokio::test]
    async fn a_writer_that_stops_typing_makes_room_for_the_next() {
        let (_guest, console, _directory) = start();
        let first = attach(&console, ConsoleAccess::Write).await.unwrap();
        first.keyboard.as_ref().unwrap().send(Keys { viewer: first.id, bytes: Vec::new() }).await.ok();
        // Keys and viewers come by different ways.
        while attach(&console, ConsoleAccess::Write).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_viewer_that_does_not_read_is_disconnected() {
        let (mut guest, console, _directory) = start();
        let mut slow = attach(&console, ConsoleAccess::View).await.unwrap();
        let mut fast = attach(&console, ConsoleAccess::View).await.unwrap();
        for _ in 0..VIEWER_BACKLOG * 2 {
            guest.write_all(b"x").await.unwrap();
            fast.output.recv().await.unwrap();
        }
        let mut seen = 0;
        while slow.output.recv().await.is_some() {
            seen += 1;
        }
        assert_eq!(seen, VIEWER_BACKLOG);
        assert_eq!(*slow.over.borrow(), Some(TOO_SLOW));
    }
}
