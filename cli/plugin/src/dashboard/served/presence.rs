//! Whether the other end of a connection is still there: the kernel knows it without a byte being read or written.

use std::io;
use std::net::TcpStream;
#[cfg(unix)]
use std::os::{fd::AsFd, unix::net::UnixStream};
use std::time::{Duration, Instant};

#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(unix)]
use rustix::io::Errno;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether the reader of a pipe, the peer of a socket or a terminal is gone.
pub(super) fn hung_up(end: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(end, PollFlags::empty())];
    let is_known = poll(&mut polled, Some(&AT_ONCE)).is_ok();
    is_known && polled.iter().any(|each| each.revents().intersects(PollFlags::ERR | PollFlags::HUP))
}

/// Whether a browser has closed its connection.
pub(super) fn has_left(client: &TcpStream) -> bool {
    let mut polled = [PollFd::new(client, PollFlags::IN)];
    let came = poll(&mut polled, Some(&AT_ONCE)).is_ok_and(|count| count > 0);
    came && is_at_its_end(client)
}

/// Waits until the proxy has sent something.
///
/// # Errors
/// `TimedOut`, or `ConnectionAborted` if the browser has left.
pub(super) fn await_answer(client: &TcpStream, proxy: &UnixStream, patience: Duration) -> io::Result<()> {
    let end = Instant::now() + patience;
    let mut wanted = PollFlags::IN;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let limit = Timespec::try_from(left).unwrap_or(AT_ONCE);
        let mut polled = [PollFd::new(proxy, PollFlags::IN), PollFd::new(client, wanted)];
        match poll(&mut polled, Some(&limit)) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let [has_answer, has_moved] = polled.map(|each| !each.revents().is_empty());
        if has_answer {
            return Ok(());
        }
        if has_moved && (wanted.is_empty() || is_at_its_end(client)) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if has_moved {
            // It has sent more, which nobody reads yet: from now on only its end counts.
            wanted = PollFlags::empty();
        }
    }
}

/// Of a connection that has something to read, or an end.
fn is_at_its_end(client: &TcpStream) -> bool {
    client.peek(&mut [0]).map_or(true, |count| count == 0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn connected() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let browser = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [browser, listener.accept().unwrap().0]
    }

    #[test]
    fn a_pipe_without_a_reader_has_hung_up() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!hung_up(&writer));
        drop(reader);
        assert!(hung_up(&writer));
        assert!(!hung_up(&std::fs::File::open("/dev/null").unwrap()));
    }

    #[test]
    fn a_browser_that_left_is_noticed() {
        let [browser, client] = connected();
        let (proxy, _kubectl) = UnixStream::pair().unwrap();
        assert!(!has_left(&client));
        let waits = std::thread::spawn(move || {
            let kind = await_answer(&client, &proxy, LONG).unwrap_err().kind();
            (kind, has_left(&client))
        });
        drop(browser);
        assert_eq!(waits.join().unwrap(), (io::ErrorKind::ConnectionAborted, true));
    }

    #[test]
    fn an_answer_is_awaited_for_a_time() {
        let [mut browser, client] = connected();
        let (proxy, mut kubectl) = UnixStream::pair().unwrap();
        // More of a browser that stays is no end.
        browser.write_all(b"x").unwrap();
        let kind = await_answer(&client, &proxy, Duration::from_millis(20)).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::TimedOut);
        assert!(!has_left(&client));
        kubectl.write_all(b"H").unwrap();
        await_answer(&client, &proxy, LONG).unwrap();
    }
}
