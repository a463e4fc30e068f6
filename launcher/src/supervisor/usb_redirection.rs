//! USB redirection: clients of usbredir's protocol, each with a slot of its own. A slot is one `usb-redir` device of the guest and the
//! socket that QEMU serves for it.
//!
//! ```text
//!   client ◄── bytes ──► relay ◄── usbredirN.sock ──► QEMU's device N      no client ends another one
//! ```
//!
//! A client gets the first slot that is free. It is free again when the client leaves, or QEMU hangs up. Nothing here reads the
//! bytes. QEMU (`hw/usb/redirect.c`) neither reads nor writes while vCPUs are stopped: its `hello` comes when the guest runs. It takes one
//! connection of a slot at a time, so that the next one waits in its socket until the one before is closed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use garboard_agent::line_socket::next_client;
use garboard_plan::{Descriptor, DescriptorPurpose, LaunchPlan};
use garboard_protocol::paths;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::prepare::sockets::{SocketError, listen_async};

const NO_SLOTS: &str = "this machine has no USB redirection (clientPassthrough)";
/// Begins as KubeVirt's log line.
const ALL_IN_USE: &str = "All USB devices are in use: each slot of this machine has its client";
const UNREACHED: &str = "QEMU's device for USB redirection cannot be reached";
const ENDED: &str = "the machine could not be started, or has just ended";
/// Bytes that are copied at once.
const PIECE: usize = 16 * 1024;
/// How often a client is looked at whose bytes QEMU does not read.
const GONE_EVERY: Duration = Duration::from_secs(1);

/// The slots of a machine; `None` until its plan is known.
pub(crate) type KnownSlots = watch::Receiver<Option<Slots>>;

/// The slots of a machine, shared by all who want one. A machine without USB redirection has none.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    directory: PathBuf,
    numbers: Vec<u32>,
    in_use: Arc<Mutex<BTreeSet<u32>>>,
}

/// One slot of a client, and its connection to QEMU. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    // Closed before the place is free.
    qemu: UnixStream,
    place: Place,
}

#[derive(Debug)]
struct Place {
    number: u32,
    in_use: Arc<Mutex<BTreeSet<u32>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl Slots {
    /// Those of a plan, whose sockets are in the supervisor's directory.
    pub(super) fn of(directory: &Path, plan: &LaunchPlan) -> Self {
        let number = |descriptor: &Descriptor| {
            let DescriptorPurpose::UsbRedirListener { slot } = descriptor.purpose else { return None };
            Some(slot)
        };
        let numbers = plan.descriptors.iter().filter_map(number).collect();
        Self { directory: directory.to_owned(), numbers, in_use: Arc::default() }
    }

    /// Whether there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The first one that is free.
    ///
    /// # Errors
    /// Why there is none, for a person.
    async fn take(&self) -> Result<Slot, String> {
        if self.is_empty() {
            return Err(NO_SLOTS.to_owned());
        }
        let place = self.first_free().ok_or(ALL_IN_USE)?;
        match UnixStream::connect(self.directory.join(paths::usb_redirection_slot_socket(place.number))).await {
            Ok(qemu) => Ok(Slot { qemu, place }),
            Err(error) => {
                tracing::warn!(%error, slot = place.number, "the socket of a slot for USB redirection cannot be reached");
                Err(UNREACHED.to_owned())
            }
        }
    }

    fn first_free(&self) -> Option<Place> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.numbers.iter().copied().find(|number| !in_use.contains(number))?;
        in_use.insert(number);
        Some(Place { number, in_use: Arc::clone(&self.in_use) })
    }
}

/// The first slot that is free, once it is known which there are.
///
/// # Errors
/// Why there is none, for a person.
pub(super) async fn take(mut slots: KnownSlots) -> Result<Slot, String> {
    match slots.wait_for(Option::is_some).await.map(|seen| seen.clone()) {
        Ok(Some(known)) => known.take().await,
        Ok(None) | Err(_) => Err(ENDED.to_owned()),
    }
}

/// Serves clients that come by a socket of their own, on a bare host: any program that speaks usbredir's protocol.
///
/// # Errors
/// [`SocketError`].
pub(super) fn listen(directory: &Path, slots: Slots) -> Result<(), SocketError> {
    let listener = listen_async(directory, paths::USB_REDIRECTION_SOCKET)?;
    tokio::spawn(accept(listener, slots));
    Ok(())
}

async fn accept(listener: UnixListener, slots: Slots) {
    loop {
        let client = next_client(&listener).await;
        match slots.take().await {
            Ok(slot) => drop(tokio::spawn(slot.relay(client))),
            // There is no place for words in this protocol: the client reads the end.
            Err(reason) => tracing::warn!(%reason, "a client of USB redirection is turned away"),
        }
    }
}

impl Slot {
    /// Its number, from 0.
    pub(super) fn number(&self) -> u32 {
        self.place.number
    }

    /// Copies both ways until one side hangs up. There is no half of a close in usbredir's protocol.
    pub(super) async fn relay(self, client: UnixStream) -> io::Result<()> {
        let slot = self.number();
        tracing::info!(slot, "USB redirection begins");
        let ended = tokio::select! {
            ended = copy(&client, &self.qemu) => ended,
            ended = copy(&self.qemu, &client) => ended,
            () = gone(&client) => Ok(()),
        };
        tracing::info!(slot, "USB redirection has ended");
        ended
    }
}

/// Copies until `from` has no more. Each side is borrowed, so that both directions and [`gone`] have it.
async fn copy(from: &UnixStream, to: &UnixStream) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        from.readable().await?;
        match from.try_read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => write_all(to, &piece[..count]).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write_all(to: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until a client has hung up whose last bytes QEMU may never read: it does not while vCPUs are stopped.
async fn gone(client: &UnixStream) {
    loop {
        tokio::time::sleep(GONE_EVERY).await;
        if client.ready(Interest::READABLE).await.is_ok_and(|ready| ready.is_read_closed()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The sockets of a QEMU with these slots.
    struct Played {
        room: tempfile::TempDir,
        listeners: Vec<UnixListener>,
        slots: Slots,
    }

    impl Played {
        fn with(numbers: Vec<u32>) -> Self {
            let room = tempfile::tempdir().unwrap();
            let listen = |&slot: &u32| listen_async(room.path(), &paths::usb_redirection_slot_socket(slot)).unwrap();
            let listeners = numbers.iter().map(listen).collect();
            let slots = Slots { directory: room.path().to_owned(), numbers, in_use: Arc::default() };
            Self { room, listeners, slots }
        }

        /// A client with the next slot, QEMU's end of it, and the relay between both.
        async fn client(&self, expected: u32) -> (UnixStream, UnixStream, JoinHandle<io::Result<()>>) {
            let slot = self.slots.take().await.unwrap();
            assert_eq!(slot.number(), expected);
            let (ours, theirs) = UnixStream::pair().unwrap();
            let relay = tokio::spawn(slot.relay(theirs));
            let accepted = timeout(PATIENCE, self.listeners[usize::try_from(expected).unwrap()].accept()).await;
            (ours, accepted.unwrap().unwrap().0, relay)
        }
    }

    async fn ends(relay: JoinHandle<io::Result<()>>) {
        let _ = timeout(PATIENCE, relay).await.expect("it ends").unwrap();
    }

    #[tokio::test]
    async fn each_client_has_the_first_free_slot_and_one_more_is_refused() {
        let qemu = Played::with(vec![0, 1, 2, 3]);
        let mut clients = Vec::new();
        for slot in 0..4 {
            clients.push(qemu.client(slot).await);
        }
        assert_eq!(qemu.slots.take().await.unwrap_err(), ALL_IN_USE);
        let (client, _, relay) = clients.remove(1);
        drop(client);
        ends(relay).await;
        let again = qemu.client(1).await;
        assert_eq!(qemu.slots.take().await.unwrap_err(), ALL_IN_USE);
        drop((again, clients));
    }

    #[tokio::test]
    async fn bytes_go_both_ways_until_one_side_hangs_up() {
        let qemu = Played::with(vec![0]);
        let mut read = [0; 5];
        let (mut client, mut device, relay) = qemu.client(0).await;
        device.write_all(b"hello").await.unwrap();
        timeout(PATIENCE, client.read_exact(&mut read)).await.unwrap().unwrap();
        assert_eq!(&read, b"hello");
        client.write_all(b"reply").await.unwrap();
        // What was sent before it hung up arrives.
        drop(client);
        timeout(PATIENCE, device.read_exact(&mut read)).await.unwrap().unwrap();
        assert_eq!(&read, b"reply");
        assert_eq!(timeout(PATIENCE, device.read(&mut read)).await.unwrap().unwrap(), 0, "QEMU sees its client leave");
        ends(relay).await;

        let (mut client, device, relay) = qemu.client(0).await;
        drop(device);
        assert_eq!(timeout(PATIENCE, client.read(&mut read)).await.unwrap().unwrap(), 0, "the client sees the end");
        ends(relay).await;
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_qemu_reads_nothing_keeps_no_slot() {
        let qemu = Played::with(vec![0]);
        let (mut client, _stopped, relay) = qemu.client(0).await;
        let flood = async { while client.write_all(&[0; 4096]).await.is_ok() {} };
        assert!(timeout(Duration::from_millis(300), flood).await.is_err(), "nothing is read any more");
        drop(client);
        ends(relay).await;
        drop(qemu.client(0).await);
    }

    #[tokio::test]
    async fn a_slot_whose_socket_is_gone_is_not_lost() {
        let qemu = Played::with(vec![0]);
        let socket = qemu.room.path().join(paths::usb_redirection_slot_socket(0));
        let aside = qemu.room.path().join("aside");
        std::fs::rename(&socket, &aside).unwrap();
        assert_eq!(qemu.slots.take().await.unwrap_err(), UNREACHED);
        std::fs::rename(&aside, &socket).unwrap();
        assert_eq!(qemu.slots.take().await.unwrap().number(), 0);
    }

    #[tokio::test]
    async fn a_client_waits_until_the_slots_are_known() {
        let (known, slots) = watch::channel(None);
        let waiting = tokio::spawn(take(slots.clone()));
        let qemu = Played::with(Vec::new());
        known.send_replace(Some(qemu.slots.clone()));
        assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap_err(), NO_SLOTS);
        drop(known);
        assert_eq!(take(slots).await.unwrap_err(), NO_SLOTS);
        let (never, slots) = watch::channel(None);
        drop(never);
        assert_eq!(take(slots).await.unwrap_err(), ENDED);
    }

    #[tokio::test]
    async fn a_socket_on_a_bare_host_gives_each_client_a_slot_and_hangs_up_on_one_more() {
        let qemu = Played::with(vec![0]);
        listen(qemu.room.path(), qemu.slots.clone()).unwrap();
        let connect = || UnixStream::connect(qemu.room.path().join(paths::USB_REDIRECTION_SOCKET));
        let mut first = connect().await.unwrap();
        let (mut device, _) = timeout(PATIENCE, qemu.listeners[0].accept()).await.unwrap().unwrap();
        device.write_all(b"hello").await.unwrap();
        let mut read = [0; 5];
        timeout(PATIENCE, first.read_exact(&mut read)).await.unwrap().unwrap();
        let mut second = connect().await.unwrap();
        assert_eq!(timeout(PATIENCE, second.read(&mut read)).await.unwrap().unwrap(), 0, "it is turned away");
    }
}
