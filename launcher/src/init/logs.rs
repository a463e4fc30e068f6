//! Files that QEMU appends to while no supervisor is there to cut them: what a guest prints, and what QEMU prints. In a pod
//! they lie in memory that is charged to the machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use garboard_protocol::launch::Launch;

use super::account::print_error;
use crate::sys::descriptors;

/// How often they are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// When one is longer, it is cut: later than a supervisor does it, which keeps more.
const MAX_BYTES: u64 = 2 * 1024 * 1024;
/// What is kept of it then.
const KEPT_BYTES: u64 = 64 * 1024;

/// The logs of one QEMU.
#[derive(Debug, Default)]
pub(super) struct Logs {
    files: Vec<File>,
    looked: Option<Instant>,
}

impl Logs {
    /// QEMU's own log, which arrives first, and those of its descriptors that the launch calls logs. To be called before
    /// anything is confined: they are opened once more, to be read. One that cannot be opened is left as it is.
    pub(super) fn of(launch: &Launch, arrived: &[OwnedFd]) -> Self {
        let numbered = launch.descriptors.iter().zip(arrived.iter().skip(1));
        let logs = numbered.filter(|(number, _)| launch.logs.contains(number)).map(|(_, file)| file);
        let files = arrived.first().into_iter().chain(logs).filter_map(|file| {
            open_again(file).inspect_err(|error| print_error(&format!("a log cannot be kept short: {error}"))).ok()
        });
        Self { files: files.collect(), looked: None }
    }

    /// Cuts what has grown too long, now and then.
    pub(super) fn truncate_long(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        for file in &self.files {
            if let Err(error) = cut(file) {
                print_error(&format!("could not cut a log: {error}"));
            }
        }
    }
}

fn open_again(file: &OwnedFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = OpenOptions::new().read(true).append(true).open(path)?;
    descriptors::keep_clear(opened.into()).map(File::from)
}

/// QEMU appends (`O_APPEND`), so it goes on at the new end. What it prints between the two steps is lost.
fn cut(mut file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    if length <= MAX_BYTES {
        return Ok(());
    }
    let mut tail = vec![0; usize::try_from(KEPT_BYTES).unwrap_or(0)];
    file.read_exact_at(&mut tail, length - KEPT_BYTES)?;
    file.set_len(0)?;
    file.write_all(&tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_stay_short_without_a_supervisor_and_keep_their_end() {
        let directory = tempfile::tempdir().unwrap();
        let append =
            |name: &str| OpenOptions::new().create(true).append(true).open(directory.path().join(name)).unwrap();
        let (mut qemu, mut serial, disk) = (append("qemu.log"), append("serial0.log"), append("disk"));
        let launch: Launch = serde_json::from_value(serde_json::json!({
            "argv": [], "environment": [], "descriptors": [20, 21], "reopened": [], "identity": null, "logs": [20],
            "readablePaths": [], "devices": [], "usesTcp": false, "hasMonitor": false, "memlockBytes": null, "graceSeconds": 0,
        }))
        .unwrap();
        let arrived = [&qemu, &serial, &disk].map(|file| OwnedFd::from(file.try_clone().unwrap()));
        let mut logs = Logs::of(&launch, &arrived);
        assert_eq!(logs.files.len(), 2, "a disk is not a log");
        let line = vec![b'z'; 1 << 20];
        for _ in 0..4 {
            for file in [&mut qemu, &mut serial] {
                file.write_all(&line).unwrap();
            }
        }
        serial.write_all(b"the end").unwrap();
        logs.truncate_long();
        let size = |file: &File| file.metadata().unwrap().len();
        assert_eq!((size(&qemu), size(&serial)), (KEPT_BYTES, KEPT_BYTES));
        let kept = std::fs::read(directory.path().join("serial0.log")).unwrap();
        assert!(kept.ends_with(b"zthe end"));
        serial.write_all(b", and more").unwrap();
        assert_eq!(size(&serial), KEPT_BYTES + 10, "QEMU goes on at the new end");
    }
}
