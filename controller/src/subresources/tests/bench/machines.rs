//! Machines that print so many bytes, and then answer what is typed.

use garboard_protocol::control::{Asked, ControlReply, ControlRequest};
use garboard_protocol::{session, wire};
use garboard_tunnel::agent::{Opened, Refusal, Supervisors};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

/// What a viewer sends for the next picture: FramebufferUpdateRequest of 1024×768 (RFC 6143, 7.5.3). Any other byte is a key.
pub(super) const NEXT_FRAME: &[u8] = &[3, 1, 0, 0, 0, 0, 4, 0, 3, 0];
/// Such a picture, raw.
pub(super) const FRAME: usize = 1024 * 768 * 4;

/// The machines of a node: its agent reaches one supervisor, whatever pod is asked for.
#[derive(Clone, Copy)]
pub(super) struct Machines {
    /// Bytes that each stream begins with.
    pub(super) prints: usize,
}

impl Supervisors for Machines {
    async fn open(&self, _pod_uid: &str) -> Result<Opened, Refusal> {
        let (ours, theirs) = UnixStream::pair().map_err(|_| Refusal::Busy)?;
        let prints = self.prints;
        tokio::spawn(async move {
            let _ = serve(theirs, prints).await;
        });
        Ok(Opened { socket: ours, place: None })
    }
}

async fn serve(mut stream: UnixStream, prints: usize) -> std::io::Result<()> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => break,
            byte => line.push(byte),
        }
    }
    let asked: Asked = wire::decode(&line).unwrap();
    // As the supervisor reads them: a serial port in small pieces, a screen in large ones.
    let is_console = matches!(asked.request, ControlRequest::Console { .. });
    assert!(is_console || matches!(asked.request, ControlRequest::Vnc { .. }), "no test sends {asked:?}");
    let piece = if is_console { 4 * 1024 } else { 16 * 1024 };
    stream.write_all(&wire::encode(&ControlReply::Session)?).await?;
    Printer { piece, encode: in_a_session }.play(stream, prints).await
}

fn in_a_session(bytes: &[u8]) -> Vec<u8> {
    let mut parts = Vec::with_capacity(bytes.len() + 8);
    session::encode(bytes, &mut parts);
    parts
}

/// How a machine's side writes.
#[derive(Clone, Copy)]
pub(super) struct Printer {
    /// Bytes of one write. All that is printed is a multiple of it.
    pub(super) piece: usize,
    /// What they are on this side.
    pub(super) encode: fn(&[u8]) -> Vec<u8>,
}

impl Printer {
    /// Bytes as they are, in large pieces.
    pub(super) const PLAIN: Self = Self { piece: 16 * 1024, encode: <[u8]>::to_vec };

    /// Prints, and answers until the other side ends, which is an error.
    pub(super) async fn play(
        self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        prints: usize,
    ) -> std::io::Result<()> {
        self.print(&mut stream, prints).await?;
        loop {
            let typed = stream.read_u8().await?;
            if typed == NEXT_FRAME[0] {
                stream.read_exact(&mut [0; NEXT_FRAME.len() - 1]).await?;
                self.print(&mut stream, FRAME).await?;
            } else {
                stream.write_all(&(self.encode)(&[typed])).await?;
            }
        }
    }

    async fn print(self, to: &mut (impl AsyncWrite + Unpin), bytes: usize) -> std::io::Result<()> {
        let piece = (self.encode)(&vec![b'x'; self.piece]);
        for _ in 0..bytes / self.piece {
            to.write_all(&piece).await?;
        }
        Ok(())
    }
}
