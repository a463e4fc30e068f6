//! The serial console: many viewers, one writer, scroll-back.
//!
//! One task holds the connection to QEMU's serial port and a ring of the last bytes. A viewer gets the end of the ring
//! and from then on every byte, in order, without loss or repetition; one that cannot keep up is disconnected, with a reason if
//! it reads parts ([`garboard_protocol::session`]), because a slow terminal must not slow the guest down. One of the viewers may be
//! the session of the subresource API ([`super::session`]): the next session disconnects it. A session begins with what no session
//! has read yet: programs made for KubeVirt, which shows nothing of before, take an old prompt for a new one. A session that reads
//! slowly does hold the guest back, as in KubeVirt, unless it takes nothing for a while. Who comes again and names the place where
//! it was ([`garboard_protocol::position`]) gets what follows it: what the ring has not any more from files of the supervisor's own
//! ([`super::history`]).

use std::collections::VecDeque;
use std::path::PathBuf;

use garboard_protocol::control::{ConsoleAccess, MOST_VIEWERS, Session};
use garboard_protocol::position::{Begun, Position, Resume};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};

use super::backlog::{Feed, Hold, Output, Room, backlog};
use super::history::History;
use super::serial_log::SerialLog;
use super::session::{CONSOLE_REPLACED, Reason};

/// Bytes that are kept in memory, for those who come again.
const RING_BYTES: usize = 128 * 1024;
/// Who comes again gets of what only the files have so much that no more than this waits for all viewers together, bytes: it waits in memory, too.
const MOST_WAITING: usize = 2 * 1024 * 1024;
/// The most bytes of scroll-back of anyone else.
const SCROLLBACK_BYTES: u64 = 32 * 1024;
/// Keystrokes waiting for the guest, in chunks.
const KEYBOARD_BACKLOG: usize = 64;
const CHUNK_BYTES: usize = 4096;
/// The reason that a session gets that cannot keep up.
const TOO_SLOW: &str = "the guest prints faster than this client reads";

/// A new viewer.
pub(crate) struct Attach {
    /// What it may do.
    pub(crate) access: ConsoleAccess,
    /// Whether it is the session.
    pub(crate) session: Session,
    /// With what it begins; nothing: a session with what no session has read, any other viewer as [`Resume::New`].
    pub(crate) resume: Option<Resume>,
    /// Where it is answered: a pair of channels or the reason why not.
    pub(crate) reply: oneshot::Sender<Result<Attached, String>>,
}

/// A viewer that is in.
pub(crate) struct Attached {
    /// What `output` begins with.
    pub(crate) begun: Begun,
    /// What was printed before, and what is printed from now on; over when the machine ends, or the viewer for a reason.
    pub(crate) output: Output,
    /// Where keystrokes go, if it may type.
    pub(crate) keyboard: Option<mpsc::Sender<Keys>>,
    /// Its number, for [`Keys`].
    pub(crate) id: u64,
    /// Why `output` is over, if not by the end of the machine.
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
    feed: Feed,
    over: watch::Sender<Reason>,
}

impl Viewer {
    fn end(&self, reason: &'static str) {
        self.over.send_replace(Some(reason));
        self.feed.cut_short();
    }
}

/// The task's state.
struct Console {
    ring: VecDeque<u8>,
    /// Of this task, and of no other one.
    epoch: String,
    /// The position behind the last byte of the ring.
    printed: u64,
    viewers: Vec<Viewer>,
    writer: Option<u64>,
    session: Option<u64>,
    /// The position behind the last byte that a session has read. It never goes back: who draws the screen anew begins before it.
    read: u64,
    next_id: u64,
    keyboard: mpsc::Sender<Keys>,
    log: SerialLog,
    /// What the ring has and had.
    history: History,
}

/// Serves viewers until QEMU closes the serial port. `log` is the file QEMU appends to.
pub(crate) async fn serve(serial: UnixStream, log: PathBuf, mut attaching: mpsc::Receiver<Attach>) {
    let (keyboard, mut keys) = mpsc::channel(KEYBOARD_BACKLOG);
    let mut console = Console::new(log, keyboard);
    let (mut from_guest, mut to_guest): (OwnedReadHalf, OwnedWriteHalf) = serial.into_split();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut typed = Vec::new();
    loop {
        let hold = console.hold();
        tokio::select! {
            read = from_guest.read(&mut chunk), if hold.is_none() => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => console.publish(&chunk[..count]),
            },
            came = room(hold.as_ref()), if hold.is_some() => if came == Room::Stuck {
                console.end_session(TOO_SLOW);
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

/// Waits until a session makes room.
async fn room(hold: Option<&Hold>) -> Room {
    match hold {
        Some(hold) => hold.room().await,
        None => Room::Made,
    }
}

impl Console {
    fn new(log: PathBuf, keyboard: mpsc::Sender<Keys>) -> Self {
        let mut history = History::new(log.with_extension("history"));
        let log = SerialLog::new(log);
        let tail = log.tail(RING_BYTES);
        history.append(&tail);
        let ring: VecDeque<u8> = tail.into();
        Self {
            epoch: uuid::Uuid::new_v4().simple().to_string(),
            printed: ring.len() as u64,
            ring,
            viewers: Vec::new(),
            writer: None,
            session: None,
            read: 0,
            next_id: 1,
            keyboard,
            log,
            history,
        }
    }

    /// Notes how far the session has read. Before more is printed, and before the session is forgotten.
    fn note_read(&mut self) {
        if let Some(session) = self.viewers.iter().find(|viewer| Some(viewer.id) == self.session) {
            self.read = self.read.max(self.printed.saturating_sub(session.feed.waiting() as u64));
        }
    }

    fn publish(&mut self, bytes: &[u8]) {
        self.note_read();
        let excess = (self.ring.len() + bytes.len()).saturating_sub(RING_BYTES);
        self.ring.drain(..excess.min(self.ring.len()));
        self.ring.extend(bytes);
        self.printed += bytes.len() as u64;
        self.viewers.retain(|viewer| {
            let keeps_up = viewer.feed.put(bytes);
            if !keeps_up {
                viewer.end(TOO_SLOW);
            }
            keeps_up && !viewer.feed.is_left()
        });
        self.log.note_appended(bytes.len());
        self.history.append(bytes);
    }

    /// A viewer will not type any more.
    fn release(&mut self, viewer: u64) {
        self.writer = self.writer.filter(|writer| *writer != viewer);
    }

    fn attach(&mut self, attach: Attach) {
        self.note_read();
        self.viewers.retain(|viewer| !viewer.feed.is_left());
        let answer = self.admit(attach.access, attach.session, attach.resume.as_ref());
        let _ = attach.reply.send(answer);
    }

    fn admit(&mut self, access: ConsoleAccess, session: Session, resume: Option<&Resume>) -> Result<Attached, String> {
        // There is one session, which those who look on may not keep out, and which takes no place of theirs.
        let looking = self.viewers.iter().filter(|viewer| Some(viewer.id) != self.session).count();
        if session == Session::None && looking >= MOST_VIEWERS {
            return Err(format!("{MOST_VIEWERS} viewers are attached already; close one"));
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
            self.end_session(CONSOLE_REPLACED);
            self.session = Some(id);
        }
        let (begun, scrollback) = self.begin(resume, session);
        let (feed, output) = backlog(scrollback);
        let (ends, over) = watch::channel(None);
        self.viewers.push(Viewer { id, feed, over: ends });
        let keyboard = (access != ConsoleAccess::View).then(|| {
            self.writer = Some(id);
            self.keyboard.clone()
        });
        Ok(Attached { begun, output, keyboard, id, over })
    }

    /// With what a viewer begins: where, and the bytes from there on.
    fn begin(&self, resume: Option<&Resume>, session: Session) -> (Begun, Vec<u8>) {
        let oldest = self.printed - self.ring.len() as u64;
        let scrollback_begins = oldest.max(self.printed.saturating_sub(SCROLLBACK_BYTES));
        let mut scrollback = Vec::new();
        let (offset, resumed, missed) = match resume {
            Some(Resume::After(place)) if place.epoch == self.epoch && place.offset <= self.printed => {
                scrollback = self.older(place.offset);
                let offset = place.offset.max(oldest - scrollback.len() as u64);
                (offset, true, offset - place.offset)
            }
            // Of a supervisor before this one.
            Some(Resume::After(_)) => (oldest, false, 0),
            None if session != Session::None => (scrollback_begins.max(self.read), false, 0),
            Some(Resume::New) | None => (scrollback_begins, false, 0),
        };
        let skipped = usize::try_from(offset.saturating_sub(oldest)).unwrap_or(usize::MAX);
        scrollback.extend(self.ring.iter().skip(skipped));
        let position = Position { epoch: self.epoch.clone(), offset };
        (Begun { position, resumed, missed }, scrollback)
    }

    /// What was printed from `from` on until the ring begins, as far back as the files have it and there is room for it.
    fn older(&self, from: u64) -> Vec<u8> {
        let waiting: usize = self.viewers.iter().map(|viewer| viewer.feed.waiting()).sum();
        let room = MOST_WAITING.saturating_sub(waiting);
        let oldest = self.printed - self.ring.len() as u64;
        let from = from.max(oldest.saturating_sub(room as u64));
        self.history.read(from, oldest)
    }

    /// The session, if it holds the guest back.
    fn hold(&self) -> Option<Hold> {
        let session = self.session?;
        self.viewers.iter().find(|viewer| viewer.id == session)?.feed.hold()
    }

    /// Disconnects the viewer that is the session.
    fn end_session(&mut self, reason: &'static str) {
        let Some(session) = self.session.take() else { return };
        self.viewers.retain(|viewer| {
            if viewer.id == session {
                viewer.end(reason);
            }
            viewer.id != session
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    async fn attach(to: &mpsc::Sender<Attach>, access: ConsoleAccess) -> Result<Attached, String> {
        attach_as(to, access, Session::None).await
    }

    async fn attach_as(to: &mpsc::Sender<Attach>, access: ConsoleAccess, session: Session) -> Result<Attached, String> {
        let (reply, answer) = oneshot::channel();
        to.send(Attach { access, session, resume: None, reply }).await.ok();
        answer.await.unwrap()
    }

    /// A viewer that comes again, and all that was printed since that is known.
    async fn come_again(to: &mpsc::Sender<Attach>, place: &Position) -> (Begun, Vec<u8>) {
        let (reply, answer) = oneshot::channel();
        let resume = Some(Resume::After(place.clone()));
        to.send(Attach { access: ConsoleAccess::View, session: Session::None, resume, reply }).await.ok();
        let Attached { begun, mut output, .. } = answer.await.unwrap().unwrap();
        let mut bytes = Vec::new();
        while let Ok(Some(piece)) = tokio::time::timeout(std::time::Duration::from_millis(50), output.recv()).await {
            bytes.extend(piece);
        }
        (begun, bytes)
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
        assert_eq!(second.output.recv().await.unwrap(), b"boot\n");
        guest.write_all(b"login:").await.unwrap();
        assert_eq!(second.output.recv().await.unwrap(), b"login:");
        assert_eq!(first.output.recv().await.unwrap(), b"login:");
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_again_gets_what_follows_and_how_much_is_not_known_any_more() {
        let (mut guest, console, directory) = start();
        let mut beside = attach(&console, ConsoleAccess::View).await.unwrap();
        let epoch = beside.begun.position.epoch.clone();
        let at = |offset| Position { epoch: epoch.clone(), offset };
        let begun = |offset, resumed, missed| Begun { position: at(offset), resumed, missed };
        assert_eq!(beside.begun, begun(0, false, 0));
        guest.write_all(b"boot\nlogin: ").await.unwrap();
        beside.output.recv().await.unwrap();
        assert_eq!(come_again(&console, &at(5)).await, (begun(5, true, 0), b"login: ".to_vec()));
        assert_eq!(come_again(&console, &at(12)).await, (begun(12, true, 0), Vec::new()));
        // Of the supervisor before, or of one that never was: all that is known.
        let everything = (begun(0, false, 0), b"boot\nlogin: ".to_vec());
        assert_eq!(come_again(&console, &at(13)).await, everything);
        assert_eq!(come_again(&console, &Position { epoch: "before".to_owned(), offset: 5 }).await, everything);
        let mut read = 12;
        for _ in 0..RING_BYTES / 4096 {
            guest.write_all(&[b'x'; 4096]).await.unwrap();
        }
        while read < 12 + RING_BYTES {
            read += beside.output.recv().await.unwrap().len();
        }
        let (resumed, bytes) = come_again(&console, &at(5)).await;
        assert_eq!((resumed, bytes.len()), (begun(5, true, 0), RING_BYTES + 7), "from a file");
        std::fs::remove_file(directory.path().join("serial0.history")).unwrap();
        let (resumed, bytes) = come_again(&console, &at(5)).await;
        assert_eq!((resumed, bytes.len()), (begun(12, true, 7), RING_BYTES));
        let new = attach(&console, ConsoleAccess::View).await.unwrap();
        assert_eq!(new.begun.position.offset, 12 + RING_BYTES as u64 - SCROLLBACK_BYTES);
    }

    /// A guest that prints as QEMU has it: to the console, then to the log. Each line is another one.
    struct Printing {
        guest: UnixStream,
        log: std::fs::File,
        beside: Attached,
        printed: Vec<u8>,
    }

    impl Printing {
        async fn lines(&mut self, bytes: usize) {
            let (begun, mut read) = (self.printed.len(), 0);
            while self.printed.len() < begun + bytes {
                let line = format!("line {:08} of a guest that prints a lot{}\n", self.printed.len(), "-".repeat(1000));
                self.guest.write_all(line.as_bytes()).await.unwrap();
                // As QEMU does while its socket is full.
                self.log.write_all(&line.as_bytes()[..1]).unwrap();
                self.log.write_all(line.as_bytes()).unwrap();
                self.printed.extend(line.as_bytes());
                while read < self.printed.len() - begun {
                    read += self.beside.output.recv().await.unwrap().len();
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_ring_has_not_any_more_comes_from_the_files_also_where_qemu_writes_a_byte_twice() {
        let (guest, console, directory) = start();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(directory.path().join("serial0.log"));
        let beside = attach(&console, ConsoleAccess::View).await.unwrap();
        let epoch = beside.begun.position.epoch.clone();
        let mut printing = Printing { guest, log: log.unwrap(), beside, printed: Vec::new() };
        let at = |offset| Position { epoch: epoch.clone(), offset };
        for (bytes, from) in [(600_000, 7), (800_000, 7), (10_000, 900_000)] {
            printing.lines(bytes).await;
            let (begun, seen) = come_again(&console, &at(from)).await;
            assert_eq!(begun, Begun { position: at(from), resumed: true, missed: 0 });
            assert!(
                seen == printing.printed[usize::try_from(from).unwrap()..],
                "after {} bytes",
                printing.printed.len()
            );
        }
        assert!(directory.path().join("serial0.log.1").exists(), "it was not cut");
        printing.lines(2_000_000).await;
        let (begun, seen) = come_again(&console, &at(7)).await;
        assert!(printing.printed.ends_with(&seen) && seen.len() > 1 << 20, "{}", seen.len());
        assert_eq!(begun.missed + 7 + seen.len() as u64, printing.printed.len() as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_take_nothing_do_not_fill_the_memory_of_the_supervisor() {
        let (guest, console, directory) = start();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(directory.path().join("serial0.log"));
        let beside = attach(&console, ConsoleAccess::View).await.unwrap();
        let place = Position { epoch: beside.begun.position.epoch.clone(), offset: 7 };
        let mut printing = Printing { guest, log: log.unwrap(), beside, printed: Vec::new() };
        printing.lines(900_000).await;
        let mut stuck = Vec::new();
        for _ in 0..MOST_VIEWERS - 2 {
            let (reply, answer) = oneshot::channel();
            let resume = Some(Resume::After(place.clone()));
            let (access, session) = (ConsoleAccess::View, Session::None);
            console.send(Attach { access, session, resume, reply }).await.ok();
            stuck.push(answer.await.unwrap().unwrap());
        }
        let whole: Vec<bool> = stuck.iter().map(|each| each.begun.missed == 0).collect();
        assert_eq!(whole, [true, true, false, false, false, false]);
        let has = |each: &Attached| printing.printed.len() as u64 - each.begun.position.offset;
        let beyond: u64 = stuck.iter().map(|each| has(each).saturating_sub(RING_BYTES as u64)).sum();
        assert!(beyond > (MOST_WAITING - 4 * RING_BYTES) as u64 && beyond <= MOST_WAITING as u64, "{beyond}");
        drop(stuck);
        let (begun, _) = come_again(&console, &place).await;
        assert_eq!(begun.missed, 0, "they have left");
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
        let mut second = attach_as(&console, ConsoleAccess::TakeOver, Session::Replace).await.unwrap();
        assert_eq!(second.output.recv().await.unwrap(), b"login:");
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
    async fn a_session_begins_with_what_no_session_has_read_and_a_viewer_with_all() {
        let (mut guest, console, _directory) = start();
        let mut beside = attach(&console, ConsoleAccess::View).await.unwrap();
        let mut prints = async |text: &[u8]| {
            guest.write_all(text).await.unwrap();
            assert_eq!(beside.output.recv().await.unwrap(), text);
        };
        prints(b"login: ").await;
        let mut first = attach_as(&console, ConsoleAccess::TakeOver, Session::Replace).await.unwrap();
        assert_eq!(first.output.recv().await.unwrap(), b"login: ", "there was no session");
        prints(b"$ ").await;
        assert_eq!(first.output.recv().await.unwrap(), b"$ ");
        drop(first);
        prints(b"rebooting\n").await;
        prints(b"login: ").await;
        let mut second = attach_as(&console, ConsoleAccess::TakeOver, Session::Replace).await.unwrap();
        assert_eq!(second.begun.position.offset, 9);
        assert_eq!(second.output.recv().await.unwrap(), b"rebooting\nlogin: ", "the prompt before was read");
        drop(second);
        let third = attach_as(&console, ConsoleAccess::TakeOver, Session::Only).await.unwrap();
        assert_eq!(third.begun.position.offset, 26, "all of it was read");
        let viewer = attach(&console, ConsoleAccess::View).await.unwrap();
        assert_eq!(viewer.begun.position.offset, 0);
        // A session that counts bytes itself draws its screen anew.
        let (reply, answer) = oneshot::channel();
        let (access, session, resume) = (ConsoleAccess::TakeOver, Session::Replace, Some(Resume::New));
        console.send(Attach { access, session, resume, reply }).await.ok();
        let anew = answer.await.unwrap().unwrap();
        assert_eq!(anew.begun.position.offset, 0);
        drop(anew);
        let last = attach_as(&console, ConsoleAccess::TakeOver, Session::Replace).await.unwrap();
        assert_eq!(last.begun.position.offset, 26, "what was read stays so, although the one before took nothing");
    }

    #[tokio::test(start_paused = true)]
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
        // A letter at a time is little, however often it comes.
        for _ in 0..1000 {
            guest.write_all(b"x").await.unwrap();
            fast.output.recv().await.unwrap();
        }
        assert_eq!(*slow.over.borrow(), None);
        while slow.over.borrow().is_none() {
            guest.write_all(&[b'x'; 4096]).await.unwrap();
            fast.output.recv().await.unwrap();
        }
        assert_eq!(*slow.over.borrow(), Some(TOO_SLOW));
        assert_eq!(slow.output.recv().await, None, "the reason comes before what it did not read");
        assert_eq!(*fast.over.borrow(), None);
    }

    /// A guest that prints until its serial port takes no more, and how much it has printed.
    async fn fills(guest: &mut UnixStream) -> usize {
        let mut printed = 0;
        let printing = async {
            while let Ok(count) = guest.write(&[b'x'; 4096]).await {
                printed += count;
            }
        };
        assert!(tokio::time::timeout(std::time::Duration::from_secs(1), printing).await.is_err(), "it never waits");
        printed
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_reads_slowly_holds_its_guest_back_and_loses_nothing() {
        let (mut guest, console, _directory) = start();
        let mut session = attach_as(&console, ConsoleAccess::TakeOver, Session::Replace).await.unwrap();
        let (mut printed, mut read) = (0, 0);
        for _ in 0..3 {
            printed += fills(&mut guest).await;
            while read < printed {
                read += session.output.recv().await.unwrap().len();
            }
        }
        assert!(printed > 3 * 64 * 1024, "{printed}");
        assert_eq!(*session.over.borrow(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_takes_nothing_is_disconnected_and_the_guest_goes_on() {
        let (mut guest, console, _directory) = start();
        let mut session = attach_as(&console, ConsoleAccess::TakeOver, Session::Replace).await.unwrap();
        fills(&mut guest).await;
        guest.write_all(&vec![b'y'; 1 << 20]).await.unwrap();
        assert_eq!(*session.over.borrow(), Some(TOO_SLOW));
        assert_eq!(session.output.recv().await, None);
        assert!(attach_as(&console, ConsoleAccess::TakeOver, Session::Only).await.is_ok(), "it is no session any more");
    }
}
