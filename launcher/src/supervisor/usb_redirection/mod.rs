//! USB redirection: clients of usbredir's protocol, each with a slot of its own. A slot is one `usb-redir` device of the guest and the
//! socket that QEMU serves for it.
//!
//! ```text
//!   client ◄── bytes ──► relay ◄── usbredirN.sock ──► QEMU's device N      no client ends another one
//! ```
//!
//! A client gets the first slot that is free. It is free again when the client leaves, or QEMU hangs up. QEMU (`hw/usb/redirect.c`) neither
//! reads nor writes while vCPUs are stopped: its `hello` comes when the guest runs, and a client's bytes wait until then. It takes one
//! connection of a slot at a time, so that the next one waits in its socket until the one before is closed.
//!
//! QEMU trusts the client of such a device: where its parser refuses a packet and more bytes follow, it aborts (`usbredir_chardev_read:
//! Assertion 'dev->read_buf == NULL' failed`), and a filter makes it call a function that is not there (both seen with 7.2, and with 10.0). So a
//! client has to begin with usbredir's `hello`: no program that speaks something else reaches QEMU by mistake. What follows is not read
//! here. Who may open a slot may end the guest.

use std::collections::BTreeSet;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use garboard_agent::line_socket::next_client;
use garboard_plan::{Descriptor, DescriptorPurpose, LaunchPlan};
use garboard_protocol::paths;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
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
/// Bytes of a header in front of a `hello` (`usbredirproto.h`): type, length of what follows, number, each of four bytes, the least
/// significant first.
const HEADER: usize = 12;
/// The type of a `hello`.
const HELLO: u32 = 0;
/// Bytes of a `hello`: its version has 64, and capabilities follow, of which there are four today.
const HELLO_LENGTHS: RangeInclusive<u32> = 64..=256;
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
    let known = slots.wait_for(Option::is_some).await.map(|seen| seen.clone());
    match known {
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
            // The protocol has no message for it: the client reads the end.
            Err(reason) => tracing::warn!(%reason, "a client of USB redirection is refused"),
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
        // The place is dropped after the halves.
        let Self { qemu, place: _place } = self;
        let (from_client, mut to_client) = client.into_split();
        let (mut from_qemu, to_qemu) = qemu.into_split();
        let ended = tokio::select! {
            ended = to_device(from_client, to_qemu) => ended,
            ended = tokio::io::copy(&mut from_qemu, &mut to_client) => ended.map(drop),
        };
        match &ended {
            Ok(()) => tracing::info!(slot, "USB redirection has ended"),
            Err(error) => tracing::warn!(slot, %error, "USB redirection was ended"),
        }
        ended
    }
}

/// Copies what a client sends once it has begun with a `hello`, until it leaves.
async fn to_device(mut client: OwnedReadHalf, mut qemu: OwnedWriteHalf) -> io::Result<()> {
    let mut header = [0; HEADER];
    if let Err(error) = client.read_exact(&mut header).await {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) };
    }
    if !is_of_hello(&header) {
        return Err(io::Error::other("the client does not begin with the hello of usbredir's protocol"));
    }
    qemu.write_all(&header).await?;
    let mut piece = vec![0; PIECE];
    loop {
        let count = client.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        tokio::select! {
            written = qemu.write_all(&piece[..count]) => written?,
            () = gone(&client) => return Ok(()),
        }
    }
}

fn is_of_hello(header: &[u8; HEADER]) -> bool {
    let number = |at: usize| header[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    number(0) == Some(HELLO) && number(4).is_some_and(|length| HELLO_LENGTHS.contains(&length))
}

/// Waits until a client has hung up whose last bytes QEMU may never read: it does not while vCPUs are stopped.
async fn gone(client: &OwnedReadHalf) {
    loop {
        tokio::time::sleep(GONE_EVERY).await;
        if client.ready(Interest::READABLE).await.is_ok_and(|ready| ready.is_read_closed()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
