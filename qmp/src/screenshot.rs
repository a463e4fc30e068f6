//! A picture of the screen, in memory: QEMU writes it into a memfd, so that it opens no file.
//!
//! QEMU cannot handle an error of writing a PNG (`png_save` in `ui/console.c`, 7.2 to 10.0, has no handler for libpng's errors, which
//! then ends the process): a pipe whose reader goes, a full disk, or a memfd that may not grow would end the guest. So nothing
//! limits the file while it is written. Its size is that of the screen, which the memory of the graphics device limits.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::command::Request;
use crate::connection::Monitor;
use crate::error::CallError;
use crate::qmp;
use crate::result_set::{self, ResultSetError};

/// What every PNG begins with.
const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// How long QEMU may take: a client waits. Compressing a screen takes it a tenth of a second.
const LIMIT: Duration = Duration::from_secs(10);

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum ScreenshotError {
    /// There is no memory for it.
    #[error("could not make a file in memory")]
    Memory(#[source] io::Error),
    /// QEMU did not take the file.
    #[error("could not give QEMU a file for the picture")]
    Offer(#[source] CallError),
    /// It holds earlier ones, which it closes only while the guest runs.
    #[error("QEMU still has {0} earlier results open, which it closes while the guest runs; resume the guest first")]
    Held(usize),
    /// QEMU did not write it.
    #[error("QEMU did not write a picture of the screen")]
    Dump(#[source] CallError),
    /// What it wrote cannot be read.
    #[error("could not read the picture")]
    Read(#[source] io::Error),
    /// It wrote something else.
    #[error("what QEMU wrote is no PNG")]
    NoPng,
}

impl From<ResultSetError> for ScreenshotError {
    fn from(error: ResultSetError) -> Self {
        match error {
            ResultSetError::Pass(error) => Self::Offer(error),
            ResultSetError::Held(count) => Self::Held(count),
        }
    }
}

impl Monitor {
    /// The screen as PNG (`screendump`), and its size in bytes. The file is read from its beginning.
    pub async fn screenshot(&self) -> Result<(File, u64), ScreenshotError> {
        let (mut file, writable) = memory().map_err(ScreenshotError::Memory)?;
        let set = result_set::offer(self, writable.into()).await?;
        let command = qmp::screendump {
            filename: result_set::path(set),
            format: Some(qmp::ImageFormat::png),
            device: None,
            head: None,
        };
        let dumped = self.send(Request::of(&command).within(LIMIT)).await;
        result_set::take_back(self, set).await;
        dumped.map_err(ScreenshotError::Dump)?;
        let mut begin = [0; SIGNATURE.len()];
        // QEMU has another descriptor with a position of its own.
        let read = file.rewind().and_then(|()| file.read_exact(&mut begin)).and_then(|()| file.rewind());
        match read {
            Ok(()) if begin == SIGNATURE => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(ScreenshotError::Read(error)),
            Ok(()) | Err(_) => return Err(ScreenshotError::NoPng),
        }
        let length = file.metadata().map_err(ScreenshotError::Read)?.len();
        Ok((file, length))
    }

    /// Moves the pointer a little, and back: a screen that the guest switched off for lack of input is switched on by it.
    pub async fn move_pointer(&self) -> Result<(), CallError> {
        for value in [1, -1] {
            let along = |axis| qmp::InputEvent::rel(qmp::InputMoveEvent { axis, value }.into());
            let events = vec![along(qmp::InputAxis::x), along(qmp::InputAxis::y)];
            self.call(&qmp::input_send_event { device: None, head: None, events }).await?;
        }
        Ok(())
    }
}

/// A file in memory, to be read, and the same to be written: QEMU finds a descriptor of a set by its access mode.
fn memory() -> io::Result<(File, File)> {
    let file = File::from(memfd_create("screenshot", MFdFlags::MFD_CLOEXEC)?);
    let writable = OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok((file, writable))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_is_written_by_one_is_read_by_the_other() {
        let (mut file, mut writable) = memory().unwrap();
        writable.write_all(b"picture").unwrap();
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert_eq!(read, "picture");
        assert!(writable.read(&mut [0]).is_err(), "it is open for writing alone");
    }
}
