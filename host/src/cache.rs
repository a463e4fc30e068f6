//! Answers kept between runs of the program: what a QEMU build can do, how fast KVM is.
//!
//! ```text
//! <directory>/<kind>-<hash of the key>.json      first line: format and SHA-256 of the rest
//!                                                rest: {"key": …, "value": …}
//! ```
//!
//! Nothing here is ever needed: a file that is missing, torn, altered, of another format or of another key is the same
//! as none, and the answer is found anew. Files are written beside their place and renamed, so two writers do not
//! disturb each other.
//!
//! A writer of the directory could give us wrong answers about QEMU, so one that others can write to is not
//! used.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Changes when the meaning of a stored value does.
const FORMAT: &str = "garboard-probe-1";

/// The most bytes read from one file; the answers about a QEMU have about 60 KB.
const READ_LIMIT: u64 = 4 << 20;

/// Files of one kind that are kept; beyond that the oldest go.
const KEPT_PER_KIND: usize = 16;

/// A directory of answers, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeCache {
    directory: Option<PathBuf>,
}

#[derive(Serialize)]
struct Stored<'a, T> {
    key: &'a str,
    value: &'a T,
}

#[derive(Deserialize)]
struct Found<T> {
    key: String,
    value: T,
}

impl ProbeCache {
    /// Keeps answers in `directory`, which is made when the first one is stored.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: Some(directory.into()) }
    }

    /// Keeps nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The answer stored under `key`, if there is one that can be trusted.
    pub(crate) fn get<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Option<T> {
        let directory = self.directory.as_deref()?;
        let path = file(directory, kind, key);
        match read(directory, &path) {
            Ok(Some(text)) => decode(&text, key).or_else(|| {
                tracing::debug!(path = %path.display(), "cached answer of QEMU could not be parsed; QEMU is queried again");
                None
            }),
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "cached answer of QEMU could not be read; QEMU is queried again");
                None
            }
        }
    }

    /// Stores an answer. Failing to is not an error: it will be asked for again.
    pub(crate) fn put<T: Serialize>(&self, kind: &str, key: &str, value: &T) {
        let Some(directory) = self.directory.as_deref() else { return };
        let path = file(directory, kind, key);
        let stored = encode(key, value).and_then(|text| write(directory, &path, &text));
        if let Err(error) = stored {
            tracing::debug!(path = %path.display(), %error, "answer not stored");
        }
        forget_oldest(directory, kind);
    }
}

fn file(directory: &Path, kind: &str, key: &str) -> PathBuf {
    directory.join(format!("{kind}-{}.json", &hex(&Sha256::digest(key))[..32]))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn header(body: &str) -> String {
    format!("{FORMAT} {}", hex(&Sha256::digest(body)))
}

fn encode<T: Serialize>(key: &str, value: &T) -> io::Result<String> {
    let body = serde_json::to_string(&Stored { key, value })?;
    Ok(format!("{}\n{body}\n", header(&body)))
}

fn decode<T: DeserializeOwned>(text: &str, key: &str) -> Option<T> {
    let (first, rest) = text.split_once('\n')?;
    let body = rest.strip_suffix('\n')?;
    if first != header(body) {
        return None;
    }
    let found: Found<T> = serde_json::from_str(body).ok()?;
    (found.key == key).then_some(found.value)
}

fn read(directory: &Path, path: &Path) -> io::Result<Option<String>> {
    let opened = match fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    private(directory)?;
    let mut text = String::new();
    opened.take(READ_LIMIT).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Refuses a directory that another user could have written to.
fn private(directory: &Path) -> io::Result<()> {
    let metadata = fs::metadata(directory)?;
    let ours = metadata.uid() == nix::unistd::geteuid().as_raw();
    if ours && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory is not ours alone to write"))
}

fn write(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    private(directory)?;
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&beside)
        .and_then(|mut new| new.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn forget_oldest(directory: &Path, kind: &str) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<(std::time::SystemTime, PathBuf)> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{kind}-")))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    for (_, path) in files.iter().rev().skip(KEPT_PER_KIND) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, ProbeCache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = ProbeCache::at(directory.path().join("probe"));
        (directory, cache)
    }

    #[test]
    fn what_is_stored_comes_back_under_its_key_only() {
        let (_directory, cache) = cache();
        assert_eq!(cache.get::<Vec<u32>>("x", "key"), None);
        cache.put("x", "key", &vec![1, 2, 3]);
        assert_eq!(cache.get("x", "key"), Some(vec![1, 2, 3]));
        assert_eq!(cache.get::<Vec<u32>>("x", "other key"), None);
        assert_eq!(cache.get::<Vec<u32>>("y", "key"), None);
        cache.put("x", "key", &vec![4]);
        assert_eq!(cache.get("x", "key"), Some(vec![4]));
    }

    #[test]
    fn no_alteration_of_a_file_is_accepted() {
        let (_directory, cache) = cache();
        let value = "a string in which a changed letter is still a string".to_owned();
        cache.put("x", "key", &value);
        let path = file(cache.directory.as_deref().unwrap(), "x", "key");
        let good = fs::read(&path).unwrap();
        for position in 0..good.len() {
            let mut altered = good.clone();
            altered[position] ^= 1;
            fs::write(&path, &altered).unwrap();
            assert_eq!(cache.get::<String>("x", "key"), None, "byte {position}");
            fs::write(&path, &good[..position]).unwrap();
            assert_eq!(cache.get::<String>("x", "key"), None, "cut at {position}");
        }
        cache.put("x", "key", &value);
        assert_eq!(cache.get("x", "key"), Some(value), "made again");
    }

    #[test]
    fn a_directory_others_can_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, cache) = cache();
        cache.put("x", "key", &1);
        let directory = cache.directory.as_deref().unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(cache.get::<i32>("x", "key"), None);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let (_directory, cache) = cache();
        for index in 0..KEPT_PER_KIND + 10 {
            cache.put("x", &index.to_string(), &index);
        }
        let count = fs::read_dir(cache.directory.as_deref().unwrap()).unwrap().count();
        assert_eq!(count, KEPT_PER_KIND);
    }

    #[test]
    fn without_a_place_nothing_is_kept_and_nothing_fails() {
        let unwritable = ProbeCache::at("/proc/there/is/no/place");
        for cache in [ProbeCache::none(), unwritable] {
            cache.put("x", "key", &1);
            assert_eq!(cache.get::<i32>("x", "key"), None);
        }
    }
}
