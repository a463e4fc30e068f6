//! Files that a program in another container of the pod opened for us ([`garboard_protocol::handed`]).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use garboard_agent::scm;
use garboard_protocol::handed::{MAX_ANSWER_BYTES, OPENED, REFUSED};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

/// How long that program may take until it listens, and to answer. It is started before us.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait before it is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerDiskError {
    /// The socket has no listener.
    #[error("no process serves it at {socket}; check that the container of its image runs")]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// It cannot be opened.
    #[error("the container of its image refused: {reason}")]
    Refused {
        /// Its message.
        reason: String,
    },
    /// What came is no answer.
    #[error("the container of its image sent other than one file")]
    Nonsense,
}

/// The file behind a socket, and its path in the image, for messages.
pub(crate) async fn file(socket: &Path) -> Result<(OwnedFd, PathBuf), ContainerDiskError> {
    let silent = |source| ContainerDiskError::Silent { socket: socket.to_owned(), source };
    let stream = connect(socket).await.map_err(silent)?;
    let answer = timeout(PATIENCE, listen(&stream)).await;
    let (bytes, mut descriptors) = answer.map_err(|elapsed| silent(elapsed.into()))?.map_err(silent)?;
    let (kind, text) = bytes.split_first().ok_or(ContainerDiskError::Nonsense)?;
    let text: String = String::from_utf8_lossy(text).escape_debug().collect();
    match (*kind, descriptors.pop()) {
        (OPENED, Some(file)) if descriptors.is_empty() => Ok((file, text.into())),
        (REFUSED, None) => Err(ContainerDiskError::Refused { reason: text }),
        _ => Err(ContainerDiskError::Nonsense),
    }
}

async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(socket).await {
            Err(_) if Instant::now() < deadline => sleep(PAUSE).await,
            result => return result,
        }
    }
}

/// Everything until it hangs up.
async fn listen(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
    while bytes.len() <= MAX_ANSWER_BYTES {
        let receive = || scm::receive(stream.as_fd(), &mut bytes, &mut descriptors);
        if stream.async_io(Interest::READABLE, receive).await? == 0 {
            return Ok((bytes, descriptors));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Answers one connection.
    async fn asked(answer: &'static [u8], with_file: bool) -> Result<(OwnedFd, PathBuf), ContainerDiskError> {
        let room = tempfile::tempdir().unwrap();
        let socket = room.path().join("1.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answering = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let null = std::fs::File::open("/dev/null").unwrap();
            let descriptors: Vec<_> = with_file.then(|| null.as_fd()).into_iter().collect();
            scm::send_all(stream.as_fd(), answer, &descriptors).unwrap();
        });
        let got = file(&socket).await;
        answering.join().unwrap();
        got
    }

    #[tokio::test]
    async fn a_file_comes_with_its_name() {
        assert_eq!(asked(b"o/disk/alpine.img", true).await.unwrap().1, Path::new("/disk/alpine.img"));
    }

    #[tokio::test]
    async fn everything_else_is_refused() {
        let refused = asked(b"nthere are \x1b[2J two", false).await.unwrap_err();
        assert_eq!(refused.to_string(), "the container of its image refused: there are \\u{1b}[2J two");
        for (answer, with_file) in [(&b"o/disk/x"[..], false), (b"n", true), (b"?", true)] {
            assert!(matches!(asked(answer, with_file).await, Err(ContainerDiskError::Nonsense)), "{answer:?}");
        }
    }
}
