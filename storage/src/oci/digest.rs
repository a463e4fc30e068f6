//! Digests: the names of content.

use std::fmt;

use sha2::{Digest as _, Sha256, Sha512};

/// A digest in its usual text form, checked: `sha256:` or `sha512:` and lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Algorithm {
    Sha256,
    Sha512,
}

/// Why a text is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a digest; expected sha256: or sha512: followed by lower-case hexadecimal digits")]
pub struct DigestError {
    /// The text, escaped and cut.
    pub text: String,
}

impl Digest {
    /// Reads a digest.
    ///
    /// # Errors
    /// [`DigestError`] for other algorithms, lengths or characters.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let wrong = || DigestError { text: crate::beneath::shown(text) };
        let (algorithm, hex) = text.split_once(':').ok_or_else(wrong)?;
        let (algorithm, length) = match algorithm {
            "sha256" => (Algorithm::Sha256, 64),
            "sha512" => (Algorithm::Sha512, 128),
            _ => return Err(wrong()),
        };
        if hex.len() != length || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong());
        }
        Ok(Self { algorithm, hex: hex.to_owned() })
    }

    /// The SHA-256 of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::Sha256(Sha256::new());
        hasher.update(bytes);
        hasher.finish()
    }

    /// `sha256/…`, the place below a directory of blobs.
    pub(super) fn place(&self) -> String {
        format!("{}/{}", self.algorithm.name(), self.hex)
    }

    /// `sha256-…`, one file name.
    pub(super) fn file_name(&self) -> String {
        format!("{}-{}", self.algorithm.name(), self.hex)
    }

    /// A hasher of the same algorithm.
    pub(super) fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(Sha512::new()),
        }
    }
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hex)
    }
}

/// A digest in the making.
#[derive(Debug, Clone)]
pub(super) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// A SHA-256.
    pub(super) fn sha256() -> Self {
        Self::Sha256(Sha256::new())
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Digest {
        let (algorithm, bytes) = match self {
            Self::Sha256(hasher) => (Algorithm::Sha256, hasher.finalize().to_vec()),
            Self::Sha512(hasher) => (Algorithm::Sha512, hasher.finalize().to_vec()),
        };
        Digest { algorithm, hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect() }
    }
}

/// Hashes what is read through it.
#[derive(Debug)]
pub(super) struct HashingReader<R> {
    source: R,
    hasher: Hasher,
    bytes: u64,
}

impl<R: std::io::Read> HashingReader<R> {
    pub(super) fn new(source: R, hasher: Hasher) -> Self {
        Self { source, hasher, bytes: 0 }
    }

    /// Reads what is left, and returns the hash and the size of all of it.
    pub(super) fn finish(mut self) -> std::io::Result<(Digest, u64)> {
        std::io::copy(&mut self, &mut std::io::sink())?;
        Ok((self.hasher.finish(), self.bytes))
    }
}

impl<R: std::io::Read> std::io::Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        self.bytes += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_digests_are_taken() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(Digest::parse(empty).unwrap(), Digest::of(b""));
        assert!(Digest::parse(&format!("sha512:{}", "0".repeat(128))).is_ok());
        for text in
            ["", "sha256:", "md5:d41d8cd98f00b204e9800998ecf8427e", &empty.to_uppercase(), "sha256:../../etc/passwd"]
        {
            assert!(Digest::parse(text).is_err(), "{text}");
        }
    }
}
