//! The files of a disc, by name.

use std::collections::{BTreeMap, BTreeSet};

use super::{MOST_BYTES, MOST_ENTRIES};
use crate::beneath::{BeneathPath, PathError};

/// Levels of directories that ISO 9660 allows, the root being the first.
const MOST_LEVELS: usize = 8;
/// The longest name: what Linux takes from Rock Ridge (`fs/isofs/rock.c` has room for 254 bytes).
const LONGEST_NAME: usize = 253;

/// The readers of the files inside the guest, once root has mounted the disc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Root alone: user data carries passwords.
    Root,
    /// All users.
    All,
}

/// The files of a disc: paths and contents. Directories come from the paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscTree {
    files: BTreeMap<BeneathPath, Vec<u8>>,
    /// Every path that is taken, directories included.
    taken: BTreeSet<String>,
    readers: Readers,
    content_bytes: usize,
}

/// Why a file does not go onto a disc.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The name is no path.
    #[error("a file of the disc has an impossible name")]
    Path(#[source] PathError),
    /// Too deep or too long for the format.
    #[error("`{path}` does not fit on a disc; use at most 7 directories and names of at most 253 bytes")]
    Shape {
        /// The path.
        path: String,
    },
    /// A name is used as file and as directory, or twice.
    #[error("`{path}` is on the disc already, or is a directory there; give each file a name of its own")]
    Clash {
        /// The path.
        path: String,
    },
    /// Too much content.
    #[error("the disc would hold more than {MOST_BYTES} bytes; put large content on a volume of its own")]
    TooLarge,
    /// Too many files.
    #[error(
        "the disc would hold more than {MOST_ENTRIES} files and directories; put many files on a volume of their own"
    )]
    TooMany,
}

impl DiscTree {
    /// An empty disc.
    pub fn new(readers: Readers) -> Self {
        Self { files: BTreeMap::new(), taken: BTreeSet::new(), readers, content_bytes: 0 }
    }

    /// Adds a file.
    ///
    /// # Errors
    /// [`TreeError`], leaving the tree as it was.
    pub fn add(&mut self, path: &str, content: Vec<u8>) -> Result<(), TreeError> {
        let path = BeneathPath::parse(path).map_err(TreeError::Path)?;
        let shown = || path.as_str().to_owned();
        if path.names().count() >= MOST_LEVELS || path.names().any(|name| name.len() > LONGEST_NAME) {
            return Err(TreeError::Shape { path: shown() });
        }
        let is_file = |name: &str| BeneathPath::parse(name).is_ok_and(|name| self.files.contains_key(&name));
        let directories = directories_of(path.as_str());
        if self.taken.contains(path.as_str()) || directories.iter().any(|name| is_file(name)) {
            return Err(TreeError::Clash { path: shown() });
        }
        let content_bytes = self.content_bytes.saturating_add(content.len());
        if content_bytes > MOST_BYTES {
            return Err(TreeError::TooLarge);
        }
        let fresh = directories.iter().filter(|name| !self.taken.contains(**name)).count() + 1;
        if self.taken.len() + fresh > MOST_ENTRIES {
            return Err(TreeError::TooMany);
        }
        self.content_bytes = content_bytes;
        self.taken.extend(directories.into_iter().map(str::to_owned));
        self.taken.insert(path.as_str().to_owned());
        self.files.insert(path, content);
        Ok(())
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Paths and contents, in order.
    pub fn files(&self) -> impl Iterator<Item = (&BeneathPath, &[u8])> {
        self.files.iter().map(|(path, content)| (path, content.as_slice()))
    }

    /// The readers.
    pub fn readers(&self) -> Readers {
        self.readers
    }
}

/// The directories of a path: `a` and `a/b` for `a/b/c`.
fn directories_of(path: &str) -> Vec<&str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> DiscTree {
        DiscTree::new(Readers::All)
    }

    #[test]
    fn names_that_clash_are_refused_in_either_order() {
        let mut tree = tree();
        tree.add("a/b", vec![]).unwrap();
        for path in ["a", "a/b", "/a//b", "a/b/c"] {
            assert!(matches!(tree.add(path, vec![]), Err(TreeError::Clash { .. })), "{path}");
        }
        tree.add("a/c", vec![]).unwrap();
        tree.add("ab", vec![]).unwrap();
    }

    #[test]
    fn what_the_format_cannot_hold_is_refused() {
        let mut tree = tree();
        assert!(matches!(tree.add("../x", vec![]), Err(TreeError::Path(_))));
        assert!(matches!(tree.add("1/2/3/4/5/6/7/8", vec![]), Err(TreeError::Shape { .. })));
        assert!(matches!(tree.add(&"n".repeat(254), vec![]), Err(TreeError::Shape { .. })));
        assert_eq!(tree.add("big", vec![0; MOST_BYTES + 1]), Err(TreeError::TooLarge));
        tree.add("1/2/3/4/5/6/7", vec![]).unwrap();
        tree.add(&"n".repeat(253), vec![]).unwrap();
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let mut tree = tree();
        for number in 0..MOST_ENTRIES {
            tree.add(&format!("{number}"), vec![]).unwrap();
        }
        assert_eq!(tree.add("one more", vec![]), Err(TreeError::TooMany));
    }
}
