//! What earlier builds wrote, in `tests/compat`. Tests of several crates include this file.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Names the directory that this build is to write, in the environment.
const WRITE: &str = "GARBOARD_COMPAT";
/// The page with the table of what is there.
const PAGE: &str = "README.md";

/// The directory with one directory for each build.
pub(crate) fn directory() -> PathBuf {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|path| path.join("tests/compat"));
    above.find(|path| path.join(PAGE).exists()).expect("tests/compat")
}

/// The directories of all builds, by name.
pub(crate) fn builds() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory()).expect("tests/compat exists");
    let mut builds: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    builds.sort();
    assert!(!builds.is_empty(), "no build has left its files");
    builds
}

/// A recorded file, and what is in it.
pub(crate) struct Recorded {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Recorded {
    /// Whether this build wrote it.
    pub(crate) fn is_of(&self, build: &str) -> bool {
        self.path.parent().is_some_and(|directory| directory.ends_with(build))
    }
}

/// The files of this name, of every build that has one. That none is missing which was there is the table's to tell.
pub(crate) fn all(name: &str) -> Vec<Recorded> {
    let paths = builds().into_iter().map(|build| build.join(name)).filter(|path| path.exists());
    paths.map(|path| Recorded { bytes: std::fs::read(&path).unwrap(), path }).collect()
}

/// The table of `tests/compat/README.md`: which builds have recorded a kind of file, by the name of the file.
pub(crate) fn table() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(directory().join(PAGE)).expect("tests/compat/README.md");
    let mut rows = page.lines().filter(|line| line.starts_with('|')).map(cells);
    let head = rows.next().expect("a table");
    let columns: Vec<(usize, String)> =
        head.iter().enumerate().filter_map(|(place, cell)| Some((place, quoted(cell)?))).collect();
    let row = |cells: Vec<String>| {
        let is_there = |place: &usize| match cells.get(*place).map(String::as_str) {
            Some("yes") => true,
            Some("–") => false,
            other => panic!("{cells:?}: a cell of a build is `yes` or `–`, not {other:?}"),
        };
        let builds = columns.iter().filter(|(place, _)| is_there(place)).map(|(_, build)| build.clone()).collect();
        (quoted(&cells[0]).unwrap_or_else(|| panic!("{cells:?}: no name of a file")), builds)
    };
    rows.filter(|cells| !cells[0].starts_with("---")).map(row).collect()
}

/// The builds that are columns of that table.
pub(crate) fn columns() -> BTreeSet<String> {
    let page = std::fs::read_to_string(directory().join(PAGE)).expect("tests/compat/README.md");
    let head = page.lines().find(|line| line.starts_with('|')).map(cells).expect("a table");
    head.iter().filter_map(|cell| quoted(cell)).collect()
}

fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn quoted(cell: &str) -> Option<String> {
    Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned())
}

/// Each of these kinds of files has its row in the table.
pub(crate) fn expect_listed<'a>(names: impl IntoIterator<Item = &'a str>) {
    let table = table();
    for name in names {
        assert!(table.contains_key(name), "{name} has no row in the table of tests/compat/README.md");
    }
}

/// Writes what this build writes, if it was asked to. A build is recorded once: what is there is never written again.
pub(crate) fn write(files: &[(&str, Vec<u8>)]) {
    let Ok(build) = std::env::var(WRITE) else { return };
    let place = directory().join(build);
    std::fs::create_dir_all(&place).unwrap();
    let present: Vec<&str> = files.iter().map(|(name, _)| *name).filter(|name| place.join(name).exists()).collect();
    assert!(present.is_empty(), "{} has {present:?} already", place.display());
    for (name, bytes) in files {
        std::fs::File::create_new(place.join(name)).and_then(|mut file| file.write_all(bytes)).unwrap();
    }
}
