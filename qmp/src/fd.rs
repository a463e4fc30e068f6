//! Descriptors that travel with a command (`SCM_RIGHTS`).
//!
//! QEMU keeps the descriptors of a message until the next message with descriptors, and takes at most sixteen
//! (`SOCKET_MAX_FDS` in `io/channel-socket.c`, 7.2 to 10.0). The command they are meant for must therefore be in the
//! same `sendmsg` call; [`Request::with_descriptors`](crate::Request::with_descriptors) sees to that.
//!
//! ```text
//! getfd   name ◄─ fd     then a command that names it: add_client, migrate (fd:name), netdev_add
//! add-fd  set  ◄─ fd     then /dev/fdset/SET anywhere QEMU takes a path; survives until the set is unused
//! ```

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tracing::debug;

use crate::command::Request;
use crate::connection::Monitor;
use crate::error::CallError;
use crate::qmp;

/// Descriptors QEMU takes with one message.
pub const DESCRIPTOR_LIMIT: usize = 16;

/// Writes all of `line`, with the descriptors attached to its first byte.
pub(crate) async fn write_with_descriptors(
    stream: &UnixStream,
    line: &[u8],
    descriptors: &[OwnedFd],
) -> io::Result<()> {
    let raw: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let mut rest = line;
    let mut control = if raw.is_empty() { &[][..] } else { &rights[..] };
    while !rest.is_empty() {
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let pieces = [IoSlice::new(rest)];
                sendmsg::<UnixAddr>(stream.as_raw_fd(), &pieces, control, MsgFlags::MSG_NOSIGNAL, None)
                    .map_err(io::Error::from)
            })
            .await;
        match sent {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                rest = &rest[count..];
                control = &[];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A descriptor in one of QEMU's descriptor sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub struct AddedDescriptor {
    /// The set: `/dev/fdset/SET` names it.
    #[serde(rename = "fdset-id")]
    pub set: i64,
    /// The descriptor's number inside of QEMU.
    #[serde(rename = "fd")]
    pub number: i64,
}

/// Makes the names given to descriptors unique within this process.
static NAMES: AtomicU64 = AtomicU64::new(0);

impl Monitor {
    /// Gives QEMU a descriptor under a name (`getfd`). A descriptor of the same name is replaced.
    pub async fn pass_descriptor(&self, name: &str, descriptor: OwnedFd) -> Result<(), CallError> {
        let request = Request::of(&qmp::getfd { fdname: name.to_owned() }).with_descriptors(vec![descriptor]);
        self.send(request).await.map(drop)
    }

    /// Puts a descriptor into a set (`add-fd`), a new one if `set` is `None`. `opaque` is kept by QEMU and shown by
    /// `query-fdsets`: it is how the descriptor is found again by a supervisor that has been restarted.
    pub async fn add_descriptor(
        &self,
        set: Option<i64>,
        opaque: &str,
        descriptor: OwnedFd,
    ) -> Result<AddedDescriptor, CallError> {
        let command = qmp::add_fd { fdset_id: set, opaque: Some(opaque.to_owned()) };
        self.send_decoding(Request::of(&command).with_descriptors(vec![descriptor])).await
    }

    /// Makes a connected socket a client of QEMU's VNC server: no listening socket is needed then. The holder of the
    /// other end is let in without a password, so hand it only to those who may see the screen.
    pub async fn add_vnc_client(&self, socket: OwnedFd) -> Result<(), CallError> {
        let name = format!("garboard-client-{}", NAMES.fetch_add(1, Ordering::Relaxed));
        self.pass_descriptor(&name, socket).await?;
        let protocol = "vnc".to_owned();
        let client = qmp::add_client { protocol, fdname: name.clone(), skipauth: Some(true), tls: None };
        let added = self.call(&client).await;
        if added.is_err() {
            // QEMU keeps a descriptor that no command took.
            let closed = self.call(&qmp::closefd { fdname: name }).await;
            debug!(closed = closed.is_ok(), "unused descriptor removed from QEMU");
        }
        added.map(drop)
    }
}
