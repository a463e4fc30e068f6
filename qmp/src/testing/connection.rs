//! One client of the fake monitor.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::machine::HeldDescriptor;
use super::monitor::Shared;
use crate::fd::{DESCRIPTOR_LIMIT, write_with_descriptors};
use crate::wire::ObjectSplitter;

/// What the monitor sends.
#[derive(Debug)]
pub(super) enum Outgoing {
    Bytes(Vec<u8>),
    HangUp,
}

/// Serves one client until it leaves or the monitor hangs up.
pub(super) async fn serve(stream: UnixStream, shared: Arc<Shared>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let _ = sender.send(Outgoing::Bytes(Shared::greeting()));
    tokio::select! {
        _ = listen(&stream, &shared, sender) => {}
        _ = write(&stream, receiver) => {}
    }
    shared.disconnected();
}

async fn write(stream: &UnixStream, mut queue: mpsc::UnboundedReceiver<Outgoing>) -> io::Result<()> {
    while let Some(Outgoing::Bytes(bytes)) = queue.recv().await {
        write_with_descriptors(stream, &bytes, &[]).await?;
    }
    Ok(())
}

async fn listen(stream: &UnixStream, shared: &Shared, sender: mpsc::UnboundedSender<Outgoing>) -> io::Result<()> {
    let mut splitter = ObjectSplitter::new(1 << 20);
    let mut descriptors = Vec::new();
    loop {
        let (bytes, mut received) = receive(stream).await?;
        if bytes.is_empty() {
            return Ok(());
        }
        descriptors.append(&mut received);
        splitter.push(&bytes);
        while let Some(object) = splitter.next_object() {
            let message = object.ok().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
            shared.accept(&message, std::mem::take(&mut descriptors), &sender);
        }
    }
}

async fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<HeldDescriptor>)> {
    stream
        .async_io(Interest::READABLE, || {
            let mut bytes = vec![0; 4096];
            let mut control = nix::cmsg_space!([RawFd; DESCRIPTOR_LIMIT]);
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let message =
                recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
            let mut descriptors = Vec::new();
            for control_message in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(numbers) = control_message {
                    descriptors.extend(numbers.into_iter().map(HeldDescriptor::new));
                }
            }
            let count = message.bytes;
            bytes.truncate(count);
            Ok((bytes, descriptors))
        })
        .await
}
