//! Sessions: the console and the screen as the subresource API has them, one of each at a time. The next one ends the one before,
//! which gets the reason ([`garboard_protocol::session`]). Viewers that are no session are beside them, and nothing ends those.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use garboard_protocol::control::Session;
use garboard_protocol::session;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

/// What the client of a session reads that was replaced.
pub(super) const CONSOLE_REPLACED: &str = "another client has opened this console";
const SCREEN_REPLACED: &str = "another client has opened this screen";
/// How long the client of a session that is over may take to read what is on its way, and then why.
const GOODBYE: Duration = Duration::from_secs(10);
/// Bytes of a screen that are read at once.
const SCREEN_BYTES: usize = 16 * 1024;

/// Why a session is over; nothing while it goes on.
pub(crate) type Reason = Option<&'static str>;

/// The session of the screen. It goes on for as long as its receiver is there.
#[derive(Clone, Default)]
pub(crate) struct ScreenSession(Arc<Mutex<Option<watch::Sender<Reason>>>>);

impl ScreenSession {
    /// Begins one, and ends the one before; nothing if it may only be the only one, and is not.
    pub(super) fn begin(&self, session: Session) -> Option<watch::Receiver<Reason>> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current.as_ref().filter(|before| !before.is_closed());
        if session == Session::Only && before.is_some() {
            return None;
        }
        if let Some(before) = before {
            before.send_replace(Some(SCREEN_REPLACED));
        }
        let (sender, receiver) = watch::channel(None);
        *current = Some(sender);
        Some(receiver)
    }
}

/// How bytes are written to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// As they are.
    Raw,
    /// In the parts of a session.
    Parts,
}

impl Wire {
    /// Writes bytes.
    pub(super) async fn put(self, to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Raw => to.write_all(bytes).await,
            Self::Parts => {
                let mut parts = Vec::with_capacity(bytes.len() + 8);
                session::encode(bytes, &mut parts);
                to.write_all(&parts).await
            }
        }
    }

    /// Writes why it is over, where there is a place for it. Without a reason it is the machine that has ended.
    pub(super) async fn end(self, to: &mut (impl AsyncWrite + Unpin), reason: Reason) -> io::Result<()> {
        let mut end = Vec::new();
        match (self, reason) {
            (Self::Raw, _) => return Ok(()),
            (Self::Parts, Some(reason)) => session::encode_end(reason, &mut end)?,
            (Self::Parts, None) => session::encode_end_of_machine(&mut end)?,
        }
        to.write_all(&end).await
    }
}

/// Ends some time after a session, or another viewer, is over: its client may read nothing any more. Never, while it goes on.
pub(super) async fn overdue(mut over: watch::Receiver<Reason>) {
    replaced(&mut over).await;
    tokio::time::sleep(GOODBYE).await;
}

/// Waits until a session is over for a reason.
async fn replaced(over: &mut watch::Receiver<Reason>) -> Reason {
    match over.wait_for(Option::is_some).await.map(|reason| *reason) {
        Ok(reason) => reason,
        // Nothing can end it any more for a reason.
        Err(_) => std::future::pending().await,
    }
}

/// Relays between the client of a session and QEMU's end of its screen.
pub(super) async fn relay_screen(
    client: UnixStream,
    qemu: UnixStream,
    over: watch::Receiver<Reason>,
) -> io::Result<()> {
    let (from_client, mut to_client) = client.into_split();
    let (mut from_qemu, to_qemu) = qemu.into_split();
    let late = over.clone();
    let down = async move {
        let (mut bytes, mut over) = (vec![0; SCREEN_BYTES], over);
        loop {
            tokio::select! {
                // A screen always has more to draw.
                biased;
                reason = replaced(&mut over) => return Wire::Parts.end(&mut to_client, reason).await,
                read = from_qemu.read(&mut bytes) => match read {
                    Ok(0) | Err(_) => return Wire::Parts.end(&mut to_client, None).await,
                    Ok(count) => Wire::Parts.put(&mut to_client, &bytes[..count]).await?,
                },
            }
        }
    };
    tokio::select! {
        ended = down => ended,
        ended = to_screen(from_client, to_qemu) => ended,
        () = overdue(late) => Ok(()),
    }
}

/// Copies what a client sends, until it leaves.
async fn to_screen(mut client: OwnedReadHalf, mut qemu: OwnedWriteHalf) -> io::Result<()> {
    let mut bytes = vec![0; SCREEN_BYTES];
    loop {
        let count = client.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        if qemu.write_all(&bytes[..count]).await.is_err() {
            // QEMU has ended. The client reads that after what came before.
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::session::{Decoder, Part};

    use super::*;

    /// No test waits longer for something that has to come.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Everything until the stream ends.
    async fn parts(stream: &mut UnixStream) -> Vec<Part> {
        let mut received = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut received)).await.unwrap().unwrap();
        let (mut decoder, mut parts) = (Decoder::default(), Vec::new());
        decoder.push(&received);
        while let Ok(Some(part)) = decoder.next_part() {
            let is_end = matches!(part, Part::End(_));
            parts.push(part);
            if is_end {
                break;
            }
        }
        parts
    }

    #[test]
    fn the_next_session_replaces_and_one_that_must_be_alone_is_refused() {
        let screen = ScreenSession::default();
        let first = screen.begin(Session::Only).unwrap();
        assert!(screen.begin(Session::Only).is_none());
        assert_eq!(*first.borrow(), None);
        let second = screen.begin(Session::Replace).unwrap();
        assert_eq!(*first.borrow(), Some(SCREEN_REPLACED));
        drop(first);
        assert!(screen.begin(Session::Only).is_none(), "the second one is there");
        drop(second);
        assert!(screen.begin(Session::Only).is_some(), "a session that ended by itself is none");
    }

    #[tokio::test]
    async fn a_screen_is_relayed_until_the_next_session_begins() {
        let screen = ScreenSession::default();
        let over = screen.begin(Session::Replace).unwrap();
        let (mut client, ours) = UnixStream::pair().unwrap();
        let (mut qemu, theirs) = UnixStream::pair().unwrap();
        let relay = tokio::spawn(relay_screen(ours, theirs, over));
        qemu.write_all(b"RFB 003.008\n").await.unwrap();
        client.write_all(b"key").await.unwrap();
        let mut pressed = [0; 3];
        tokio::time::timeout(PATIENCE, qemu.read_exact(&mut pressed)).await.unwrap().unwrap();
        assert_eq!(&pressed, b"key");
        // What QEMU has sent is there before the session is over.
        let mut first = [0; 14];
        tokio::time::timeout(PATIENCE, client.read_exact(&mut first)).await.unwrap().unwrap();
        assert_eq!(&first[2..], b"RFB 003.008\n");
        let _next = screen.begin(Session::Replace).unwrap();
        let rest = parts(&mut client).await;
        let [Part::End(end)] = rest.as_slice() else { panic!("no end: {rest:?}") };
        assert_eq!(end.reason, SCREEN_REPLACED);
        relay.await.unwrap().unwrap();
        assert_eq!(qemu.read(&mut pressed).await.unwrap(), 0, "QEMU sees its client leave");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_does_not_keep_a_session_that_is_over() {
        let screen = ScreenSession::default();
        let over = screen.begin(Session::Replace).unwrap();
        let (_silent, ours) = UnixStream::pair().unwrap();
        let (mut qemu, theirs) = UnixStream::pair().unwrap();
        let relay = tokio::spawn(relay_screen(ours, theirs, over));
        let flood = async { while qemu.write_all(&[0; 4096]).await.is_ok() {} };
        assert!(tokio::time::timeout(Duration::from_millis(300), flood).await.is_err(), "the client reads nothing");
        let _next = screen.begin(Session::Replace).unwrap();
        tokio::time::timeout(PATIENCE, relay).await.expect("it ends").unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_late_and_goes_on_typing_reads_that_the_machine_has_ended() {
        let screen = ScreenSession::default();
        let over = screen.begin(Session::Replace).unwrap();
        let (mut client, ours) = UnixStream::pair().unwrap();
        let (mut qemu, theirs) = UnixStream::pair().unwrap();
        let relay = tokio::spawn(relay_screen(ours, theirs, over));
        let flood = async { while qemu.write_all(&[0; 4096]).await.is_ok() {} };
        assert!(tokio::time::timeout(Duration::from_secs(1), flood).await.is_err(), "the client reads nothing");
        drop(qemu);
        client.write_all(b"key").await.unwrap();
        // The relay has taken it, and QEMU does not.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let all = parts(&mut client).await;
        assert!(matches!(all.last(), Some(Part::End(end)) if end.machine_ended), "no end after {} parts", all.len());
        relay.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_end_of_the_machine_is_sent_and_is_no_reason() {
        let screen = ScreenSession::default();
        let over = screen.begin(Session::Replace).unwrap();
        let (mut client, ours) = UnixStream::pair().unwrap();
        let (mut qemu, theirs) = UnixStream::pair().unwrap();
        let relay = tokio::spawn(relay_screen(ours, theirs, over));
        qemu.write_all(b"bye").await.unwrap();
        drop(qemu);
        let all = parts(&mut client).await;
        let [Part::Bytes(bytes), Part::End(end)] = all.as_slice() else { panic!("no end: {all:?}") };
        assert_eq!((bytes.as_slice(), end.machine_ended), (&b"bye"[..], true));
        relay.await.unwrap().unwrap();
    }
}
