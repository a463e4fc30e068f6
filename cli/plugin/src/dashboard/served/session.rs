//! A browser that was let in, and the streams that it has: they end with its session.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A browser that was let in.
#[derive(Debug)]
pub(super) struct Session {
    token: String,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    is_over: bool,
    next: u64,
    open: BTreeMap<u64, TcpStream>,
}

/// A stream of a session, for as long as this lives.
#[derive(Debug)]
pub(super) struct Held {
    session: Arc<Session>,
    number: u64,
}

impl Session {
    /// With that token.
    pub(super) fn new(token: String) -> Arc<Self> {
        Arc::new(Self { token, streams: Mutex::default() })
    }

    /// What the browser names.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Has a stream end with the session.
    ///
    /// # Errors
    /// If the session is over, or out of descriptors.
    pub(super) fn hold(self: &Arc<Self>, stream: &TcpStream) -> io::Result<Held> {
        let stream = stream.try_clone()?;
        let mut streams = self.streams();
        if streams.is_over {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let number = streams.next;
        streams.next = number.wrapping_add(1);
        streams.open.insert(number, stream);
        Ok(Held { session: Arc::clone(self), number })
    }

    /// Ends it, and all its streams.
    pub(super) fn end(&self) {
        let mut streams = self.streams();
        streams.is_over = true;
        for stream in streams.open.values() {
            // It may have ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.session.streams().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn streams_end_with_their_session() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0);
        let session = Session::new("token".into());
        let (mut browser, stream) = connected();
        let _held = session.hold(&stream).unwrap();
        let (_, closed) = connected();
        drop(session.hold(&closed).unwrap());
        assert_eq!(session.streams().open.len(), 1);
        session.end();
        assert_eq!(browser.read(&mut [0; 1]).unwrap(), 0);
        assert!(session.hold(&stream).is_err());
    }
}
