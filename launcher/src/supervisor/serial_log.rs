//! The file QEMU appends every serial byte to. It outlives supervisors, so it is where scroll-back comes
//! from after a restart, and what a viewer that comes again has missed. The guest decides how much it prints; we decide how much is kept.
//!
//! ```text
//!   what was printed  ├──────────────────────┬───────────────────┬───────────────┤ end
//!   the files                    ├─ log.1 ───┼─ log ─────────────┼───────────────┼─┤ QEMU may be ahead of us
//!   the console's memory                     ┊ begins            ├─ last ────────┤
//! ```
//!
//! QEMU writes a byte to the console first, then to the file, so that the file has what the console has in the same order. Where in the file
//! the console is follows from its last bytes, which are looked for there ([`SerialLog::find`]): bytes that a cut has lost, or a full
//! disk, shift what follows them, and what was printed before is not taken from the log any more.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// When the log is longer it is copied beside and emptied. QEMU appends (`O_APPEND`), so it goes on at the
/// new end; bytes printed between the copy and the cut are lost from the log, not from the console.
const MAX_BYTES: u64 = 1024 * 1024;
/// After how many bytes the console is looked for again in a log that was cut, until it is found behind the cut.
const LOOK_EVERY: u64 = 64 * 1024;
/// How much may be on its way to us that is in the file, bytes: more than a socket holds (Linux: 208 KiB).
const AHEAD: usize = 256 * 1024;
/// How much of what we have read may not be in the file yet, bytes: more than QEMU writes at once.
const LAG: usize = 4096;
/// So much has to be the same in the file, bytes.
const LEAST: usize = 32 * 1024;

/// What a console has printed.
#[derive(Clone, Copy)]
pub(super) struct Printed<'a> {
    /// How many bytes.
    pub(super) end: u64,
    /// The last ones.
    pub(super) last: &'a [u8],
}

impl Printed<'_> {
    /// How many bytes came before the last ones.
    fn begin(self) -> u64 {
        self.end.saturating_sub(self.last.len() as u64)
    }
}

/// Where the log is in what was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// How many bytes were printed before the first one of the file. Less than none, if a console before this one read it.
    begins: i64,
    /// From here on nothing is missing in the two files.
    whole_from: u64,
}

pub(super) struct SerialLog {
    path: PathBuf,
    /// Bytes since the last cut.
    length: u64,
    /// Bytes since the last look.
    unseen: u64,
    place: Option<Place>,
    /// The place was found behind the last cut.
    is_sure: bool,
}

impl SerialLog {
    pub(super) fn new(path: PathBuf) -> Self {
        let length = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
        Self { path, length, unseen: 0, place: None, is_sure: false }
    }

    /// The last bytes of the log, at most `bytes`, also those before its last cut; empty if it cannot be read.
    pub(super) fn tail(&self, bytes: usize) -> Vec<u8> {
        let last = read_tail(&self.path, bytes as u64).unwrap_or_default();
        let missing = bytes.saturating_sub(last.len()) as u64;
        let mut tail = read_tail(&self.before(), missing).unwrap_or_default();
        tail.extend(last);
        tail
    }

    /// What was printed from `from` on and is not among the last bytes any more, as far back as nothing is missing in the log; empty
    /// where the last bytes are not found there.
    pub(super) fn older(&mut self, from: u64, printed: Printed<'_>) -> Vec<u8> {
        if from >= printed.begin() || !self.find(printed) {
            return Vec::new();
        }
        let Some(place) = self.place else { return Vec::new() };
        let before = std::fs::metadata(self.before()).map(|metadata| metadata.len()).unwrap_or(0);
        let first = u64::try_from(place.begins.saturating_sub_unsigned(before)).unwrap_or(0);
        let from = from.max(first).max(place.whole_from);
        let count = usize::try_from(printed.begin().saturating_sub(from)).unwrap_or(0);
        self.read(place, from, count).ok().filter(|read| read.len() == count).unwrap_or_default()
    }

    /// What was in the log before its last cut.
    fn before(&self) -> PathBuf {
        self.path.with_extension("log.1")
    }

    /// QEMU has appended this much. Whether [`SerialLog::look`] is due.
    pub(super) fn note_appended(&mut self, bytes: usize) -> bool {
        self.length += bytes as u64;
        self.unseen += bytes as u64;
        self.length > MAX_BYTES || (!self.is_sure && self.unseen >= LOOK_EVERY)
    }

    /// Finds the console in the log, and cuts the log when it is due.
    pub(super) fn look(&mut self, printed: Printed<'_>) {
        self.unseen = 0;
        let is_found = self.find(printed);
        let compared = i64::try_from(printed.end).unwrap_or(i64::MAX).saturating_sub_unsigned(2 * LAG as u64);
        self.is_sure = is_found && self.place.is_some_and(|place| place.begins <= compared);
        if self.length <= MAX_BYTES {
            return;
        }
        let place = self.place.take().filter(|_| is_found);
        match self.cut() {
            Ok(copied) => {
                self.place = place.map(|place| Place { begins: place.begins.saturating_add_unsigned(copied), ..place });
            }
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "could not cut the serial log"),
        }
        (self.length, self.is_sure) = (0, false);
    }

    /// How many bytes it had.
    fn cut(&self) -> io::Result<u64> {
        let copied = std::fs::copy(&self.path, self.before())?;
        OpenOptions::new().write(true).open(&self.path)?.set_len(0)?;
        Ok(copied)
    }

    /// Whether the last bytes of the console are in the log: where they should be, or else in one place alone near its end.
    fn find(&mut self, printed: Printed<'_>) -> bool {
        let (compared, _) = printed.last.split_at(printed.last.len().saturating_sub(LAG));
        if compared.len() < LEAST {
            return false;
        }
        let begin = printed.begin();
        let is_there = |place| self.read(place, begin, compared.len()).is_ok_and(|read| read == compared);
        if self.place.is_some_and(is_there) {
            return true;
        }
        let found = self.search(compared, begin).map(|begins| Place { begins, whole_from: begin });
        self.place = found.or(self.place);
        found.is_some()
    }

    /// Where the file begins whose end has these bytes, before which `begin` were printed.
    fn search(&self, bytes: &[u8], begin: u64) -> Option<i64> {
        let (skipped, end) = read_end(&self.path, (bytes.len() + LAG + AHEAD) as u64).ok()?;
        let index = skipped + only_place(&end, bytes)? as u64;
        Some(i64::try_from(begin).ok()?.saturating_sub_unsigned(index))
    }

    /// What was printed from `from` on, so many bytes; fewer where the log ends. No more are read: a QEMU that was taken over may make the log
    /// as long as it likes.
    fn read(&self, place: Place, from: u64, count: usize) -> io::Result<Vec<u8>> {
        let index = i64::try_from(from).unwrap_or(i64::MAX).saturating_sub(place.begins);
        let before_cut = u64::try_from(index.saturating_neg()).unwrap_or(0);
        let mut read = Vec::new();
        if before_cut > 0 {
            let mut file = File::open(self.before())?;
            let begin = file.metadata()?.len().checked_sub(before_cut).ok_or(ErrorKind::UnexpectedEof)?;
            file.seek(SeekFrom::Start(begin))?;
            let wanted = before_cut.min(count as u64);
            if file.take(wanted).read_to_end(&mut read)? as u64 != wanted {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(u64::try_from(index).unwrap_or(0)))?;
        file.take((count - read.len()) as u64).read_to_end(&mut read)?;
        Ok(read)
    }
}

/// The last bytes of a file.
pub(super) fn read_tail(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    read_end(path, bytes).map(|(_, tail)| tail)
}

/// The last bytes of a file, and how many come before them.
fn read_end(path: &Path, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
    let mut file = File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(bytes);
    file.seek(SeekFrom::Start(skipped))?;
    let mut tail = Vec::new();
    file.take(bytes).read_to_end(&mut tail)?;
    Ok((skipped, tail))
}

/// Where `needle` lies, if it lies in one place alone. It takes as long as both are, whatever a guest prints (Knuth, Morris and Pratt, 1977).
fn only_place(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let borders = borders(needle);
    let (mut found, mut matched) = (None, 0);
    for (index, byte) in hay.iter().enumerate() {
        matched = matched_with(needle, &borders, matched, *byte);
        if matched == needle.len() && found.replace(index + 1 - matched).is_some() {
            return None;
        }
    }
    found
}

/// Of each beginning of the needle: how long its longest end is that the needle begins with, too.
fn borders(needle: &[u8]) -> Vec<usize> {
    let mut borders = vec![0; needle.len()];
    for (index, byte) in needle.iter().enumerate().skip(1) {
        borders[index] = matched_with(needle, &borders, borders[index - 1], *byte);
    }
    borders
}

/// How much of the needle is matched with one more byte.
fn matched_with(needle: &[u8], borders: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && needle.get(matched) != Some(&byte) {
        matched = borders[matched - 1];
    }
    if needle.get(matched) == Some(&byte) { matched + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What the console keeps.
    const KEPT: usize = 128 * 1024;

    /// A guest whose lines are all different, QEMU, and the console.
    struct Guest {
        directory: tempfile::TempDir,
        qemu: File,
        printed: Vec<u8>,
        log: SerialLog,
    }

    impl Guest {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("serial0.log");
            let qemu = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            Self { directory, qemu, printed: Vec::new(), log: SerialLog::new(path) }
        }

        /// QEMU appends it, or has no room, and the console reads it.
        fn print(&mut self, text: &[u8], has_room: bool) {
            self.printed.extend(text);
            if has_room {
                self.qemu.write_all(text).unwrap();
            }
            if self.log.note_appended(text.len()) {
                self.log.look(last(&self.printed));
            }
        }

        fn print_lines(&mut self, bytes: usize) {
            let until = self.printed.len() + bytes;
            while self.printed.len() < until {
                let line = format!("line {}\n", self.printed.len());
                self.print(line.as_bytes(), true);
            }
        }

        /// How much of what follows the place and is not kept any more is known, and whether it is what was printed.
        fn older(&mut self, from: usize) -> (usize, bool) {
            let printed = last(&self.printed);
            let older = self.log.older(from as u64, printed);
            let behind = usize::try_from(printed.begin()).unwrap();
            (older.len(), self.printed[..behind].ends_with(&older))
        }

        fn cuts(&self) -> bool {
            self.directory.path().join("serial0.log.1").exists()
        }
    }

    fn last(printed: &[u8]) -> Printed<'_> {
        Printed { end: printed.len() as u64, last: &printed[printed.len().saturating_sub(KEPT)..] }
    }

    #[test]
    fn what_the_console_does_not_keep_is_in_the_log_also_over_a_cut() {
        let mut guest = Guest::new();
        guest.print_lines(700_000);
        let behind = guest.printed.len() - KEPT;
        assert_eq!((guest.older(5), guest.older(behind), guest.cuts()), ((behind - 5, true), (0, true), false));
        guest.print_lines(800_000);
        let behind = guest.printed.len() - KEPT;
        assert_eq!(
            (guest.older(5), guest.older(1_200_000), guest.cuts()),
            ((behind - 5, true), (behind - 1_200_000, true), true)
        );
        // Both files together are as long as this at least.
        guest.print_lines(4_000_000);
        let (known, is_true) = guest.older(5);
        assert!(
            is_true && known + KEPT > usize::try_from(MAX_BYTES).unwrap() && known < 4_000_000,
            "{known} {is_true}"
        );
    }

    #[test]
    fn what_comes_before_bytes_that_the_log_lost_is_not_known() {
        let mut guest = Guest::new();
        guest.print_lines(300_000);
        guest.print(b"on a full disk\n", false);
        guest.print_lines(10_000);
        assert_eq!(guest.older(100), (0, true), "the end of the log is another one");
        guest.print_lines(300_000);
        assert_eq!(guest.older(100), (0, true), "something is missing between");
        let since = guest.printed.len() - KEPT;
        guest.print_lines(300_000);
        let behind = guest.printed.len() - KEPT;
        assert_eq!(guest.older(100), (behind - since, true), "from where it was found again");
        // Another cut that loses bytes.
        while !guest.cuts() {
            guest.print_lines(1000);
        }
        guest.print(b"between copy and cut\n", false);
        guest.print_lines(400_000);
        let (known, is_true) = guest.older(100);
        assert!(is_true && known > 0 && known < 400_000, "{known} {is_true}");
    }

    #[test]
    fn a_guest_that_prints_the_same_again_and_again_is_not_found_by_that() {
        let mut guest = Guest::new();
        for _ in 0..400 {
            guest.print(&[b'x'; 1024], true);
        }
        assert_eq!(guest.older(100), (0, true));
    }

    #[test]
    fn the_end_of_the_log_may_be_on_its_way_either_way() {
        let mut guest = Guest::new();
        guest.print_lines(300_000);
        // QEMU has appended what the console has not read.
        guest.qemu.write_all(&[b'-'; 200_000]).unwrap();
        let behind = guest.printed.len() - KEPT;
        assert_eq!(guest.older(7), (behind - 7, true));
        let mut guest = Guest::new();
        guest.print_lines(300_000);
        // The console has read what QEMU has not appended.
        guest.print(&[b'-'; 100], false);
        let behind = guest.printed.len() - KEPT;
        assert_eq!(guest.older(7), (behind - 7, true));
    }

    #[test]
    fn of_a_log_of_any_length_so_many_bytes_are_read_as_are_asked_for() {
        let guest = Guest::new();
        std::fs::write(guest.log.before(), b"0123456789").unwrap();
        (&guest.qemu).write_all(b"abcdef").unwrap();
        let read = |begins: i64, from: u64, count: usize| {
            guest.log.read(Place { begins, whole_from: 0 }, from, count).map(|bytes| String::from_utf8(bytes).unwrap())
        };
        for (begins, from, count, expected) in [
            (10, 0, 3, "012"),
            (10, 8, 4, "89ab"),
            (10, 10, 2, "ab"),
            (10, 14, 9, "ef"),
            (0, 2, 2, "cd"),
            (-3, 0, 2, "de"),
        ] {
            assert_eq!(read(begins, from, count).unwrap(), expected, "{begins} {from} {count}");
        }
        assert_eq!(read(11, 0, 3).unwrap_err().kind(), ErrorKind::UnexpectedEof, "it is not there any more");
    }

    #[test]
    fn a_place_is_one_alone() {
        assert_eq!(only_place(b"abcabcabd", b"abcabd"), Some(3));
        assert_eq!(only_place(b"aabaaab", b"aab"), None, "two");
        assert_eq!(only_place(b"aaaa", b"aaa"), None, "they overlap");
        assert_eq!(only_place(b"abcd", b"bd"), None);
        assert_eq!(only_place(b"", b"a"), None);
    }

    #[test]
    fn a_chatty_guest_does_not_fill_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("serial0.log");
        let mut qemu = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let mut log = SerialLog::new(path.clone());
        let line = vec![b'z'; 64 * 1024];
        for count in 1..=64 {
            qemu.write_all(&line).unwrap();
            if log.note_appended(line.len()) {
                log.look(Printed { end: count * 64 * 1024, last: &line });
            }
        }
        let kept = std::fs::metadata(&path).unwrap().len();
        let before = std::fs::metadata(path.with_extension("log.1")).unwrap().len();
        assert!(kept <= MAX_BYTES && before <= MAX_BYTES + line.len() as u64, "{kept} {before}");
        assert_eq!(SerialLog::new(path).tail(10).len(), 10);
    }

    #[test]
    fn the_end_of_a_log_that_was_just_cut_is_that_of_both_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("serial0.log");
        std::fs::write(&path, "before the cut, ").unwrap();
        let mut log = SerialLog::new(path.clone());
        assert!(log.note_appended(usize::try_from(MAX_BYTES).unwrap()));
        log.look(Printed { end: MAX_BYTES, last: b"before the cut, " });
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"after").unwrap();
        let next = SerialLog::new(path);
        assert_eq!(next.tail(9), b"ut, after");
        assert_eq!(next.tail(100), b"before the cut, after");
    }
}
