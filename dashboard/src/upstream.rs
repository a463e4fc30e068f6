//! The way to the API server. Each request has a connection of its own: none is left that another user's request could use.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use garboard_protocol::causes::ErrorChain;
use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::head::Asked;
use crate::refusal::Refusal;

/// How long a connection may take, with its handshake.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long the API server may take until an answer begins, and between two parts of it: it ends what takes longer than a minute.
pub const ANSWERING: Duration = Duration::from_secs(90);
/// The largest head of an answer, bytes.
const LONGEST_HEAD: usize = 64 * 1024;

/// Where the API server is, and by what it is known.
#[derive(Debug)]
pub struct ApiServer {
    host: String,
    port: u16,
    name: ServerName<'static>,
    trusted: watch::Receiver<Arc<ClientConfig>>,
}

impl ApiServer {
    /// At that host, which its certificate has to name.
    ///
    /// # Errors
    /// If it is neither a name nor an address.
    pub fn new(host: &str, port: u16, trusted: watch::Receiver<Arc<ClientConfig>>) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| format!("the host of the API server `{host}` is none: {error}"))?;
        Ok(Self { host: host.to_owned(), port, name, trusted })
    }

    /// Sends a request; its answer, once that has begun.
    ///
    /// # Errors
    /// [`Refusal::Unreachable`], [`Refusal::Late`], [`Refusal::Answer`].
    pub async fn send(&self, request: Asked) -> Result<Response<Incoming>, Refusal> {
        let late = |patience: Duration| move |_: Elapsed| Refusal::Late(patience.as_secs());
        let stream = timeout(CONNECTING, self.connect()).await.map_err(late(CONNECTING))?;
        let stream = stream.map_err(|error| Refusal::Unreachable(ErrorChain(&error).to_string()))?;
        let broken = |error: hyper::Error| Refusal::Unreachable(ErrorChain(&error).to_string());
        let mut builder = Builder::new();
        let begun = builder.max_buf_size(LONGEST_HEAD).handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.map_err(broken)?;
        // It ends with the answer, or with the stream that comes of it.
        drop(tokio::spawn(connection.with_upgrades()));
        let answer = timeout(ANSWERING, sender.send_request(request)).await.map_err(late(ANSWERING))?;
        let answer = answer.map_err(broken)?;
        // Where a redirection leads is not this server's to follow, and no browser's to be led to with a token.
        if answer.status().is_redirection() { Err(Refusal::Answer(answer.status().as_u16())) } else { Ok(answer) }
    }

    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let trusted = self.trusted.borrow().clone();
        TlsConnector::from(trusted).connect(self.name.clone(), stream).await
    }
}

/// The whole of a short answer.
///
/// # Errors
/// [`Refusal::Unreachable`]: it is longer than that many bytes, or breaks off. [`Refusal::Late`].
pub async fn whole(answer: Response<Incoming>, longest: usize) -> Result<Bytes, Refusal> {
    let read = timeout(ANSWERING, Limited::new(answer.into_body(), longest).collect()).await;
    let read = read.map_err(|_| Refusal::Late(ANSWERING.as_secs()))?;
    let body = read.map_err(|error| Refusal::Unreachable(format!("its answer cannot be used: {error}")))?;
    Ok(body.to_bytes())
}
