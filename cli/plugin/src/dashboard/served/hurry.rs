//! A connection with one limit of time for all that is read or written. A limit for each read alone would let a client that sends one byte
//! a second hold its place for hours.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection until then.
#[derive(Debug)]
pub(super) struct Hurried<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl<'a> Hurried<'a> {
    /// From now on for so long.
    pub(super) fn new(stream: &'a TcpStream, patience: Duration) -> Self {
        Self { stream, end: Instant::now() + patience }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::http;
    use super::super::refusal::Refusal;
    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    fn connected() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [client, listener.accept().unwrap().0]
    }

    /// Sends it, and then a byte each few milliseconds, until nothing takes it any more.
    fn dripped(head: &'static str) -> Result<Option<http::Request>, Refusal> {
        let [mut client, served] = connected();
        let drips = std::thread::spawn(move || {
            client.write_all(head.as_bytes()).unwrap();
            while client.write_all(b"a").is_ok() {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        });
        let read = http::read(&mut Hurried::new(&served, SHORT));
        drop(served);
        drips.join().unwrap();
        read
    }

    #[test]
    fn bytes_one_by_one_hold_no_connection() {
        let late = |text| Err(Refusal::Malformed(text));
        assert_eq!(dripped("GET / HTTP/1.1\r\nX: "), late("its head did not come in time"));
        let body = "POST /session HTTP/1.1\r\nContent-Length: 4000\r\n\r\n";
        assert_eq!(dripped(body), late("its body did not come in time"));
    }

    #[test]
    fn who_reads_nothing_ends_an_answer() {
        let [_client, served] = connected();
        let began = Instant::now();
        let mut hurried = Hurried::new(&served, SHORT);
        while hurried.write_all(&[0; 1 << 16]).is_ok() {}
        // The kernel counts in ticks.
        assert!(began.elapsed() > SHORT / 2);
    }
}
