//! `-p`: ports of the host that lead to the guest, held by the shim for as long as the machine runs.

use std::net::IpAddr;

use anyhow::Context;
use garboard_net::publish::{Listeners, Publish, Published, listen, relay};
use garboard_plan::{Forward, Protocol};

/// Takes all these ports of the host, or none.
pub(crate) fn take(forwards: &[Forward]) -> anyhow::Result<Option<Listeners>> {
    if forwards.is_empty() {
        return Ok(None);
    }
    let published = forwards.iter().map(publish).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Some(listen(&published)?))
}

fn publish(forward: &Forward) -> anyhow::Result<Publish> {
    let address = forward.host_address.as_ref().map(|address| address.parse()).transpose();
    Ok(Publish {
        address: address.context("the address of -p")?,
        host: forward.host_port.try_into().context("the host's port of -p")?,
        guest: forward.guest_port.try_into().context("the guest's port of -p")?,
        protocol: match forward.protocol {
            Protocol::Tcp => Published::Tcp,
            Protocol::Udp => Published::Udp,
            Protocol::Sctp => anyhow::bail!("SCTP ports cannot be published; use tcp or udp"),
        },
    })
}

/// Serves them in the background.
pub(crate) fn serve(listeners: Listeners, guest: IpAddr) {
    tokio::spawn(async move {
        match relay(listeners, guest).await {
            Err(error) => tracing::error!(%error, "the server of published ports failed"),
            Ok(never) => match never {},
        }
    });
}
