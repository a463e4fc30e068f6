//! TCP: each connection is answered by one to the guest, and bytes are copied both ways until both sides are
//! done. A half-closed connection stays half open.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use tokio::net::{TcpListener, TcpStream};

/// Most connections of one port at once; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1024;
/// How long the guest has to answer a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted, for example because descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves one port.
pub(super) async fn serve(listener: TcpListener, guest: SocketAddr) -> io::Result<Infallible> {
    let mut connections = FuturesUnordered::new();
    loop {
        if connections.len() >= CONNECTIONS_MAX {
            connections.next().await;
            continue;
        }
        let accepted = {
            let accept = std::pin::pin!(listener.accept());
            // With no connection there is nothing to wait for but the next.
            let finish = std::pin::pin!(async {
                if connections.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
            });
            match select(accept, finish).await {
                Either::Left((accepted, _)) => accepted,
                Either::Right(_) => continue,
            }
        };
        match accepted {
            Ok((client, from)) => connections.push(async move {
                if let Err(error) = connect(client, guest).await {
                    tracing::debug!(%from, %guest, %error, "relayed connection ended");
                }
            }),
            Err(error) => {
                tracing::warn!(%guest, %error, "accept of a connection failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connect(mut client: TcpStream, guest: SocketAddr) -> io::Result<()> {
    let connected = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(guest)).await;
    let mut server = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // The two sides batch for themselves; waiting here would only add delay.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
