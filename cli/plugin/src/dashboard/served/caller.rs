//! Whether what started the dashboard is still there. A terminal that is closed sends SIGHUP. Pipes and sockets, as sshd gives them without
//! `-t`, only end; a dashboard that went on would hold the user's rights open behind a connection that was cut.

use std::fs::File;
use std::io;
#[cfg(unix)]
use std::os::{fd::AsFd, unix::fs::FileTypeExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::presence;

/// Who started it.
#[derive(Debug)]
pub(super) struct Caller {
    input_ended: Arc<AtomicBool>,
}

impl Caller {
    /// From now on its standard input is read to the end, if that is a pipe or a socket; what comes is dropped.
    pub(super) fn watched() -> io::Result<Self> {
        let input_ended = Arc::new(AtomicBool::new(false));
        if ends(&io::stdin()) {
            let ended = Arc::clone(&input_ended);
            std::thread::Builder::new().spawn(move || {
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                ended.store(true, Ordering::SeqCst);
            })?;
        }
        Ok(Self { input_ended })
    }

    /// Whether its standard input has ended, or nothing reads its standard output any more.
    pub(super) fn has_left(&self) -> bool {
        self.input_ended.load(Ordering::SeqCst) || presence::hung_up(&io::stdout())
    }
}

/// Whether an input is a pipe or a socket. Others have ends that say nothing: `/dev/null`, a file.
fn ends(input: &impl AsFd) -> bool {
    let kind = input.as_fd().try_clone_to_owned().and_then(|input| File::from(input).metadata());
    kind.is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pipe_and_a_socket_end_with_their_caller_and_files_do_not() {
        let (pipe, _) = io::pipe().unwrap();
        let (socket, _) = UnixStream::pair().unwrap();
        assert!(ends(&pipe) && ends(&socket));
        assert!(!ends(&File::open("/dev/null").unwrap()) && !ends(&tempfile::tempfile().unwrap()));
    }
}
