//! The websocket of a stream, as two ends: one thread reads it, another one writes it.
//!
//! The library has one object for both directions. Here there are two of them for the two directions of one connection: the one
//! that reads sends nothing, and what it would answer is sent by the one that writes.

use std::io::{self, Cursor, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use garboard_protocol::position::Begun;
use tungstenite::client::IntoClientRequest;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::HandshakeError;
use tungstenite::handshake::client::{Request, Response};
use tungstenite::http::HeaderValue;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Bytes, Error, Message, WebSocket};

use super::answer::{self, Length};
use super::ending::{End, Ending};
use super::progress::Progress;
use super::socket::Socket;
use crate::failure::Failure;
use crate::subresource::{Subresource, refusal};

/// The subprotocol of KubeVirt's clients: binary frames of bytes, and nothing else.
const PLAIN: &str = "plain.kubevirt.io";
/// The controller takes messages of up to 64 KiB.
const LARGEST_SENT: usize = 32 * 1024;
/// The largest message that is taken. A controller sends less.
const LARGEST_TAKEN: usize = 1 << 20;
/// Credentials may have to be fetched, and a supervisor is asked for.
const OPENED_WITHIN: Duration = Duration::from_secs(60);
/// A controller sends something every 20 s: what is silent for so long is no longer there.
const SILENCE: Duration = Duration::from_secs(75);
/// How long the other side has to take what was sent last, and to close.
const FAREWELL: Duration = Duration::from_secs(2);

/// One direction of a connection.
struct Half {
    socket: Socket,
    /// What is written to the end that reads goes nowhere.
    is_mute: bool,
}

impl Read for Half {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Write for Half {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_mute { Ok(bytes.len()) } else { self.socket.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a websocket over a connection; `progress` is of a console that goes on.
pub(super) fn open(
    socket: Socket,
    path: &str,
    asked: &Subresource,
    progress: Option<Arc<Progress>>,
) -> Result<(Reading, Writing, Arc<Ending>), Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::Interrupted(format!("{}: {error}", asked.machine()));
    socket.limit_reads(Some(OPENED_WITHIN)).map_err(|error| broken(&error))?;
    let second = socket.again().map_err(|error| broken(&error))?;
    let request = request(path).map_err(|error| broken(&error))?;
    let half = Half { socket, is_mute: false };
    let mut reader = match tungstenite::client::client_with_config(request, half, Some(config())) {
        Ok((reader, _)) => reader,
        Err(HandshakeError::Failure(Error::Http(response))) => return Err(refused(asked, *response, second)),
        Err(HandshakeError::Failure(error)) => return Err(broken(&error)),
        Err(HandshakeError::Interrupted(_)) => {
            return Err(Failure::NoAnswer(format!("{} was asked for {}", asked.machine(), asked.verb)));
        }
    };
    reader.get_mut().is_mute = true;
    second.limit_reads(Some(SILENCE)).map_err(|error| broken(&error))?;
    let writer = WebSocket::from_raw_socket(Half { socket: second, is_mute: false }, Role::Client, Some(config()));
    let (writer, ending) = (Arc::new(Mutex::new(writer)), Arc::new(Ending::default()));
    let reading = Reading {
        reader,
        writer: Arc::clone(&writer),
        rest: Cursor::default(),
        ending: Arc::clone(&ending),
        progress,
        is_begun: false,
    };
    Ok((reading, Writing { writer, ending: Arc::clone(&ending) }, ending))
}

fn config() -> WebSocketConfig {
    // Nothing is kept back: a key that is pressed is sent.
    let config = WebSocketConfig::default().write_buffer_size(0).read_buffer_size(LARGEST_SENT);
    config.max_message_size(Some(LARGEST_TAKEN)).max_frame_size(Some(LARGEST_TAKEN))
}

/// The proxy lets requests to `localhost` through.
fn request(path: &str) -> Result<Request, Error> {
    let mut request = format!("ws://localhost{path}").into_client_request()?;
    request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(PLAIN));
    Ok(request)
}

fn refused(asked: &Subresource, response: Response, mut socket: Socket) -> Failure {
    let _ = socket.limit_reads(Some(FAREWELL));
    let code = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let length = match (header("transfer-encoding"), header("content-length").and_then(|text| text.parse().ok())) {
        (Some(encoding), _) if encoding.eq_ignore_ascii_case("chunked") => Length::Chunked,
        (_, Some(count)) => Length::Known(count),
        _ => Length::UntilTheEnd,
    };
    let begun = response.body().clone().unwrap_or_default();
    refusal::of_answer(asked, code, &answer::body(begun, length, &mut socket))
}

/// The end that reads. Bytes without borders; after the last one [`Ending`] says how the stream ended.
pub(super) struct Reading {
    reader: WebSocket<Half>,
    writer: Arc<Mutex<WebSocket<Half>>>,
    rest: Cursor<Bytes>,
    ending: Arc<Ending>,
    progress: Option<Arc<Progress>>,
    /// Something has come.
    is_begun: bool,
}

impl Reading {
    /// What is shown before the first bytes: whether they do not follow what was read before.
    fn begin(&mut self, begun: Option<&Begun>) -> Option<Bytes> {
        if std::mem::replace(&mut self.is_begun, true) {
            return None;
        }
        let remark = self.progress.as_ref()?.begin(begun)?;
        Some(Bytes::from(format!("\r\n[{remark}]\r\n")))
    }

    /// Bytes of the machine.
    fn took(&mut self, bytes: Bytes) -> Bytes {
        let remark = self.begin(None);
        if let Some(progress) = &self.progress {
            progress.add(bytes.len());
        }
        match remark {
            Some(remark) => Bytes::from([remark, bytes].concat()),
            None => bytes,
        }
    }

    /// The next bytes; nothing after the last ones.
    fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.reader.read() {
                Ok(Message::Binary(bytes)) if bytes.is_empty() => {}
                Ok(Message::Binary(bytes)) => return Some(self.took(bytes)),
                // With what a console begins.
                Ok(Message::Text(text)) => match serde_json::from_str::<Begun>(text.as_str()) {
                    Ok(begun) => {
                        if let Some(remark) = self.begin(Some(&begun)) {
                            return Some(remark);
                        }
                    }
                    Err(_) => return Some(self.took(text.into())),
                },
                Ok(Message::Ping(bytes)) => self.answer(Message::Pong(bytes)),
                Ok(Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Close(frame)) => {
                    self.answer(Message::Close(None));
                    self.ending.set(End::of_frame(frame.map(|frame| (frame.code.into(), frame.reason.to_string()))));
                    return None;
                }
                Err(error) => {
                    self.ending.set(End::Cut(why(&error)));
                    return None;
                }
            }
        }
    }

    /// What a slow machine's side does not take yet is not waited for: a stream that is read goes on.
    fn answer(&self, message: Message) {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(writer)) => writer.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // An end shows when it is read.
        let _ = writer.send(message);
    }
}

fn why(error: &Error) -> String {
    if let Error::Io(error) = error
        && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    {
        return format!("nothing came for {} s", SILENCE.as_secs());
    }
    if matches!(error, Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) {
        return "it ended without a close frame".to_owned();
    }
    error.to_string()
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.rest.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.ending.now().is_some() {
                return Ok(read);
            }
            match self.next() {
                Some(bytes) => self.rest = Cursor::new(bytes),
                None => return Ok(0),
            }
        }
    }
}

impl Drop for Reading {
    /// Nobody reads it any more: what the other side sends is dropped until it closes.
    fn drop(&mut self) {
        let _ = self.reader.get_ref().socket.limit_reads(Some(FAREWELL));
        while self.ending.now().is_none() && self.next().is_some() {}
    }
}

/// The end that writes.
pub(super) struct Writing {
    writer: Arc<Mutex<WebSocket<Half>>>,
    ending: Arc<Ending>,
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let part = &bytes[..bytes.len().min(LARGEST_SENT)];
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = writer.send(Message::Binary(Bytes::copy_from_slice(part)));
        drop(writer);
        let error = match sent {
            Ok(()) => return Ok(part.len()),
            Err(Error::Io(error)) => error,
            Err(error) => io::Error::new(ErrorKind::BrokenPipe, error.to_string()),
        };
        // Why, the reader finds out.
        self.ending.wait(FAREWELL);
        Err(error)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Writing {
    /// What was sent arrives before the connection ends.
    fn drop(&mut self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ending.now().is_none() && writer.get_ref().socket.limit_writes(Some(FAREWELL)).is_ok() {
            let closing = writer.send(Message::Close(None));
            let socket = writer.get_ref().socket.again();
            // The reader answers, too.
            drop(writer);
            if closing.is_ok() {
                self.ending.wait(FAREWELL);
            }
            if let Ok(socket) = socket {
                socket.end();
            }
            return;
        }
        writer.get_ref().socket.end();
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
