//! UDP: each client that sends gets a socket to the guest of its own, by which the answers find back to it.
//! A silent client is removed after a while.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use tokio::net::UdpSocket;

/// Most clients of one port at once; datagrams of further ones are dropped.
const CLIENTS_MAX: usize = 128;
/// How long a client may be silent in both directions.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Longest datagram.
const DATAGRAM_MAX: usize = 65_535;
/// How long to wait after an error of the socket itself.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves one port.
pub(super) async fn serve(socket: UdpSocket, guest: SocketAddr) -> io::Result<Infallible> {
    let socket = Arc::new(socket);
    let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut answering = FuturesUnordered::new();
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        let received = {
            let receive = std::pin::pin!(socket.recv_from(&mut buffer));
            let forget = std::pin::pin!(async {
                match answering.next().await {
                    Some(client) => client,
                    None => std::future::pending().await,
                }
            });
            match select(receive, forget).await {
                Either::Left((received, _)) => received,
                Either::Right((client, _)) => {
                    clients.remove(&client);
                    continue;
                }
            }
        };
        let (length, client) = match received {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%guest, %error, "receive of a datagram failed");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if !clients.contains_key(&client) {
            let Some(server) = open(&clients, guest).await else { continue };
            let server = Arc::new(server);
            clients.insert(client, server.clone());
            answering.push(answer(socket.clone(), server, client));
        }
        if let (Some(server), Some(datagram)) = (clients.get(&client), buffer.get(..length)) {
            // A guest that does not listen is the same as a lost datagram.
            let _ = server.send(datagram).await;
        }
    }
}

async fn open(clients: &HashMap<SocketAddr, Arc<UdpSocket>>, guest: SocketAddr) -> Option<UdpSocket> {
    if clients.len() >= CLIENTS_MAX {
        tracing::debug!(%guest, "too many clients, datagram dropped");
        return None;
    }
    let any =
        if guest.is_ipv4() { SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)) } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let opened = UdpSocket::bind(any).await.ok()?;
    opened.connect(guest).await.ok()?;
    Some(opened)
}

/// Brings the guest's answers back to one client until there are none for a while.
async fn answer(socket: Arc<UdpSocket>, server: Arc<UdpSocket>, client: SocketAddr) -> SocketAddr {
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        match tokio::time::timeout(SILENCE_MAX, server.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                let datagram = buffer.get(..length).unwrap_or_default();
                let _ = socket.send_to(datagram, client).await;
            }
            // Refused by the guest: it may listen later.
            Ok(Err(_)) => tokio::time::sleep(PAUSE).await,
            Err(_) => return client,
        }
    }
}
