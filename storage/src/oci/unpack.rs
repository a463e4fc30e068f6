//! Unpacks a layer as a stream: plain tar, gzip or zstd, distinguished by their first bytes, never more than allowed.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The error inside an [`io::Error`] when a layer becomes larger than allowed.
#[derive(Debug, thiserror::Error)]
#[error("the layer unpacks to more than {most_bytes} bytes, which is more than its size allows")]
pub(super) struct UnpackedTooLarge {
    pub(super) most_bytes: u64,
}

/// Unpacks `packed`; reading fails with [`UnpackedTooLarge`] after `most_bytes`.
pub(super) fn unpack<'a>(mut packed: impl BufRead + 'a, most_bytes: u64) -> io::Result<Box<dyn Read + 'a>> {
    let start = packed.fill_buf()?;
    let plain: Box<dyn Read + 'a> = if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(packed))
    } else if is_zstd(start) {
        Box::new(Zstd { packed, frame: FrameDecoder::new(), begun: false })
    } else {
        Box::new(packed)
    };
    Ok(Box::new(Bounded { plain, left: most_bytes, most_bytes }))
}

/// A zstd frame, or a skippable one, with which layers for lazy pulling begin.
fn is_zstd(start: &[u8]) -> bool {
    matches!(start, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

struct Bounded<R> {
    plain: R,
    left: u64,
    most_bytes: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.plain.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(UnpackedTooLarge { most_bytes: self.most_bytes })),
        }
        Ok(read)
    }
}

/// All frames of a zstd stream, one after the other; the decoder itself stops after the first.
struct Zstd<R> {
    packed: R,
    frame: FrameDecoder,
    begun: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; `false` at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.packed.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.frame.reset(&mut self.packed) {
                Ok(()) => {
                    self.begun = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let wanted = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.packed).take(wanted), &mut io::sink())?;
                    if skipped != wanted {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.begun && self.frame.can_collect() > 0 {
                return self.frame.read(buffer);
            }
            if self.begun && !self.frame.is_finished() {
                self.frame
                    .decode_blocks(&mut self.packed, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            } else if !self.next_frame()? {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{gzip, zstd};
    use super::*;

    fn all(packed: &[u8], most: u64) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        unpack(packed, most)?.read_to_end(&mut plain)?;
        Ok(plain)
    }

    fn content() -> Vec<u8> {
        (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect()
    }

    #[test]
    fn each_packing_is_recognised_and_several_parts_are_joined() {
        let content = content();
        let twice = [content.clone(), content.clone()].concat();
        assert!(all(&content, u64::MAX).unwrap() == content);
        assert!(all(&gzip(&content), u64::MAX).unwrap() == content);
        assert!(all(&zstd(&content), u64::MAX).unwrap() == content);
        assert!(all(&[gzip(&content), gzip(&content)].concat(), u64::MAX).unwrap() == twice);
        // A skippable frame before, between and after, as zstd:chunked writes them.
        let skip = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let chunked = [&skip[..], &zstd(&content), &skip, &zstd(&content), &skip].concat();
        assert!(all(&chunked, u64::MAX).unwrap() == twice);
    }

    #[test]
    fn the_real_tool_is_understood() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("content");
        std::fs::write(&path, content()).unwrap();
        for arguments in [["-3", "-c"], ["-19", "-c"]] {
            let Ok(out) = std::process::Command::new("zstd").args(arguments).arg(&path).output() else {
                eprintln!("skipped: no zstd");
                return;
            };
            assert!(all(&out.stdout, u64::MAX).unwrap() == content());
        }
    }

    #[test]
    fn a_bomb_stops_at_its_limit() {
        let zeros = vec![0; 10 << 20];
        for packed in [gzip(&zeros), zstd(&zeros)] {
            let error = all(&packed, 1 << 20).unwrap_err();
            assert!(error.get_ref().is_some_and(|cause| cause.is::<UnpackedTooLarge>()), "{error}");
            assert!(all(&packed, 10 << 20).is_ok());
        }
    }

    #[test]
    fn damage_is_an_error_not_an_end() {
        for packed in [gzip(&content()), zstd(&content())] {
            assert!(all(&packed[..packed.len() / 2], u64::MAX).is_err());
            let mut changed = packed.clone();
            changed[5] = 0xff;
            let _ = all(&changed, u64::MAX);
        }
    }
}
