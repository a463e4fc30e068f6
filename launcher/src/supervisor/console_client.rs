//! A client of the serial console: a viewer beside others, or the session of the subresource API.

use std::io;
use std::time::Duration;

use garboard_protocol::control::{ConsoleAccess, ControlReply, Session};
use garboard_protocol::position::{Begun, Resume};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};

use super::console::{Attach, Attached, Keys};
use super::control::{ControlSenders, answer, denied};
use super::session::{self, Wire};

/// How often a viewer that sends nothing more is looked at.
const GONE_EVERY: Duration = Duration::from_secs(1);
/// Bytes typed at once.
const KEYS_BYTES: usize = 1024;
/// What the kernel holds of a session that its client has not read, bytes; Linux doubles it. A socket takes more when three quarters of
/// that were read: of the usual 208 KiB, a client that reads slowly and all the time would seem to take nothing for long.
const SENT_AHEAD: usize = 8 * 1024;

/// The answer to a viewer that is let in, and how its bytes are written from then on. One that may come again reads with what it
/// begins.
fn begins(session: Session, begun: Option<Begun>) -> (ControlReply, Wire) {
    match (session, begun) {
        (_, Some(begun)) => (ControlReply::Resumed(begun), Wire::Parts),
        (Session::None, None) => (ControlReply::Streaming, Wire::Raw),
        (Session::Replace | Session::Only, None) => (ControlReply::Session, Wire::Parts),
    }
}

/// Serves it until one side has ended.
pub(super) async fn console(
    mut stream: UnixStream,
    senders: &ControlSenders,
    access: ConsoleAccess,
    session: Session,
    resume: Option<Resume>,
) -> io::Result<()> {
    let (reply, attached) = oneshot::channel();
    let comes_again = resume.is_some();
    if senders.console.send(Attach { access, session, resume, reply }).await.is_err() {
        return answer(&mut stream, &denied("this machine has no serial console, or it was closed")).await;
    }
    match attached.await {
        Ok(Ok(attached)) => {
            let (reply, wire) = begins(session, comes_again.then(|| attached.begun.clone()));
            if session != Session::None {
                setsockopt(&stream, sockopt::SndBuf, &SENT_AHEAD)?;
            }
            answer(&mut stream, &reply).await?;
            let late = attached.over.clone();
            tokio::select! {
                ended = relay(stream, attached, wire) => ended,
                // It counts for no limit any more.
                () = session::overdue(late) => Ok(()),
            }
        }
        Ok(Err(reason)) => answer(&mut stream, &denied(reason)).await,
        Err(_) => answer(&mut stream, &denied("the serial console was closed")).await,
    }
}

/// Each direction by itself: who reads slowly can still type, and what the guest prints arrives while it reads nothing.
async fn relay(stream: UnixStream, attached: Attached, wire: Wire) -> io::Result<()> {
    let (from_viewer, mut to_viewer) = stream.into_split();
    let Attached { mut output, keyboard, id, over, .. } = attached;
    let down = async {
        while let Some(bytes) = output.recv().await {
            wire.put(&mut to_viewer, &bytes).await?;
        }
        let reason = *over.borrow();
        wire.end(&mut to_viewer, reason).await
    };
    tokio::select! {
        ended = down => ended,
        ended = listen(from_viewer, keyboard, id, wire) => ended,
    }
}

/// Takes what a viewer types, until the viewer is gone.
async fn listen(
    mut viewer: OwnedReadHalf,
    mut keyboard: Option<mpsc::Sender<Keys>>,
    id: u64,
    wire: Wire,
) -> io::Result<()> {
    let mut typed = vec![0; KEYS_BYTES];
    loop {
        let count = viewer.read(&mut typed).await?;
        // A websocket has no half of a close: the client of a session is gone.
        if count == 0 && wire == Wire::Parts {
            return Ok(());
        }
        if let Some(keys) = &keyboard {
            // Without bytes: input from a pipe ended, and the viewer still reads the output, or it is gone. Either way another client
            // may write now.
            let keys = keys.send(Keys { viewer: id, bytes: typed[..count].to_vec() });
            let is_taken = tokio::select! {
                taken = keys => taken.is_ok(),
                // The guest may read nothing for days.
                () = gone(&viewer), if wire == Wire::Parts => return Ok(()),
            };
            if !is_taken {
                keyboard = None;
            }
        }
        if count == 0 {
            gone(&viewer).await;
            return Ok(());
        }
    }
}

/// Waits until a viewer that sends nothing more, or is not listened to, has closed both its halves. The guest may print nothing for days.
async fn gone(viewer: &OwnedReadHalf) {
    loop {
        tokio::time::sleep(GONE_EVERY).await;
        if viewer.ready(Interest::WRITABLE).await.is_ok_and(|ready| ready.is_write_closed()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use garboard_log::Levels;
    use garboard_protocol::control::{ControlRequest, MOST_VIEWERS};
    use garboard_protocol::paths::Layout;
    use garboard_protocol::session::{Decoder, Part};
    use garboard_protocol::testing::running;
    use garboard_protocol::wire;
    use tokio::io::AsyncWriteExt;
    use tokio::sync::watch;
    use tokio::time::timeout;

    use super::super::control::{client, read_line};
    use super::*;
    use crate::supervisor::attach::{ControlReceivers, open_channels};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A guest that prints nothing, and what its console is opened through.
    struct Quiet {
        guest: UnixStream,
        senders: ControlSenders,
        _receivers: ControlReceivers,
        _room: tempfile::TempDir,
    }

    impl Quiet {
        fn start() -> Self {
            let (room, (guest, ours)) = (tempfile::tempdir().unwrap(), UnixStream::pair().unwrap());
            let (console, attaching) = mpsc::channel(4);
            tokio::spawn(super::super::console::serve(ours, room.path().join("serial0.log"), attaching));
            let (requests, status) = (mpsc::channel(1).0, watch::channel(running(1)).1);
            let layout = Layout::new("/nowhere");
            let (senders, receivers) = open_channels(requests, status, Levels::fixed(), &layout);
            Self { guest, senders: ControlSenders { console, ..senders }, _receivers: receivers, _room: room }
        }

        /// The first line of the answer, and the connection.
        async fn open(&self, access: ConsoleAccess, session: Session) -> (ControlReply, UnixStream) {
            let (mut viewer, stream) = UnixStream::pair().unwrap();
            tokio::spawn(client(stream, self.senders.clone()));
            viewer.write_all(&Self::line(access, session, None)).await.unwrap();
            (Self::reply(&mut viewer).await, viewer)
        }

        fn line(access: ConsoleAccess, session: Session, resume: Option<Resume>) -> Vec<u8> {
            wire::encode(&ControlRequest::Console { access, session, resume }).unwrap()
        }

        async fn reply(viewer: &mut UnixStream) -> ControlReply {
            let line = timeout(PATIENCE, read_line(viewer)).await.unwrap().unwrap();
            wire::decode(&line).unwrap()
        }

        /// One that is let in before the guest prints anything.
        async fn until_opened(&self, access: ConsoleAccess, session: Session) {
            let opening = async {
                while let (ControlReply::Denied { .. }, _) = self.open(access, session).await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, opening).await.expect("it is let in");
        }
    }

    #[tokio::test]
    async fn a_session_that_was_given_up_is_none_though_the_guest_prints_nothing() {
        let machine = Quiet::start();
        let (reply, first) = machine.open(ConsoleAccess::TakeOver, Session::Only).await;
        assert_eq!(reply, ControlReply::Session);
        let (refused, _) = machine.open(ConsoleAccess::TakeOver, Session::Only).await;
        assert!(matches!(refused, ControlReply::Denied { .. }), "{refused:?}");
        drop(first);
        machine.until_opened(ConsoleAccess::TakeOver, Session::Only).await;
    }

    #[tokio::test]
    async fn a_viewer_that_may_come_again_reads_its_place_and_then_parts() {
        let mut machine = Quiet::start();
        let (mut viewer, stream) = UnixStream::pair().unwrap();
        tokio::spawn(client(stream, machine.senders.clone()));
        viewer.write_all(&Quiet::line(ConsoleAccess::View, Session::None, Some(Resume::New))).await.unwrap();
        let reply = Quiet::reply(&mut viewer).await;
        let ControlReply::Resumed(begun) = reply else { panic!("{reply:?}") };
        assert_eq!((begun.position.offset, begun.resumed, begun.missed), (0, false, 0));
        machine.guest.write_all(b"login:").await.unwrap();
        let mut part = [0; 8];
        timeout(PATIENCE, viewer.read_exact(&mut part)).await.unwrap().unwrap();
        assert_eq!(&part, b"\0\x06login:");
    }

    #[tokio::test]
    async fn a_session_reads_that_the_machine_has_ended() {
        let mut machine = Quiet::start();
        let (_, mut session) = machine.open(ConsoleAccess::TakeOver, Session::Replace).await;
        machine.guest.write_all(b"bye").await.unwrap();
        machine.guest.shutdown().await.unwrap();
        let mut received = Vec::new();
        timeout(PATIENCE, session.read_to_end(&mut received)).await.unwrap().unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&received);
        assert_eq!(decoder.next_part().unwrap(), Some(Part::Bytes(b"bye".to_vec())));
        let end = decoder.next_part().unwrap();
        assert!(matches!(&end, Some(Part::End(end)) if end.machine_ended), "{end:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn viewers_that_left_take_no_places_of_a_guest_that_prints_nothing() {
        let machine = Quiet::start();
        let mut viewers = Vec::new();
        while let (ControlReply::Streaming, viewer) = machine.open(ConsoleAccess::View, Session::None).await {
            viewers.push(viewer);
        }
        // The agent has 32 places for a machine, and they leave some to requests.
        assert_eq!(viewers.len(), MOST_VIEWERS);
        let (reply, session) = machine.open(ConsoleAccess::TakeOver, Session::Replace).await;
        assert_eq!(reply, ControlReply::Session, "those who look on keep no session out");
        drop(session);
        viewers.pop();
        machine.until_opened(ConsoleAccess::View, Session::None).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_whose_input_ended_goes_on_reading() {
        let mut machine = Quiet::start();
        let (_, mut viewer) = machine.open(ConsoleAccess::Write, Session::None).await;
        viewer.shutdown().await.unwrap();
        tokio::time::sleep(GONE_EVERY * 5).await;
        machine.guest.write_all(b"login:").await.unwrap();
        let mut printed = [0; 6];
        timeout(PATIENCE, viewer.read_exact(&mut printed)).await.unwrap().unwrap();
        assert_eq!(&printed, b"login:");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_guest_prints_arrives_although_it_does_not_read_what_is_typed() {
        let mut machine = Quiet::start();
        let (_, mut viewer) = machine.open(ConsoleAccess::Write, Session::None).await;
        let typing = async { while viewer.write_all(&[b'x'; 4096]).await.is_ok() {} };
        assert!(timeout(Duration::from_secs(1), typing).await.is_err(), "something reads it");
        machine.guest.write_all(b"booting").await.unwrap();
        let mut printed = [0; 7];
        timeout(PATIENCE, viewer.read_exact(&mut printed)).await.unwrap().unwrap();
        assert_eq!(&printed, b"booting");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_types_to_a_guest_that_does_not_read_ends_with_its_client() {
        let machine = Quiet::start();
        let (_, mut first) = machine.open(ConsoleAccess::TakeOver, Session::Only).await;
        let typing = async { while first.write_all(&[b'x'; 4096]).await.is_ok() {} };
        assert!(timeout(Duration::from_secs(1), typing).await.is_err(), "something reads it");
        drop(first);
        machine.until_opened(ConsoleAccess::TakeOver, Session::Only).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_typed_arrives_although_the_viewer_does_not_read() {
        let mut machine = Quiet::start();
        let (_, mut viewer) = machine.open(ConsoleAccess::TakeOver, Session::Replace).await;
        let printing = async { while machine.guest.write_all(&[b'x'; 4096]).await.is_ok() {} };
        assert!(timeout(Duration::from_secs(1), printing).await.is_err(), "it is not held back");
        viewer.write_all(b"\x03").await.unwrap();
        assert_eq!(timeout(PATIENCE, machine.guest.read_u8()).await.unwrap().unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_that_reads_nothing_is_closed_when_it_is_too_far_behind() {
        let mut machine = Quiet::start();
        let (reply, mut stuck) = machine.open(ConsoleAccess::View, Session::None).await;
        assert_eq!(reply, ControlReply::Streaming);
        machine.guest.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
        stuck.write_all(b"x").await.expect("it is open");
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(stuck.write_all(b"x").await.is_err(), "it is kept for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_reads_slowly_all_the_time_goes_on() {
        let mut machine = Quiet::start();
        let (_, mut slow) = machine.open(ConsoleAccess::TakeOver, Session::Replace).await;
        let printing = async { while machine.guest.write_all(&[b'x'; 4096]).await.is_ok() {} };
        let reading = async {
            // Ten times longer than one is waited for that takes nothing.
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                slow.read_exact(&mut [0; 4096]).await.unwrap();
            }
        };
        tokio::select! {
            () = printing => panic!("the guest is not held back"),
            () = reading => {}
        }
        let (refused, _) = machine.open(ConsoleAccess::TakeOver, Session::Only).await;
        assert!(matches!(refused, ControlReply::Denied { .. }), "it is no session any more: {refused:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_reads_late_reads_why_it_ended() {
        let mut machine = Quiet::start();
        let (_, mut late) = machine.open(ConsoleAccess::TakeOver, Session::Replace).await;
        let printing = async { while machine.guest.write_all(&[b'x'; 4096]).await.is_ok() {} };
        assert!(timeout(Duration::from_secs(1), printing).await.is_err(), "it is not held back");
        let (reply, _next) = machine.open(ConsoleAccess::TakeOver, Session::Replace).await;
        assert_eq!(reply, ControlReply::Session);
        // Everything on the way is full when the next session begins.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut received = Vec::new();
        timeout(PATIENCE, late.read_to_end(&mut received)).await.unwrap().unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&received);
        let end = loop {
            match decoder.next_part() {
                Ok(Some(Part::Bytes(_))) => {}
                Ok(Some(Part::End(end))) => break end,
                other => panic!("no end: {other:?}"),
            }
        };
        assert_eq!(end.reason, super::super::session::CONSOLE_REPLACED);
    }
}
