use super::super::testing::{TarEntry, gzip, tar_of, zstd};
use super::*;

struct Room {
    _room: tempfile::TempDir,
    cache: Cache,
}

fn room() -> Room {
    let room = tempfile::tempdir().unwrap();
    let cache = Cache::open(&room.path().join("images")).unwrap();
    Room { _room: room, cache }
}

fn at(path: &str) -> BeneathPath {
    BeneathPath::parse(path).unwrap()
}

/// What is found in these layers, bottom first as in a manifest; contents in place of records.
fn found(layers: &[Vec<u8>], wanted: &Wanted) -> Result<BTreeMap<String, Result<Vec<u8>, &'static str>>, ExtractError> {
    let room = room();
    let mut extraction = Extraction::new(&room.cache, wanted, ImageLimits::default());
    for layer in layers.iter().rev() {
        extraction.layer(layer.as_slice(), layer.len() as u64)?;
        extraction.accept()?;
    }
    let content = |found| match found {
        Found::File(record) => {
            let digest = super::super::Digest::parse(&record.digest).unwrap();
            let content = std::fs::read(room.cache.file(&digest)).unwrap();
            assert_eq!(content.len() as u64, record.size_bytes);
            Ok(content)
        }
        Found::Unusable(what) => Err(what),
    };
    Ok(extraction.into_found().into_iter().map(|(path, one)| (path, content(one))).collect())
}

fn disks(layers: &[Vec<u8>]) -> BTreeMap<String, Result<Vec<u8>, &'static str>> {
    found(layers, &Wanted::folder(at("disk"))).unwrap()
}

#[test]
fn disks_are_found_whatever_the_packing() {
    let content = vec![9; 200_000];
    let tar = tar_of(&[
        TarEntry::of_kind("disk/", b'5'),
        TarEntry::file("./disk/a.img", &content),
        TarEntry::file("disk/deeper/b.img", b"too deep"),
        TarEntry::file("etc/passwd", b"root"),
    ]);
    for layer in [tar.clone(), gzip(&tar), zstd(&tar)] {
        assert_eq!(disks(&[layer]), BTreeMap::from([("disk/a.img".to_owned(), Ok(content.clone()))]));
    }
}

#[test]
fn upper_layers_replace_and_remove() {
    let bottom =
        tar_of(&[TarEntry::file("disk/a", b"old"), TarEntry::file("disk/b", b"b"), TarEntry::file("disk/c", b"c")]);
    let replace = tar_of(&[TarEntry::file("disk/a", b"new")]);
    let remove = tar_of(&[TarEntry::file("disk/.wh.b", b"")]);
    let names = |found: BTreeMap<String, _>| found.into_keys().collect::<Vec<_>>();
    let found = disks(&[bottom.clone(), replace.clone(), remove.clone()]);
    assert_eq!(found["disk/a"], Ok(b"new".to_vec()));
    assert_eq!(names(found), ["disk/a", "disk/c"]);
    // A whiteout does not apply to its own layer, and a layer above may bring the file back.
    let again = tar_of(&[TarEntry::file("disk/.wh.a", b""), TarEntry::file("disk/a", b"again")]);
    assert_eq!(disks(&[bottom.clone(), again])["disk/a"], Ok(b"again".to_vec()));
    assert_eq!(
        names(disks(&[bottom.clone(), remove, tar_of(&[TarEntry::file("disk/b", b"back")])])),
        ["disk/a", "disk/b", "disk/c"]
    );
    // The whole directory, in three ways.
    for hiding in [
        TarEntry::file(".wh.disk", b""),
        TarEntry::file("disk/.wh..wh..opq", b""),
        TarEntry::file("disk", b"now a file"),
    ] {
        assert!(names(disks(&[bottom.clone(), tar_of(std::slice::from_ref(&hiding))])).is_empty(), "{hiding:?}");
    }
    let directory_instead = tar_of(&[TarEntry::of_kind("disk/a/", b'5')]);
    assert_eq!(disks(&[bottom, directory_instead])["disk/a"], Err("a directory"));
}

#[test]
fn files_by_path_come_from_anywhere_and_end_the_search() {
    let bottom = tar_of(&[TarEntry::file("boot/vmlinuz", b"old kernel")]);
    let top = tar_of(&[TarEntry::file("boot/vmlinuz", b"kernel"), TarEntry::file("boot/initrd", b"initrd")]);
    let wanted = Wanted::files([at("/boot/vmlinuz"), at("/boot/initrd")]);
    let found = found(&[bottom, top.clone()], &wanted).unwrap();
    assert_eq!(found["boot/vmlinuz"], Ok(b"kernel".to_vec()));
    assert_eq!(found["boot/initrd"], Ok(b"initrd".to_vec()));

    let room = room();
    let mut extraction = Extraction::new(&room.cache, &wanted, ImageLimits::default());
    assert!(!extraction.complete());
    extraction.layer(top.as_slice(), 1).unwrap();
    assert!(!extraction.complete(), "not accepted yet");
    extraction.accept().unwrap();
    assert!(extraction.complete());
    let folder = Wanted::folder(at("disk"));
    let mut extraction = Extraction::new(&room.cache, &folder, ImageLimits::default());
    extraction
        .layer(tar_of(&[TarEntry::of_kind("disk/", b'5'), TarEntry::file("disk/a", b"1")]).as_slice(), 1)
        .unwrap();
    extraction.accept().unwrap();
    assert!(!extraction.complete(), "a layer below may have a second disk");
    extraction.layer(tar_of(&[TarEntry::file(".wh.disk", b"")]).as_slice(), 1).unwrap();
    extraction.accept().unwrap();
    assert!(extraction.complete());
}

#[test]
fn links_and_devices_are_found_and_named() {
    let layer = tar_of(&[
        TarEntry::of_kind("disk/hard", b'1'),
        TarEntry::of_kind("disk/symbolic", b'2'),
        TarEntry::of_kind("disk/device", b'3'),
        TarEntry::of_kind("disk/sparse", b'S'),
    ]);
    let found = disks(&[layer]);
    assert_eq!(found["disk/hard"], Err("a hard link"));
    assert_eq!(found["disk/symbolic"], Err("a symbolic link"));
    assert!(found["disk/device"].is_err() && found["disk/sparse"].is_err());
}

#[test]
fn a_bomb_is_refused_and_nothing_stays() {
    let room = room();
    let wanted = Wanted::folder(at("disk"));
    let tar = tar_of(&[TarEntry::file("disk/zeros", &vec![0; 20 << 20])]);
    let packed = zstd(&tar);
    let limits = ImageLimits { ratio_free_bytes: 1 << 20, ratio: 100, ..ImageLimits::default() };
    let mut extraction = Extraction::new(&room.cache, &wanted, limits);
    let refused = extraction.layer(packed.as_slice(), packed.len() as u64).unwrap_err();
    assert!(matches!(refused, ExtractError::UnpackedTooLarge { .. }), "{refused}");
    for folder in ["unfinished", "files/sha256"] {
        assert_eq!(std::fs::read_dir(room.cache.join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[test]
fn too_many_files_are_refused() {
    let names: Vec<String> = (0..100).map(|number| format!("disk/{number}")).collect();
    let entries: Vec<_> = names.iter().map(|name| TarEntry::file(name, b"x")).collect();
    let refused = found(&[tar_of(&entries)], &Wanted::folder(at("disk"))).unwrap_err();
    assert!(matches!(refused, ExtractError::TooMany { .. }), "{refused}");
}

#[test]
fn a_layer_that_is_no_archive_is_refused() {
    for layer in [vec![7; 5000], gzip(b"not a tar archive, but long enough to be looked at"), b"{}".to_vec()] {
        let refused = found(&[layer], &Wanted::folder(at("disk"))).unwrap_err();
        assert!(matches!(refused, ExtractError::Layer(TarError::NotTar | TarError::Truncated)), "{refused:?}");
    }
}

#[test]
fn what_is_not_accepted_leaves_nothing() {
    let room = room();
    let wanted = Wanted::folder(at("disk"));
    let mut extraction = Extraction::new(&room.cache, &wanted, ImageLimits::default());
    extraction.layer(tar_of(&[TarEntry::file("disk/a", b"1")]).as_slice(), 1).unwrap();
    assert_eq!(std::fs::read_dir(room.cache.join("unfinished")).unwrap().count(), 1);
    assert!(extraction.into_found().is_empty());
    for folder in ["unfinished", "files/sha256"] {
        assert_eq!(std::fs::read_dir(room.cache.join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[test]
fn the_last_of_two_entries_with_one_name_counts() {
    let layer = tar_of(&[TarEntry::file("disk/a", b"first"), TarEntry::file("disk/a", b"second")]);
    assert_eq!(disks(&[layer])["disk/a"], Ok(b"second".to_vec()));
    let layer = tar_of(&[TarEntry::file("disk/a", b"first"), TarEntry::of_kind("disk/a", b'2')]);
    assert_eq!(disks(&[layer])["disk/a"], Err("a symbolic link"));
}

#[test]
fn it_stops_when_the_flag_is_set() {
    let room = room();
    let stop = Arc::new(AtomicBool::new(true));
    let wanted = Wanted::folder(at("disk"));
    let mut extraction = Extraction::new(&room.cache, &wanted, ImageLimits::default()).stopped_by(stop);
    for layer in [tar_of(&[TarEntry::file("disk/a", b"1")]), gzip(b"x"), zstd(b"x")] {
        assert!(matches!(extraction.layer(layer.as_slice(), 1), Err(ExtractError::Stopped)));
    }
}
