//! Names for the two trees: short capitals for ISO 9660 proper, long UCS-2 ones for Joliet. Both unique in a directory.

use std::collections::{HashMap, HashSet};

/// Longest stem and extension of ISO 9660 level 1.
const ISO_STEM: usize = 8;
const ISO_EXTENSION: usize = 3;
/// Longest Joliet name in UCS-2 units.
const JOLIET_UNITS: usize = 64;
/// Where a Joliet extension is cut, so that the stem always has room.
const JOLIET_EXTENSION: usize = 16;

/// What is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
}

/// Gives names out, each once. One per directory and tree.
#[derive(Debug, Default)]
pub(super) struct Names {
    given: HashSet<String>,
    /// Where counting goes on for a stem and extension that clashed.
    next: HashMap<String, usize>,
}

impl Names {
    /// The identifier in the primary tree: `STEM.EXT;1`, or `STEM` for a directory.
    pub(super) fn iso(&mut self, name: &str, kind: Kind) -> Vec<u8> {
        let plain = |text: &str, most: usize| -> String {
            let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            text.chars().map(letter).take(most).collect()
        };
        let (stem, extension) = match kind {
            Kind::File => split(name),
            Kind::Directory => (name, ""),
        };
        let parts = (plain(stem, ISO_STEM), plain(extension, ISO_EXTENSION));
        let (stem, extension) = self.unique(parts, ISO_STEM);
        match kind {
            Kind::Directory => stem.into_bytes(),
            Kind::File => format!("{stem}.{extension};1").into_bytes(),
        }
    }

    /// The identifier in the Joliet tree, big-endian UCS-2: the name itself wherever Joliet can hold it.
    pub(super) fn joliet(&mut self, name: &str, kind: Kind) -> Vec<u8> {
        let allowed = |c: char| if c as u32 > 0xffff || c.is_control() || "*/:;?\\".contains(c) { '_' } else { c };
        let clean: String = name.chars().map(allowed).collect();
        let (stem, extension) = match kind {
            Kind::File => split(&clean),
            Kind::Directory => (clean.as_str(), ""),
        };
        let extension: String = extension.chars().take(JOLIET_EXTENSION).collect();
        let room = JOLIET_UNITS - if extension.is_empty() { 0 } else { extension.chars().count() + 1 };
        let (stem, extension) = self.unique((stem.chars().take(room).collect(), extension), room);
        let mut full = stem;
        if !extension.is_empty() {
            full.push('.');
            full.push_str(&extension);
        }
        if kind == Kind::File {
            full.push_str(";1");
        }
        full.encode_utf16().flat_map(u16::to_be_bytes).collect()
    }

    /// Replaces the end of the stem by a number while the pair is taken. `most`: characters a stem may have.
    fn unique(&mut self, (stem, extension): (String, String), most: usize) -> (String, String) {
        let whole = |stem: &str| format!("{stem}.{extension}");
        if self.given.insert(whole(&stem)) {
            return (stem, extension);
        }
        let counter = self.next.entry(whole(&stem)).or_insert(1);
        loop {
            let number = counter.to_string();
            *counter += 1;
            let short: String = stem.chars().take(most - number.len()).collect();
            let candidate = short + &number;
            if self.given.insert(whole(&candidate)) {
                return (candidate, extension);
            }
        }
    }
}

/// Stem and extension; a leading dot begins no extension.
fn split(name: &str) -> (&str, &str) {
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, extension),
        _ => (name, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joliet(names: &mut Names, name: &str) -> String {
        let units: Vec<u16> =
            names.joliet(name, Kind::File).chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        String::from_utf16(&units).unwrap()
    }

    #[test]
    fn iso_names_are_short_capitals_and_unique() {
        let mut names = Names::default();
        assert_eq!(names.iso("user-data", Kind::File), b"USER_DAT.;1");
        assert_eq!(names.iso("user-data.bak", Kind::File), b"USER_DAT.BAK;1");
        assert_eq!(names.iso("user-data2", Kind::File), b"USER_DA1.;1");
        assert_eq!(names.iso("user-data3", Kind::File), b"USER_DA2.;1");
        assert_eq!(names.iso("openstack", Kind::Directory), b"OPENSTAC");
        assert_eq!(names.iso(".dockerconfigjson", Kind::File), b"_DOCKERC.;1");
    }

    #[test]
    fn joliet_names_are_the_real_ones_where_they_fit() {
        let mut names = Names::default();
        assert_eq!(joliet(&mut names, "meta_data.json"), "meta_data.json;1");
        assert_eq!(joliet(&mut names, "Größe"), "Größe;1");
        assert_eq!(joliet(&mut names, "a:b"), "a_b;1");
        assert_eq!(joliet(&mut names, "😀"), "_;1");
        let long = format!("{}.yaml", "x".repeat(100));
        let first = joliet(&mut names, &long);
        let second = joliet(&mut names, &long);
        assert_eq!(first.chars().count(), JOLIET_UNITS + 2);
        assert!(first.ends_with(".yaml;1") && second.ends_with("1.yaml;1") && first != second);
    }

    #[test]
    fn a_directory_full_of_clashes_stays_quick() {
        let mut names = Names::default();
        let mut seen = HashSet::new();
        for number in 0..4096 {
            assert!(seen.insert(names.iso(&format!("same-beginning-{number}"), Kind::File)));
        }
    }
}
