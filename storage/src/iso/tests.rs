//! The disc is judged by others: xorriso reads it in all three ways, the kernel mounts it where it can.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::*;

fn tree(files: &[(&str, &[u8])]) -> DiscTree {
    let mut tree = DiscTree::new(Readers::All);
    for (path, content) in files {
        tree.add(path, content.to_vec()).unwrap();
    }
    tree
}

fn typical() -> DiscTree {
    let big: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
    let long = format!("{}.yaml", "very-long-key-name".repeat(13));
    assert_eq!(long.len(), 239);
    let longest = "k".repeat(253);
    tree(&[
        ("user-data", b"#cloud-config\n"),
        ("meta-data", b"{}"),
        ("network-config", b"version: 2\n"),
        ("empty", b""),
        ("openstack/latest/meta_data.json", b"{\"a\": 1}"),
        ("openstack/latest/user_data", b"x"),
        ("openstack/2012-08-10/user_data", b"y"),
        ("UPPER.TXT", b"upper"),
        ("a.tar.gz", b"dots"),
        (".hidden", b"hidden"),
        ("1/2/3/4/5/6/deep", b"deep"),
        ("sector", &[7; 2048]),
        ("big.bin", &big),
        (&long, b"long"),
        (&longest, b"longest"),
    ])
}

fn many() -> DiscTree {
    let mut tree = DiscTree::new(Readers::All);
    for number in 0..600 {
        let name = format!("a-key-that-makes-records-long-enough-to-fill-sectors-{number:03}");
        tree.add(&format!("dir/{name}"), name.clone().into_bytes()).unwrap();
        // Long names for the continuation area, more than one sector of them.
        let name = format!("{number:03}{}", "-long".repeat(40));
        tree.add(&name, name.clone().into_bytes()).unwrap();
    }
    tree
}

/// All files that xorriso extracts when it reads the disc in the given way; `None`, with a message, without xorriso.
fn extract(image: &[u8], how: &[&str]) -> Option<BTreeMap<String, Vec<u8>>> {
    let room = tempfile::tempdir().unwrap();
    let disc = room.path().join("disc.iso");
    let out = room.path().join("out");
    std::fs::write(&disc, image).unwrap();
    let ran = Command::new("xorriso")
        .args(["-abort_on", "WARNING", "-osirrox", "on"])
        .args(how)
        .arg("-indev")
        .arg(&disc)
        .args(["-extract", "/"])
        .arg(&out)
        .args(["-rollback_end"])
        .output();
    match ran {
        Ok(ran) if ran.status.success() => {
            let mut files = BTreeMap::new();
            gather(&out, &out, &mut files);
            Some(files)
        }
        Ok(ran) => panic!("xorriso {how:?}: {}", String::from_utf8_lossy(&ran.stderr)),
        Err(error) => {
            eprintln!("skipped: xorriso: {error}");
            None
        }
    }
}

fn gather(root: &Path, at: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
}

fn expected(tree: &DiscTree) -> BTreeMap<String, Vec<u8>> {
    tree.files().map(|(path, content)| (path.as_str().to_owned(), content.to_vec())).collect()
}

#[test]
fn rock_ridge_gives_back_every_name_and_content() {
    for tree in [typical(), many(), tree(&[])] {
        let Some(files) = extract(&image(&tree, &VolumeLabel::nocloud()), &["-read_fs", "nojoliet"]) else { return };
        assert!(files == expected(&tree), "{:?}", files.keys());
    }
}

#[test]
fn joliet_gives_back_every_name_it_can_hold() {
    for tree in [typical(), many()] {
        let Some(files) = extract(&image(&tree, &VolumeLabel::nocloud()), &["-read_fs", "norock"]) else { return };
        let wanted = expected(&tree);
        assert_eq!(files.len(), wanted.len());
        for (path, content) in &wanted {
            if path.split('/').all(|name| name.len() <= 64) {
                assert_eq!(files.get(path), Some(content), "{path}");
            }
        }
        let contents = |files: &BTreeMap<String, Vec<u8>>| {
            let mut all: Vec<Vec<u8>> = files.values().cloned().collect();
            all.sort();
            all
        };
        assert!(contents(&files) == contents(&wanted));
    }
}

#[test]
fn plain_iso_9660_has_all_contents() {
    for tree in [typical(), many()] {
        let Some(files) = extract(&image(&tree, &VolumeLabel::nocloud()), &["-read_fs", "ecma119"]) else { return };
        assert_eq!(files.len(), expected(&tree).len());
    }
}

#[test]
fn blkid_finds_the_label() {
    let room = tempfile::tempdir().unwrap();
    for label in [
        VolumeLabel::nocloud(),
        VolumeLabel::config_drive(),
        VolumeLabel::parse("A longer label, 32 letters long.").unwrap(),
    ] {
        let disc = room.path().join("disc.iso");
        std::fs::write(&disc, image(&typical(), &label)).unwrap();
        let out = match Command::new("blkid").args(["-p", "-o", "export"]).arg(&disc).output() {
            Ok(out) => String::from_utf8_lossy(&out.stdout).into_owned(),
            Err(error) => {
                eprintln!("skipped: blkid: {error}");
                return;
            }
        };
        let value =
            |key: &str| out.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().replace('\\', "");
        assert_eq!(value("LABEL="), label.as_str(), "{out}");
        assert_eq!(value("TYPE="), "iso9660");
    }
}

#[test]
fn equal_trees_make_equal_discs_and_others_have_other_dates() {
    let label = VolumeLabel::files();
    assert!(image(&typical(), &label) == image(&typical(), &label));
    let one = image(&tree(&[("a", b"1")]), &label);
    let two = image(&tree(&[("a", b"2")]), &label);
    let dated = 16 * SECTOR_BYTES + 813..16 * SECTOR_BYTES + 847;
    assert_ne!(one[dated.clone()], two[dated]);
    assert_eq!(one.len() % SECTOR_BYTES, 0);
}

#[test]
fn user_data_is_for_root_only() {
    let mut tree = DiscTree::new(Readers::Root);
    tree.add("openstack/user_data", b"password".to_vec()).unwrap();
    let room = tempfile::tempdir().unwrap();
    let disc = room.path().join("disc.iso");
    std::fs::write(&disc, image(&tree, &VolumeLabel::config_drive())).unwrap();
    let listing = Command::new("xorriso").arg("-indev").arg(&disc).args(["-find", "/", "-exec", "lsdl", "--"]).output();
    let Ok(listing) = listing else {
        eprintln!("skipped: xorriso");
        return;
    };
    let text = String::from_utf8_lossy(&listing.stdout).into_owned();
    assert!(text.contains("dr-x------") && text.contains("-r--------"), "{text}");
    assert!(!text.contains("r--r--"), "{text}");
}

#[test]
fn the_kernel_mounts_it() {
    let room = tempfile::tempdir().unwrap();
    let disc = room.path().join("disc.iso");
    let mounted = room.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    for (tree, options) in [(typical(), "loop,ro"), (many(), "loop,ro"), (typical(), "loop,ro,norock")] {
        std::fs::write(&disc, image(&tree, &VolumeLabel::files())).unwrap();
        let ran = Command::new("mount").args(["-t", "iso9660", "-o", options]).arg(&disc).arg(&mounted).output();
        match ran {
            Ok(ran) if ran.status.success() => {
                let mut files = BTreeMap::new();
                gather(&mounted, &mounted, &mut files);
                let _ = Command::new("umount").arg(&mounted).output();
                assert_eq!(files.len(), expected(&tree).len());
                if !options.contains("norock") {
                    assert!(files == expected(&tree));
                }
            }
            Ok(ran) => {
                eprintln!("skipped: may not mount: {}", String::from_utf8_lossy(&ran.stderr).trim());
                return;
            }
            Err(error) => {
                eprintln!("skipped: mount: {error}");
                return;
            }
        }
    }
}
