use std::process::Command;

use proptest::prelude::*;

use super::super::testing::{TarEntry, tar_of};
use super::*;

fn entries(bytes: &[u8]) -> Result<Vec<(Option<String>, EntryKind, Vec<u8>)>, TarError> {
    let mut tar = Tar::new(Stream(bytes));
    let mut found = Vec::new();
    while let Some(entry) = tar.next_entry()? {
        let mut content = Vec::new();
        tar.read_to_end(&mut content)?;
        assert_eq!(content.len() as u64, entry.bytes);
        let at = usize::try_from(entry.offset).unwrap();
        assert_eq!(&bytes[at..at + content.len()], content);
        found.push((entry.path, entry.kind, content));
    }
    Ok(found)
}

#[test]
fn archives_of_the_real_tool_are_read_in_every_format() {
    let room = tempfile::tempdir().unwrap();
    let long = format!("{}/{}", "directory".repeat(20), "name".repeat(30));
    std::fs::create_dir_all(room.path().join("disk")).unwrap();
    std::fs::create_dir_all(room.path().join("directory".repeat(20))).unwrap();
    std::fs::write(room.path().join("disk/a.img"), vec![7; 100_000]).unwrap();
    std::fs::write(room.path().join(&long), "long").unwrap();
    std::os::unix::fs::symlink("a.img", room.path().join("disk/link")).unwrap();
    std::fs::hard_link(room.path().join("disk/a.img"), room.path().join("disk/z-hard")).unwrap();
    for format in ["gnu", "pax", "posix", "oldgnu"] {
        let out = Command::new("tar")
            .arg(format!("--format={format}"))
            .args(["-c", "--sort=name", "."])
            .current_dir(room.path())
            .output();
        let Ok(out) = out else {
            eprintln!("skipped: no tar");
            return;
        };
        assert!(out.status.success());
        let found = entries(&out.stdout).unwrap();
        let get = |path: &str| found.iter().find(|(name, ..)| name.as_deref() == Some(path)).cloned();
        assert_eq!(get("disk/a.img").unwrap().2, vec![7; 100_000], "{format}");
        assert_eq!(get(&long).unwrap().2, b"long", "{format}");
        assert_eq!(get("disk/link").unwrap().1, EntryKind::SymbolicLink);
        assert_eq!(get("disk/z-hard").unwrap().1, EntryKind::HardLink);
        assert_eq!(get("disk").unwrap().1, EntryKind::Directory);
    }
}

#[test]
fn sparse_files_are_recognised_as_such() {
    let room = tempfile::tempdir().unwrap();
    std::fs::File::create(room.path().join("sparse")).unwrap().set_len(10 << 20).unwrap();
    for format in ["gnu", "pax"] {
        let out = Command::new("tar")
            .arg(format!("--format={format}"))
            .args(["-c", "-S", "sparse"])
            .current_dir(room.path())
            .output();
        let Ok(out) = out else { return };
        let found = entries(&out.stdout).unwrap();
        assert_eq!(found[0].1, EntryKind::Sparse, "{format}");
    }
}

#[test]
fn names_that_climb_are_no_names() {
    assert_eq!(tidy(b"./disk//a"), Some("disk/a".into()));
    assert_eq!(tidy(b"/disk/a/"), Some("disk/a".into()));
    for path in [&b"../etc/passwd"[..], b"disk/../../x", b"./", b"/", b"\xff"] {
        assert_eq!(tidy(path), None);
    }
}

#[test]
fn what_is_cut_or_changed_is_refused() {
    let tar = tar_of(&[TarEntry::file("disk/a.img", &[1; 1000])]);
    assert!(matches!(entries(&tar[..700]), Err(TarError::Truncated)));
    assert!(matches!(entries(&tar[..100]), Err(TarError::Truncated)));
    let mut changed = tar.clone();
    changed[0] ^= 1;
    assert!(matches!(entries(&changed), Err(TarError::NotTar)));
    assert!(matches!(entries(&[7; 512]), Err(TarError::NotTar)));
    assert!(entries(b"").unwrap().is_empty());
}

#[test]
fn giant_headers_are_refused_before_they_are_read() {
    for flag in [b'x', b'L'] {
        let tar = tar_of(&[TarEntry { path: "x", flag, content: &[], claimed_bytes: Some(1 << 40) }]);
        assert!(matches!(entries(&tar), Err(TarError::HeaderTooLarge { .. })));
    }
}

#[test]
fn sizes_beyond_any_disk_do_not_overflow() {
    let record = b"29 size=18446744073709551615\n";
    let tar = tar_of(&[
        TarEntry { path: "pax", flag: b'x', content: record, claimed_bytes: None },
        TarEntry::file("disk/a.img", b"1"),
    ]);
    assert!(matches!(entries(&tar), Err(TarError::Truncated | TarError::Size)), "{:?}", entries(&tar));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = entries(&bytes);
    }

    #[test]
    fn no_pax_header_makes_it_panic(content in proptest::collection::vec(any::<u8>(), 0..300)) {
        let tar = tar_of(&[
            TarEntry { path: "pax", flag: b'x', content: &content, claimed_bytes: None },
            TarEntry::file("disk/a.img", b"1"),
        ]);
        let _ = entries(&tar);
    }
}
