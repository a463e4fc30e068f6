//! Where the host's files are read from: `/`, or a directory in its place in a test.
//!
//! Everything this crate reads goes through [`HostRoot`], so that every probe can be shown a host it does not run on.
//! Not for writing.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The most bytes taken from one file. `/proc/cpuinfo` of 512 processors has about 700 KB.
const READ_LIMIT: u64 = 8 << 20;

/// A file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("could not read {path}")]
pub struct ReadError {
    /// The file, with the prefix of the root.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// The root directory of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoot(PathBuf);

impl Default for HostRoot {
    fn default() -> Self {
        Self::real()
    }
}

impl HostRoot {
    /// This host.
    #[must_use]
    pub fn real() -> Self {
        Self("/".into())
    }

    /// A host whose files lie below `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Whether this is the host we run on: only there can questions be answered that are not files.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The real path of `absolute`.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// The text of a file; bytes that are no UTF-8 are replaced, a file beyond 8 MiB is cut.
    ///
    /// # Errors
    /// The file is missing or may not be read.
    pub fn read(&self, absolute: impl AsRef<Path>) -> Result<String, ReadError> {
        let path = self.path(absolute);
        let read = |path: &Path| {
            let mut bytes = Vec::new();
            File::open(path)?.take(READ_LIMIT).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read(&path).map_err(|source| ReadError { path, source })
    }

    /// The text of a file without surrounding white space, or `None` if it cannot be read: for files whose absence
    /// is an answer.
    pub fn read_trimmed(&self, absolute: impl AsRef<Path>) -> Option<String> {
        self.read(absolute).ok().map(|text| text.trim().to_owned())
    }

    /// Names in a directory, sorted; none if it is not there.
    pub fn names_in(&self, absolute: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(absolute)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether something is there.
    pub fn exists(&self, absolute: impl AsRef<Path>) -> bool {
        self.path(absolute).exists()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::HostRoot;

    /// A host made of files: `(path, content)`.
    pub(crate) fn host_of(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let directory = tempfile::tempdir().unwrap();
        let root = HostRoot::at(directory.path());
        for (path, content) in files {
            let path = root.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        (directory, root)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::host_of;
    use super::*;

    #[test]
    fn absolute_paths_stay_below_the_root() {
        let root = HostRoot::at("/srv/fake");
        assert_eq!(root.path("/proc/cpuinfo"), Path::new("/srv/fake/proc/cpuinfo"));
        assert_eq!(HostRoot::real().path("/proc/cpuinfo"), Path::new("/proc/cpuinfo"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let (_directory, root) = host_of(&[]);
        let error = root.read("/proc/meminfo").unwrap_err();
        assert!(error.to_string().ends_with("/proc/meminfo"), "{error}");
        assert_eq!(root.read_trimmed("/proc/meminfo"), None);
    }
}
