//! Paths that stay beneath a directory, checked when they are read and enforced again by the kernel when they are used.
//!
//! `containerDisk.path`, `kernelBoot.container.kernelPath`, keys of a ConfigMap: names written by a tenant that become
//! paths on the host. Checking the text is not enough (a symbolic link leaves a directory without any `..`), so
//! [`crate::open::Dir`] resolves them with `openat2(2)`, and this type makes sure nothing else is ever resolved.

use std::fmt;
use std::path::Path;

/// The longest path accepted, in bytes: `PATH_MAX` without its terminator.
const LONGEST_PATH: usize = 4095;
/// The longest component accepted, in bytes: `NAME_MAX`.
const LONGEST_NAME: usize = 255;

/// A relative path of ordinary components: never empty, no `.`, no `..`, no NUL, no leading or trailing slash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BeneathPath(String);

/// Why a text is no [`BeneathPath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing, or nothing but slashes.
    #[error("the path is empty; name a file, for example /disk/disk.qcow2")]
    Empty,
    /// `.` or `..` as a component.
    #[error("`{path}` contains `.` or `..`; write the path without them")]
    Dots {
        /// The text, escaped and cut.
        path: String,
    },
    /// A byte that no path may hold.
    #[error("`{path}` contains a control character; remove it")]
    Control {
        /// The text, escaped and cut.
        path: String,
    },
    /// Longer than the kernel takes.
    #[error("`{path}` is too long; a path has at most 4095 bytes and each name in it at most 255")]
    TooLong {
        /// The text, escaped and cut.
        path: String,
    },
}

impl BeneathPath {
    /// Reads a path. A leading slash means the root of whatever directory it is used beneath, so it is dropped, as are
    /// doubled and trailing slashes.
    ///
    /// # Errors
    /// [`PathError`] when the text is empty, climbs, holds control characters or is too long.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.len() > LONGEST_PATH {
            return Err(PathError::TooLong { path: shown(text) });
        }
        let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Err(PathError::Empty);
        }
        for name in &names {
            if *name == "." || *name == ".." {
                return Err(PathError::Dots { path: shown(text) });
            }
            if name.len() > LONGEST_NAME {
                return Err(PathError::TooLong { path: shown(text) });
            }
        }
        if text.chars().any(char::is_control) {
            return Err(PathError::Control { path: shown(text) });
        }
        Ok(Self(names.join("/")))
    }

    /// The path as text, relative.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path as a [`Path`], relative.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The components, from the top.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The last component.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Whether `other` is this path or is beneath it.
    pub fn holds(&self, other: &str) -> bool {
        other.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for BeneathPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Text of a stranger for a message or a log: control characters escaped, at most 200 characters.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 200;
    let mut escaped: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_tidied() {
        assert_eq!(BeneathPath::parse("/disk//a.qcow2/").unwrap().as_str(), "disk/a.qcow2");
        assert_eq!(BeneathPath::parse("boot/vmlinuz").unwrap().file_name(), "vmlinuz");
    }

    #[test]
    fn what_climbs_is_refused() {
        for text in ["../etc/passwd", "/disk/../../x", "a/./b", ".."] {
            assert!(matches!(BeneathPath::parse(text), Err(PathError::Dots { .. })), "{text}");
        }
        // Three dots are a name like any other.
        assert!(BeneathPath::parse("a/...").is_ok());
    }

    #[test]
    fn empty_long_and_control_are_refused() {
        assert_eq!(BeneathPath::parse("///"), Err(PathError::Empty));
        assert!(matches!(BeneathPath::parse("a\0b"), Err(PathError::Control { .. })));
        assert!(matches!(BeneathPath::parse("a\nb"), Err(PathError::Control { .. })));
        assert!(matches!(BeneathPath::parse(&"x".repeat(256)), Err(PathError::TooLong { .. })));
        assert!(matches!(BeneathPath::parse(&"x/".repeat(3000)), Err(PathError::TooLong { .. })));
    }

    #[test]
    fn holding_is_by_component() {
        let disk = BeneathPath::parse("disk").unwrap();
        assert!(disk.holds("disk"));
        assert!(disk.holds("disk/a"));
        assert!(!disk.holds("diskette/a"));
    }

    #[test]
    fn hostile_text_is_shown_escaped_and_cut() {
        assert_eq!(shown("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(shown(&"x".repeat(5000)).chars().count(), 201);
    }
}
