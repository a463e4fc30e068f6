//! Parts of the record for people, while the machine runs: files of its directory, but for those that may have a secret
//! ([`garboard_protocol::part`]). PID 1 and QEMU write to one of the directories: no link is followed, and sizes are bounded.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use garboard_common::foreign;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::ControlReply;
use garboard_protocol::part::{LONGEST_PART_BYTES, NoPart, PartHead, RecordPart};
use garboard_protocol::paths::Layout;
use garboard_storage::open::OpenError;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::control::answer;

/// Parts that are sent at once: each is in memory until its client has it.
const AT_ONCE: usize = 2;
/// How long a client may take to read one.
const READING: Duration = Duration::from_secs(30);

/// What can be sent of a machine.
#[derive(Clone)]
pub(crate) struct Parts {
    layout: Layout,
    places: Arc<Semaphore>,
}

/// A part that was read.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    bytes: Vec<u8>,
    /// How many bytes come before these.
    left_out: u64,
}

impl Parts {
    /// Those of the machine with these directories.
    pub(super) fn of(layout: Layout) -> Self {
        Self { layout, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Answers a client with a part.
    pub(super) async fn send(&self, stream: &mut UnixStream, part: RecordPart) -> io::Result<()> {
        let Ok(_place) = self.places.try_acquire() else {
            return answer(stream, &ControlReply::NoPart { why: NoPart::Busy }).await;
        };
        let layout = self.layout.clone();
        let found = tokio::task::spawn_blocking(move || read(&layout, part)).await.unwrap_or(Err(NoPart::Unreadable));
        match found {
            Ok(found) => timeout(READING, sent(stream, &found)).await.map_err(io::Error::other)?,
            Err(why) => answer(stream, &ControlReply::NoPart { why }).await,
        }
    }
}

async fn sent(stream: &mut UnixStream, found: &Found) -> io::Result<()> {
    let head = PartHead { bytes: found.bytes.len() as u64, left_out: found.left_out };
    answer(stream, &ControlReply::Part(head)).await?;
    stream.write_all(&found.bytes).await?;
    stream.shutdown().await
}

fn read(layout: &Layout, part: RecordPart) -> Result<Found, NoPart> {
    let name = part.file();
    let directory = layout.directory_of(&name);
    if part.grows() { newest(&directory, &name) } else { whole(&directory, &name) }
}

/// A document.
fn whole(directory: &Path, name: &str) -> Result<Found, NoPart> {
    match foreign::read(directory, name, LONGEST_PART_BYTES) {
        Ok(Some(bytes)) => Ok(Found { bytes, left_out: 0 }),
        Ok(None) => Err(NoPart::Missing),
        Err(OpenError::TooLarge { .. }) => Err(NoPart::TooLong),
        Err(error) => Err(unreadable(name, &error)),
    }
}

/// The end of what grows, from the beginning of a line on. What was in the file before its last cut is beside it.
fn newest(directory: &Path, name: &str) -> Result<Found, NoPart> {
    let (last, length) = end_of(directory, name, LONGEST_PART_BYTES)?.ok_or(NoPart::Missing)?;
    let room = LONGEST_PART_BYTES.saturating_sub(last.len() as u64);
    let (mut bytes, before) = end_of(directory, &format!("{name}.1"), room)?.unwrap_or_default();
    bytes.extend(last);
    let mut left_out = before.saturating_add(length).saturating_sub(bytes.len() as u64);
    if left_out > 0
        && let Some(end) = bytes.iter().position(|byte| *byte == b'\n')
    {
        bytes.drain(..=end);
        left_out = left_out.saturating_add(end as u64).saturating_add(1);
    }
    Ok(Found { bytes, left_out })
}

/// The last bytes of a file, at most so many, and how many it has; nothing if it is not there.
fn end_of(directory: &Path, name: &str, most: u64) -> Result<Option<(Vec<u8>, u64)>, NoPart> {
    let opened = foreign::open_file(directory, name).map_err(|error| unreadable(name, &error))?;
    let Some(file) = opened else { return Ok(None) };
    last_of(file, most).map(Some).map_err(|error| unreadable(name, &error))
}

fn last_of(mut file: File, most: u64) -> io::Result<(Vec<u8>, u64)> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    // It may have grown meanwhile, or have been cut.
    let read = bytes.len() as u64;
    Ok((bytes, length.max(read)))
}

fn unreadable(name: &str, error: &(dyn std::error::Error + 'static)) -> NoPart {
    tracing::warn!(name, error = %ErrorChain(error), "a part of the record cannot be read");
    NoPart::Unreadable
}

#[cfg(test)]
mod tests {
    use garboard_protocol::{paths, wire};
    use tokio::io::AsyncReadExt;

    use super::super::control::read_line;
    use super::*;

    const LONGEST: usize = 1 << 20;

    /// A machine's directory.
    fn room() -> (tempfile::TempDir, Layout) {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.order(), layout.supervisor(), layout.init()] {
            std::fs::create_dir(directory).unwrap();
        }
        (room, layout)
    }

    fn write(layout: &Layout, name: &str, bytes: impl AsRef<[u8]>) {
        // What was cut is beside the file.
        let directory = layout.directory_of(name.strip_suffix(".1").unwrap_or(name));
        std::fs::write(directory.join(name), bytes).unwrap();
    }

    /// What a client gets.
    async fn shown(parts: &Parts, part: RecordPart) -> (ControlReply, Vec<u8>) {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let (sent, received) = tokio::join!(parts.send(&mut ours, part), async {
            let reply = wire::decode(&read_line(&mut theirs).await.unwrap()).unwrap();
            let mut bytes = Vec::new();
            if matches!(reply, ControlReply::Part(_)) {
                theirs.read_to_end(&mut bytes).await.unwrap();
            }
            (reply, bytes)
        });
        sent.unwrap();
        received
    }

    #[tokio::test]
    async fn each_part_is_its_file_and_what_is_not_there_is_no_part() {
        let (_room, layout) = room();
        let parts = Parts::of(layout.clone());
        for part in RecordPart::ALL {
            let missing = ControlReply::NoPart { why: NoPart::Missing };
            assert_eq!(shown(&parts, part).await, (missing, Vec::new()), "{part:?}");
            let content = format!("{{\"of\":\"{}\"}}\n", part.file());
            write(&layout, &part.file(), &content);
            let head = PartHead { bytes: content.len() as u64, left_out: 0 };
            assert_eq!(shown(&parts, part).await, (ControlReply::Part(head), content.into_bytes()), "{part:?}");
        }
    }

    #[test]
    fn of_what_grows_the_end_is_read_from_a_line_on_and_over_its_last_cut() {
        let (_room, layout) = room();
        write(&layout, paths::TRANSCRIPT, "c\nd\n");
        write(&layout, &format!("{}.1", paths::TRANSCRIPT), "a\nb\n");
        let found = read(&layout, RecordPart::Qmp).unwrap();
        assert_eq!(found, Found { bytes: b"a\nb\nc\nd\n".to_vec(), left_out: 0 });
        let before = format!("{}\nwhole\n", "x".repeat(LONGEST));
        write(&layout, &format!("{}.1", paths::TRANSCRIPT), &before);
        let found = read(&layout, RecordPart::Qmp).unwrap();
        assert_eq!(found, Found { bytes: b"whole\nc\nd\n".to_vec(), left_out: LONGEST as u64 + 1 });
        // A guest that prints no end of a line.
        write(&layout, &paths::serial_log(0), "x".repeat(LONGEST + 7));
        let found = read(&layout, RecordPart::Serial).unwrap();
        assert_eq!((found.bytes.len(), found.left_out), (LONGEST, 7));
    }

    #[test]
    fn a_document_is_whole_or_none() {
        let (_room, layout) = room();
        write(&layout, paths::PLAN, "x".repeat(LONGEST));
        assert_eq!(read(&layout, RecordPart::Plan).unwrap().bytes.len(), LONGEST);
        write(&layout, paths::PLAN, "x".repeat(LONGEST + 1));
        assert_eq!(read(&layout, RecordPart::Plan), Err(NoPart::TooLong));
    }

    /// QEMU and PID 1 may put anything there; the supervisor can open what they cannot.
    #[test]
    fn a_link_in_the_place_of_a_part_leads_nowhere() {
        let (_room, layout) = room();
        write(&layout, paths::VMI, "s3cr3t-of-the-house");
        for part in [RecordPart::Qemu, RecordPart::Exit] {
            std::os::unix::fs::symlink(layout.order().join(paths::VMI), layout.init().join(part.file())).unwrap();
            assert_eq!(read(&layout, part), Err(NoPart::Unreadable), "{part:?}");
        }
        write(&layout, &paths::serial_log(0), "boot\n");
        nix::unistd::mkfifo(&layout.supervisor().join("serial0.log.1"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read(&layout, RecordPart::Serial), Err(NoPart::Unreadable));
    }

    #[tokio::test]
    async fn few_are_sent_at_once_and_the_next_client_reads_why_not() {
        let (_room, layout) = room();
        // More than a socket takes that nobody reads.
        write(&layout, paths::PLAN, "x".repeat(LONGEST));
        let parts = Parts::of(layout);
        let mut waiting = Vec::new();
        for _ in 0..AT_ONCE {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let parts = parts.clone();
            tokio::spawn(async move { parts.send(&mut ours, RecordPart::Plan).await });
            read_line(&mut theirs).await.unwrap();
            waiting.push(theirs);
        }
        let busy = ControlReply::NoPart { why: NoPart::Busy };
        assert_eq!(shown(&parts, RecordPart::Plan).await.0, busy);
        let mut rest = Vec::new();
        waiting.pop().unwrap().read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest.len(), LONGEST);
        while parts.places.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        let (reply, bytes) = shown(&parts, RecordPart::Plan).await;
        assert!(matches!(reply, ControlReply::Part(_)) && bytes.len() == LONGEST, "{reply:?}");
    }
}
