//! A reader for tar archives of strangers: one pass, no allocation that the archive chooses, nothing written.
//!
//! Why not the `tar` crate: it keeps long names and PAX headers in memory whatever their size, and its strength, unpacking
//! into a file system, is exactly what is not wanted here. Understood: v7, ustar, PAX (`path`, `size`), GNU long names.
//! Follows POSIX.1-2017 (pax) and the GNU tar manual.

use std::io::{self, Read};

const BLOCK: usize = 512;
/// The most bytes of a PAX header that are kept; extended attributes of real images take a few KiB.
const MOST_PAX_BYTES: u64 = 1 << 20;
/// The most bytes of a GNU long name.
const MOST_NAME_BYTES: u64 = 64 << 10;

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// No tar header where one must be.
    #[error("the layer is not a tar archive, or is damaged; build the image again")]
    NotTar,
    /// It ends in the middle.
    #[error("the archive ends in the middle of an entry; copy or download it again")]
    Truncated,
    /// A header larger than any real one.
    #[error("an entry's header has {bytes} bytes; the archive is not trusted")]
    HeaderTooLarge {
        /// Its size.
        bytes: u64,
    },
    /// A number that is none.
    #[error("an entry of the archive has an impossible size; build it again")]
    Size,
    /// Reading failed.
    #[error("could not read the archive; see the cause")]
    Read(#[source] io::Error),
}

impl From<io::Error> for TarError {
    fn from(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::UnexpectedEof { Self::Truncated } else { Self::Read(source) }
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Directory,
    HardLink,
    SymbolicLink,
    /// A sparse file in one of GNU's encodings.
    Sparse,
    /// Devices, FIFOs and what else there is.
    Other,
}

/// An entry: its content is read from the archive next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Tidied: no leading `./` or `/`. `None` when it climbs, is empty or is no text.
    pub(super) path: Option<String>,
    pub(super) kind: EntryKind,
    pub(super) bytes: u64,
    /// Where the content begins in the archive.
    pub(super) offset: u64,
}

/// A source that can leave bytes out.
pub(super) trait Skip: Read {
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

/// A source that can only be read.
pub(super) struct Stream<R>(pub(super) R);

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> Skip for Stream<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.0).take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Skip for std::fs::File {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        io::Seek::seek_relative(self, bytes)
    }
}

/// An archive being read.
pub(super) struct Tar<S> {
    source: S,
    position: u64,
    /// Content of the present entry not read yet, and the padding behind it.
    content_left: u64,
    padding: u64,
}

/// The content of the headers before an entry.
#[derive(Default)]
struct Ahead {
    path: Option<Vec<u8>>,
    bytes: Option<u64>,
    sparse: bool,
}

impl<S: Skip> Tar<S> {
    pub(super) fn new(source: S) -> Self {
        Self { source, position: 0, content_left: 0, padding: 0 }
    }

    /// The next entry, or the end.
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        let mut ahead = Ahead::default();
        loop {
            self.leave_entry()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let mut bytes = number(&header[124..136])?;
            let kind = header[156];
            match kind {
                b'x' | b'L' => {
                    let most = if kind == b'x' { MOST_PAX_BYTES } else { MOST_NAME_BYTES };
                    if bytes > most {
                        return Err(TarError::HeaderTooLarge { bytes });
                    }
                    self.enter(bytes);
                    let mut content = Vec::new();
                    self.read_to_end(&mut content)?;
                    if self.content_left != 0 {
                        return Err(TarError::Truncated);
                    }
                    if kind == b'x' {
                        pax(&content, &mut ahead)?;
                    } else {
                        ahead.path = Some(until_nul(&content).to_vec());
                    }
                }
                // Headers for all that follows, and long link names: of no interest.
                b'g' | b'K' => self.enter(bytes),
                _ => {
                    bytes = ahead.bytes.unwrap_or(bytes);
                    let path = ahead.path.unwrap_or_else(|| name_of(&header));
                    let kind = kind_of(kind, &path, ahead.sparse);
                    // Whatever else a link or directory claims, no content follows it.
                    if !matches!(kind, EntryKind::File | EntryKind::Sparse | EntryKind::Other) {
                        bytes = 0;
                    }
                    self.enter(bytes);
                    return Ok(Some(Entry { path: tidy(&path), kind, bytes, offset: self.position }));
                }
            }
        }
    }

    fn enter(&mut self, bytes: u64) {
        self.content_left = bytes;
        self.padding = bytes.wrapping_neg() % BLOCK as u64;
    }

    fn leave_entry(&mut self) -> Result<(), TarError> {
        let rest = self.content_left.checked_add(self.padding).ok_or(TarError::Size)?;
        if rest > 0 {
            self.source.skip(rest)?;
            self.position = self.position.checked_add(rest).ok_or(TarError::Size)?;
        }
        (self.content_left, self.padding) = (0, 0);
        Ok(())
    }

    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut block = [0; BLOCK];
        let mut have = 0;
        while have < BLOCK {
            match self.source.read(&mut block[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(TarError::Truncated),
                Ok(read) => have += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.position += BLOCK as u64;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = |from: usize, to: usize| block[from..to].iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let expected = number(&block[148..156]).map_err(|_| TarError::NotTar)?;
        if sum(0, 148) + 8 * u64::from(b' ') + sum(156, BLOCK) != expected {
            return Err(TarError::NotTar);
        }
        Ok(Some(block))
    }
}

impl<S: Skip> Read for Tar<S> {
    /// Reads content of the present entry.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.content_left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.source.read(buffer.get_mut(..most).unwrap_or_default())?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content_left -= read as u64;
        self.position += read as u64;
        Ok(read)
    }
}

fn kind_of(flag: u8, path: &[u8], sparse: bool) -> EntryKind {
    match flag {
        _ if sparse => EntryKind::Sparse,
        // Before POSIX a directory was a file whose name ends in a slash.
        b'0' | 0 if path.ends_with(b"/") => EntryKind::Directory,
        b'0' | 0 | b'7' => EntryKind::File,
        b'1' => EntryKind::HardLink,
        b'2' => EntryKind::SymbolicLink,
        b'5' => EntryKind::Directory,
        b'S' => EntryKind::Sparse,
        _ => EntryKind::Other,
    }
}

/// Octal digits, or GNU's binary numbers with the top bit set.
fn number(field: &[u8]) -> Result<u64, TarError> {
    if let Some((first, rest)) = field.split_first().filter(|(first, _)| **first & 0x80 != 0) {
        // 0x80 begins a positive number; the leading bytes of one that fits are zero.
        if *first != 0x80 {
            return Err(TarError::Size);
        }
        return rest.iter().try_fold(0_u64, |value, byte| {
            value.checked_mul(256).map(|value| value + u64::from(*byte)).ok_or(TarError::Size)
        });
    }
    let text = until_nul(field);
    let digits = text.trim_ascii();
    digits.iter().try_fold(0_u64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8).map(|value| value + u64::from(digit - b'0')).ok_or(TarError::Size),
        _ => Err(TarError::Size),
    })
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The name in a header; ustar splits a long one in two.
fn name_of(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_nul(&header[..100]);
    let prefix = until_nul(&header[345..500]);
    if &header[257..263] == b"ustar\0" && !prefix.is_empty() {
        return [prefix, b"/", name].concat();
    }
    name.to_vec()
}

/// Records of the form `length key=value\n`.
fn pax(mut content: &[u8], ahead: &mut Ahead) -> Result<(), TarError> {
    while !content.is_empty() {
        let space = content.iter().position(|byte| *byte == b' ').ok_or(TarError::NotTar)?;
        let length: usize = std::str::from_utf8(content.get(..space).unwrap_or_default())
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or(TarError::NotTar)?;
        let record = content.get(space + 1..length).ok_or(TarError::NotTar)?;
        content = content.get(length..).unwrap_or_default();
        let record = record.strip_suffix(b"\n").ok_or(TarError::NotTar)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(TarError::NotTar)?;
        let (key, value) = (record.get(..equals).unwrap_or_default(), record.get(equals + 1..).unwrap_or_default());
        match key {
            b"path" => ahead.path = Some(value.to_vec()),
            b"size" => {
                let digits = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                ahead.bytes = Some(digits.ok_or(TarError::Size)?);
            }
            key if key.starts_with(b"GNU.sparse.") => ahead.sparse = true,
            _ => {}
        }
    }
    Ok(())
}

fn tidy(path: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(path).ok()?;
    let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.is_empty() || names.contains(&"..") {
        return None;
    }
    Some(names.join("/"))
}

#[cfg(test)]
mod tests;
