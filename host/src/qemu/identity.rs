//! Which build a QEMU binary is: what stored answers are filed under.
//!
//! Path, size and time of change distinguish two states of one file; the build ID of its ELF header (a hash made by the
//! linker) distinguishes two builds to which a package manager gave the same size and time; the directory of modules counts
//! too, since TCG itself may be a module that is installed or removed on its own.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::locate::QemuBinary;
use crate::root::ReadError;

/// Where the modules of an installed QEMU are: Debian, Fedora, Arch.
const MODULE_DIRS: [&str; 3] = ["/usr/lib/x86_64-linux-gnu/qemu", "/usr/lib64/qemu", "/usr/lib/qemu"];

/// Bytes hashed of a file that has no build ID (a wrapper script).
const HASHED: u64 = 1 << 20;

/// A key that changes whenever the binary or its modules do.
pub(super) fn key(binary: &QemuBinary) -> Result<String, ReadError> {
    let failed = |source| ReadError { path: binary.path.clone(), source };
    let real = binary.path.canonicalize().map_err(failed)?;
    let file = File::open(&real).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mut key = format!(
        "{} {} bytes, changed {}.{:09}, build {}",
        real.display(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        build(&file).map_err(failed)?,
    );
    for directory in binary.module_dir.iter().cloned().chain(MODULE_DIRS.map(PathBuf::from)) {
        if let Some(changed) = changed(&directory) {
            let _ = write!(key, "; {} {changed}", directory.display());
        }
    }
    Ok(key)
}

fn changed(directory: &Path) -> Option<String> {
    let metadata = fs::metadata(directory).ok()?;
    Some(format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()))
}

fn build(file: &File) -> io::Result<String> {
    let bytes = match build_id(file) {
        Some(id) => id,
        None => {
            let mut start = Vec::new();
            file.take(HASHED).read_to_end(&mut start)?;
            Sha256::digest(&start).to_vec()
        }
    };
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
/// Program headers looked at; a linked program has about a dozen.
const MOST_HEADERS: u16 = 64;
/// Bytes of a note segment looked at.
const MOST_NOTES: u64 = 4096;

/// The build ID of a 64-bit little-endian ELF file; `None` for anything else.
fn build_id(file: &File) -> Option<Vec<u8>> {
    let mut header = [0_u8; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if header[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let table = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let entry_size = u16::from_le_bytes(header[54..56].try_into().ok()?);
    let entries = u16::from_le_bytes(header[56..58].try_into().ok()?).min(MOST_HEADERS);
    (0..entries).find_map(|index| {
        let mut entry = [0_u8; 56];
        let offset = table.checked_add(u64::from(index) * u64::from(entry_size))?;
        file.read_exact_at(&mut entry, offset).ok()?;
        if u32::from_le_bytes(entry[..4].try_into().ok()?) != PT_NOTE {
            return None;
        }
        let offset = u64::from_le_bytes(entry[8..16].try_into().ok()?);
        let size = u64::from_le_bytes(entry[32..40].try_into().ok()?).min(MOST_NOTES);
        let mut notes = vec![0_u8; usize::try_from(size).ok()?];
        file.read_exact_at(&mut notes, offset).ok()?;
        build_id_note(&notes)
    })
}

fn build_id_note(mut notes: &[u8]) -> Option<Vec<u8>> {
    while notes.len() >= 12 {
        let number = |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let (name_size, content_size) = (usize::try_from(number(0)?).ok()?, usize::try_from(number(4)?).ok()?);
        let kind = number(8)?;
        let content_at = name_size.checked_next_multiple_of(4)?.checked_add(12)?;
        let content = notes.get(content_at..content_at.checked_add(content_size)?)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..12 + name_size) == Some(b"GNU\0") {
            return Some(content.to_vec());
        }
        notes = notes.get(content_at.checked_add(content_size.checked_next_multiple_of(4)?)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn script(text: &str) -> (tempfile::NamedTempFile, QemuBinary) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let binary = QemuBinary { path: file.path().into(), module_dir: None, firmware_dirs: Vec::new() };
        (file, binary)
    }

    #[test]
    fn the_same_size_and_time_with_another_content_is_another_build() {
        let (one, first) = script("#!/bin/sh\nexit 1\n");
        let (two, second) = script("#!/bin/sh\nexit 2\n");
        let build = |file: &tempfile::NamedTempFile| build(&File::open(file.path()).unwrap()).unwrap();
        assert_ne!(build(&one), build(&two));
        assert_ne!(key(&first).unwrap(), key(&second).unwrap());
        assert_eq!(key(&first).unwrap(), key(&first).unwrap());
    }

    #[test]
    fn a_changed_directory_of_modules_is_another_key() {
        let (_file, mut binary) = script("x");
        let modules = tempfile::tempdir().unwrap();
        binary.module_dir = Some(modules.path().into());
        // Not of this moment: a kernel may stamp what follows within some milliseconds with the same time.
        File::open(modules.path()).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let before = key(&binary).unwrap();
        fs::write(modules.path().join("accel-tcg-x86_64.so"), "").unwrap();
        assert_ne!(key(&binary).unwrap(), before);
    }

    #[test]
    fn the_build_id_is_the_one_that_readelf_prints() {
        let program = std::env::current_exe().unwrap();
        let Ok(output) = std::process::Command::new("readelf").arg("-n").arg(&program).output() else {
            eprintln!("skipped: readelf of binutils is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let printed = text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).map(str::to_owned);
        let Some(printed) = printed else {
            eprintln!("skipped: this test program has no build ID");
            return;
        };
        assert_eq!(build(&File::open(&program).unwrap()).unwrap(), printed);
    }

    #[test]
    fn broken_headers_are_no_elf_file() {
        let good = fs::read(std::env::current_exe().unwrap()).unwrap();
        for (at, byte) in [(5, 9), (32, 255), (54, 255), (56, 0)] {
            let mut bytes = good[..4096].to_vec();
            bytes[at] = byte;
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            let _ = build_id(&File::open(file.path()).unwrap());
        }
        assert_eq!(build_id_note(&[0xff; 64]), None);
        assert_eq!(build_id_note(&[0; 11]), None);
    }
}
