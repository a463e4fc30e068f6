//! A fake that keeps state, and the contract both it and `qemu-img` keep.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use super::{Consistency, Image, ImageError, Images, reasonable};
use crate::qcow2::{Format, HeaderError, ImageFacts, ProbeError};

/// Images in memory, distinguished by the file (device and inode) they are in, as long as it exists; the file itself is never
/// written.
#[derive(Debug, Default)]
pub struct FakeImages {
    known: Mutex<HashMap<(u64, u64), ImageFacts>>,
}

impl FakeImages {
    fn locked<T>(&self, work: impl FnOnce(&mut HashMap<(u64, u64), ImageFacts>) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        work(&mut known)
    }

    fn key(file: &File) -> Result<(u64, u64), ImageError> {
        let metadata = file.metadata().map_err(|source| ImageError::Descriptor { source })?;
        Ok((metadata.dev(), metadata.ino()))
    }
}

impl Images for FakeImages {
    fn facts(&self, image: Image<'_>) -> Result<ImageFacts, ImageError> {
        let key = Self::key(image.file)?;
        let known = self.locked(|known| known.get(&key).copied());
        match known {
            Some(facts) if facts.format == image.format => Ok(facts),
            // A qcow2 read as raw is a file of some length; the fake is not asked for that.
            _ if image.format == Format::Qcow2 => {
                Err(ImageError::Unacceptable(ProbeError::Qcow2(HeaderError::NotQcow2)))
            }
            _ => Err(ImageError::Unacceptable(ProbeError::Empty)),
        }
    }

    fn create(&self, image: Image<'_>, virtual_bytes: u64) -> Result<(), ImageError> {
        reasonable(virtual_bytes)?;
        let key = Self::key(image.file)?;
        self.locked(|known| known.insert(key, ImageFacts { format: image.format, virtual_bytes }));
        Ok(())
    }

    fn grow(&self, image: Image<'_>, virtual_bytes: u64) -> Result<(), ImageError> {
        reasonable(virtual_bytes)?;
        let have_bytes = self.facts(image)?.virtual_bytes;
        if virtual_bytes < have_bytes {
            return Err(ImageError::Shrinks { have_bytes, wanted_bytes: virtual_bytes });
        }
        self.create(image, virtual_bytes)
    }

    fn convert(&self, from: Image<'_>, to: Image<'_>) -> Result<(), ImageError> {
        let facts = self.facts(from)?;
        self.create(to, facts.virtual_bytes)
    }

    fn check(&self, image: Image<'_>) -> Result<Consistency, ImageError> {
        self.facts(image).map(|_| Consistency::Sound)
    }
}

/// What every [`Images`] does; panics where one does not.
///
/// # Panics
/// When the contract is broken, naming where.
#[cfg(test)]
pub(crate) fn contract(images: &dyn Images) {
    const MIB: u64 = 1 << 20;
    // Open to the end, so that no other file of this test gets its inode.
    let empty = tempfile::tempfile().unwrap();
    for format in [Format::Raw, Format::Qcow2] {
        let file = tempfile::tempfile().unwrap();
        let image = Image { file: &file, format };
        images.create(image, 5 * MIB).unwrap();
        assert_eq!(images.facts(image).unwrap(), ImageFacts { format, virtual_bytes: 5 * MIB });
        assert_eq!(images.check(image).unwrap(), Consistency::Sound);
        images.grow(image, 9 * MIB).unwrap();
        images.grow(image, 9 * MIB).unwrap();
        assert_eq!(images.facts(image).unwrap().virtual_bytes, 9 * MIB);
        match images.grow(image, MIB) {
            Err(ImageError::Shrinks { have_bytes, wanted_bytes }) => {
                assert_eq!((have_bytes, wanted_bytes), (9 * MIB, MIB));
            }
            other => panic!("shrinking: {other:?}"),
        }
        for bytes in [0, 513, u64::MAX] {
            assert!(matches!(images.create(image, bytes), Err(ImageError::Size { .. })), "{bytes}");
            assert!(matches!(images.grow(image, bytes), Err(ImageError::Size { .. })), "{bytes}");
        }
        assert_eq!(images.facts(image).unwrap().virtual_bytes, 9 * MIB, "a refusal changes nothing");

        let other_format = if format == Format::Raw { Format::Qcow2 } else { Format::Raw };
        let copy = tempfile::tempfile().unwrap();
        let to = Image { file: &copy, format: other_format };
        images.convert(image, to).unwrap();
        assert_eq!(images.facts(to).unwrap(), ImageFacts { format: other_format, virtual_bytes: 9 * MIB });
    }
    let nothing = Image { file: &empty, format: Format::Qcow2 };
    assert!(matches!(images.facts(nothing), Err(ImageError::Unacceptable(_))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fake_keeps_the_contract() {
        contract(&FakeImages::default());
    }
}
