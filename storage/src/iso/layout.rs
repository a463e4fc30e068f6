//! Lays a tree out: the sectors of each directory and content; then writes it all.
//!
//! Lengths of directories do not depend on where anything lies, so directories are written twice: once to learn their
//! lengths, once for good.

use std::collections::BTreeMap;

use super::names::{Kind, Names};
use super::record::{
    CONTINUATION_BYTES, Extent, Moment, announcement, attributes, continuation, directory_record, real_name, sectors,
    system_use_room,
};
use super::tree::{DiscTree, Readers};
use super::view::View;
use super::volume::{self, VolumeFacts};
use super::{SECTOR_BYTES, VolumeLabel};

/// Sectors before the path tables: the system area and three descriptors.
const FIRST_FREE_SECTOR: u32 = 19;
/// The root's place in every list of directories.
const ROOT: usize = 0;

/// A file or directory; index into [`Layout::nodes`]. Files keep their content, directories their children.
#[derive(Debug)]
enum Node<'a> {
    Directory { name: &'a str, children: Vec<usize> },
    File { name: &'a str, content: &'a [u8] },
}

impl<'a> Node<'a> {
    fn name(&self) -> &'a str {
        match self {
            Self::Directory { name, .. } | Self::File { name, .. } => name,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Directory { .. } => Kind::Directory,
            Self::File { .. } => Kind::File,
        }
    }
}

/// A directory of one view, in the order of the path table: level, parent, identifier.
#[derive(Debug)]
struct Directory {
    parent: usize,
    identifier: Vec<u8>,
    entries: Vec<Entry>,
}

/// What a directory lists.
#[derive(Debug)]
struct Entry {
    identifier: Vec<u8>,
    node: usize,
    /// Its place among the directories, if it is one.
    directory: Option<usize>,
}

/// Byte order of a path table; a disc has one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

/// A tree as one view sees it.
#[derive(Debug)]
struct Hierarchy {
    view: View,
    directories: Vec<Directory>,
}

/// The places of one view.
#[derive(Debug, Default)]
struct Places {
    directories: Vec<Extent>,
    /// By node.
    contents: BTreeMap<usize, Extent>,
    continuation_sector: u32,
}

/// The directories of a view as bytes, and what did not fit into their records.
struct Written {
    directories: Vec<Vec<u8>>,
    continuation: Vec<u8>,
}

/// A tree, ready to be written.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    nodes: Vec<Node<'a>>,
    readers: Readers,
    moment: Moment,
}

impl<'a> Layout<'a> {
    pub(super) fn of(tree: &'a DiscTree) -> Self {
        let mut nodes = vec![Node::Directory { name: "", children: Vec::new() }];
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        let mut seed = Seed::new();
        for (path, content) in tree.files() {
            seed.mix(path.as_str().as_bytes());
            seed.mix(content);
            let text = path.as_str();
            let mut parent = ROOT;
            for (at, _) in text.match_indices('/') {
                let upto = text.get(..at).unwrap_or_default();
                parent = match known.get(upto) {
                    Some(node) => *node,
                    None => {
                        let name = upto.rsplit('/').next().unwrap_or(upto);
                        let node = append(&mut nodes, parent, Node::Directory { name, children: Vec::new() });
                        known.insert(upto, node);
                        node
                    }
                };
            }
            append(&mut nodes, parent, Node::File { name: path.file_name(), content });
        }
        Self { nodes, readers: tree.readers(), moment: Moment::from_seed(seed.0) }
    }

    pub(super) fn render(&self, label: &VolumeLabel) -> Vec<u8> {
        let mut next = FIRST_FREE_SECTOR;
        let mut take = |bytes: usize| {
            let extent = Extent { sector: next, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) };
            next += sectors(bytes);
            extent
        };
        let views = [View::Primary, View::Joliet].map(|view| Hierarchy::of(&self.nodes, view));
        let tables = views.each_ref().map(|hierarchy| {
            let length = hierarchy.path_table(&[], Order::Little).len();
            (take(length), take(length))
        });
        let mut places = views.each_ref().map(|hierarchy| {
            let measured = self.write(hierarchy, &Places::default());
            let directories = measured.directories.iter().map(|bytes| take(bytes.len())).collect();
            Places {
                directories,
                contents: BTreeMap::new(),
                continuation_sector: take(measured.continuation.len()).sector,
            }
        });
        let mut contents = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Node::File { content, .. } = node {
                contents.insert(index, take(content.len()));
            }
        }
        for place in &mut places {
            place.contents.clone_from(&contents);
        }
        let mut disc = Disc(vec![0; next as usize * SECTOR_BYTES]);
        for ((hierarchy, place), (sector, (little, big))) in
            views.iter().zip(&places).zip([16, 17].into_iter().zip(tables))
        {
            let root = place.directories.first().copied().unwrap_or_default();
            let facts =
                VolumeFacts { view: hierarchy.view, label, sectors: next, root, little, big, moment: self.moment };
            disc.put(sector, &volume::descriptor(&facts));
            disc.put(little.sector, &hierarchy.path_table(&place.directories, Order::Little));
            disc.put(big.sector, &hierarchy.path_table(&place.directories, Order::Big));
            let written = self.write(hierarchy, place);
            for (bytes, extent) in written.directories.iter().zip(&place.directories) {
                disc.put(extent.sector, bytes);
            }
            disc.put(place.continuation_sector, &written.continuation);
        }
        disc.put(18, &volume::TERMINATOR);
        for (index, node) in self.nodes.iter().enumerate() {
            if let (Node::File { content, .. }, Some(extent)) = (node, contents.get(&index)) {
                disc.put(extent.sector, content);
            }
        }
        disc.0
    }

    fn write(&self, hierarchy: &Hierarchy, places: &Places) -> Written {
        let mut continuation = Vec::new();
        let directories = (0..hierarchy.directories.len())
            .map(|index| self.write_directory(hierarchy, index, places, &mut continuation))
            .collect();
        Written { directories, continuation }
    }

    fn write_directory(&self, hierarchy: &Hierarchy, index: usize, places: &Places, more: &mut Vec<u8>) -> Vec<u8> {
        let Some(directory) = hierarchy.directories.get(index) else { return Vec::new() };
        let place = |index: usize| places.directories.get(index).copied().unwrap_or_default();
        let mut out = Vec::new();
        for (identifier, target) in [(&[0_u8], index), (&[1_u8], directory.parent)] {
            let mut extras = match hierarchy.view {
                View::Primary => attributes(true, hierarchy.links(target), self.readers, self.moment),
                View::Joliet => Vec::new(),
            };
            if hierarchy.view == View::Primary && index == ROOT && identifier == &[0] {
                let (present, reference) = announcement();
                extras = [present, extras, self.spill(reference, places, more)].concat();
            }
            push(&mut out, &directory_record(identifier, place(target), true, self.moment, &extras));
        }
        for entry in &directory.entries {
            let extent = match entry.directory {
                Some(index) => place(index),
                None => places.contents.get(&entry.node).copied().unwrap_or_default(),
            };
            let extras = match hierarchy.view {
                View::Primary => self.rock_ridge(hierarchy, entry, places, more),
                View::Joliet => Vec::new(),
            };
            let is_directory = entry.directory.is_some();
            push(&mut out, &directory_record(&entry.identifier, extent, is_directory, self.moment, &extras));
        }
        out.resize(out.len().next_multiple_of(SECTOR_BYTES), 0);
        out
    }

    /// Mode, time and real name of an entry; what does not fit its record goes to the continuation area.
    fn rock_ridge(&self, hierarchy: &Hierarchy, entry: &Entry, places: &Places, more: &mut Vec<u8>) -> Vec<u8> {
        let links = entry.directory.map_or(1, |index| hierarchy.links(index));
        let mut extras = attributes(entry.directory.is_some(), links, self.readers, self.moment);
        let name = real_name(self.nodes.get(entry.node).map_or("", Node::name));
        if extras.len() + name.len() + CONTINUATION_BYTES <= system_use_room(&entry.identifier) {
            extras.extend(name);
        } else {
            extras.extend(self.spill(name, places, more));
        }
        extras
    }

    /// Puts entries into the continuation area, never across a sector, and returns the `CE` that points there.
    fn spill(&self, entries: Vec<u8>, places: &Places, more: &mut Vec<u8>) -> Vec<u8> {
        let left = SECTOR_BYTES - more.len() % SECTOR_BYTES;
        if entries.len() > left {
            more.resize(more.len() + left, 0);
        }
        let at = more.len();
        let sector = places.continuation_sector + u32::try_from(at / SECTOR_BYTES).unwrap_or(0);
        let pointer = continuation(sector, at % SECTOR_BYTES, entries.len());
        more.extend(entries);
        pointer
    }
}

fn append<'a>(nodes: &mut Vec<Node<'a>>, parent: usize, node: Node<'a>) -> usize {
    let index = nodes.len();
    nodes.push(node);
    if let Some(Node::Directory { children, .. }) = nodes.get_mut(parent) {
        children.push(index);
    }
    index
}

/// Appends a record; records do not cross sectors.
fn push(out: &mut Vec<u8>, record: &[u8]) {
    let left = SECTOR_BYTES - out.len() % SECTOR_BYTES;
    if record.len() > left {
        out.resize(out.len() + left, 0);
    }
    out.extend_from_slice(record);
}

impl Hierarchy {
    fn of(nodes: &[Node<'_>], view: View) -> Self {
        let mut directories = vec![Directory { parent: ROOT, identifier: vec![0], entries: Vec::new() }];
        let mut node_of = vec![ROOT];
        // Breadth first, each level in the order of identifiers: the order that path tables must have.
        let mut index = 0;
        while let Some(node) = node_of.get(index) {
            let children: &[usize] = match nodes.get(*node) {
                Some(Node::Directory { children, .. }) => children,
                _ => &[],
            };
            let mut names = Names::default();
            let mut entries: Vec<Entry> = Vec::new();
            for child in children {
                let Some(known) = nodes.get(*child) else { continue };
                let identifier = view.identifier(&mut names, known.name(), known.kind());
                entries.push(Entry { identifier, node: *child, directory: None });
            }
            entries.sort_by(|a, b| a.identifier.cmp(&b.identifier));
            for entry in &mut entries {
                if nodes.get(entry.node).map(Node::kind) == Some(Kind::Directory) {
                    entry.directory = Some(directories.len());
                    directories.push(Directory {
                        parent: index,
                        identifier: entry.identifier.clone(),
                        entries: vec![],
                    });
                    node_of.push(entry.node);
                }
            }
            if let Some(directory) = directories.get_mut(index) {
                directory.entries = entries;
            }
            index += 1;
        }
        Self { view, directories }
    }

    /// What POSIX counts for a directory: itself, its name, and `..` of each directory in it.
    fn links(&self, index: usize) -> u32 {
        let inside = self
            .directories
            .get(index)
            .map_or(0, |directory| directory.entries.iter().filter(|entry| entry.directory.is_some()).count());
        u32::try_from(inside + 2).unwrap_or(u32::MAX)
    }

    /// The path table (ECMA-119 9.4) with numbers in one byte order.
    fn path_table(&self, extents: &[Extent], order: Order) -> Vec<u8> {
        let mut table = Vec::new();
        for (index, directory) in self.directories.iter().enumerate() {
            let sector = extents.get(index).map_or(0, |extent| extent.sector);
            // Numbered from 1. There are at most 4096 entries, so 16 bits hold them.
            let parent = u16::try_from(directory.parent + 1).unwrap_or(1);
            table.push(u8::try_from(directory.identifier.len()).unwrap_or(0));
            table.push(0);
            match order {
                Order::Little => {
                    table.extend(sector.to_le_bytes());
                    table.extend(parent.to_le_bytes());
                }
                Order::Big => {
                    table.extend(sector.to_be_bytes());
                    table.extend(parent.to_be_bytes());
                }
            }
            table.extend(&directory.identifier);
            table.extend(std::iter::repeat_n(0, directory.identifier.len() % 2));
        }
        table
    }
}

/// The disc being filled.
struct Disc(Vec<u8>);

impl Disc {
    fn put(&mut self, sector: u32, bytes: &[u8]) {
        let start = sector as usize * SECTOR_BYTES;
        if let Some(place) = self.0.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

/// FNV-1a: distinguishes discs, protects nothing.
struct Seed(u64);

impl Seed {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
