use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::create_empty;
use super::*;

fn holding(bytes: &[u8]) -> (File, u64) {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    (file, bytes.len() as u64)
}

#[test]
fn qcow2_and_raw_are_distinguished() {
    let file = tempfile::tempfile().unwrap();
    create_empty(&file, 1 << 30).unwrap();
    let facts = inspect(&file, file.metadata().unwrap().len()).unwrap();
    assert_eq!(facts, ImageFacts { format: Format::Qcow2, virtual_bytes: 1 << 30 });

    let (file, length) = holding(&[0x33; 1000]);
    let facts = inspect(&file, length).unwrap();
    assert_eq!(facts, ImageFacts { format: Format::Raw, virtual_bytes: 1024 });
}

#[test]
fn foreign_formats_are_named_with_a_remedy() {
    let mut vdi = vec![0; 512];
    vdi[0x40..0x44].copy_from_slice(&VDI.1);
    for (bytes, name) in [(b"KDMV".to_vec(), "VMDK"), (b"\x1f\x8b\x08".to_vec(), "gzip"), (vdi, "VDI")] {
        let (file, length) = holding(&bytes);
        let error = inspect(&file, length).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains('`'), "{error}");
    }
}

#[test]
fn empty_cut_and_lying_images_are_refused() {
    let (file, _) = holding(b"");
    assert!(matches!(inspect(&file, 0), Err(ProbeError::Empty)));
    let (file, length) = holding(b"QFI\xfb\0\0\0\x03");
    assert!(matches!(inspect(&file, length), Err(ProbeError::Qcow2(HeaderError::Truncated { .. }))));
    let (file, length) = holding(b"QFI\xfb\0\0\0\x02");
    assert!(matches!(inspect(&file, length), Err(ProbeError::Qcow2(_))));
    assert!(matches!(raw_facts(MOST_VIRTUAL_BYTES + 1), Err(ProbeError::TooLarge { .. })));
}

#[test]
fn qemu_img_agrees_about_its_own_images() {
    let room = tempfile::tempdir().unwrap();
    let make = |name: &str, options: &[&str]| {
        let path = room.path().join(name);
        let mut command = std::process::Command::new("qemu-img");
        command.args(["create", "-q", "-f", "qcow2"]).args(options).arg(&path);
        match command.arg("3G").output() {
            Ok(out) if out.status.success() => File::open(path).ok(),
            Ok(out) => panic!("{}", String::from_utf8_lossy(&out.stderr)),
            Err(error) => {
                eprintln!("skipped: qemu-img: {error}");
                None
            }
        }
    };
    let accepted = [
        vec![],
        vec!["-o", "compat=0.10"],
        vec!["-o", "cluster_size=2M"],
        vec!["-o", "cluster_size=512"],
        vec!["-o", "lazy_refcounts=on,refcount_bits=1"],
        vec!["-o", "extended_l2=on,cluster_size=128k"],
        vec!["-o", "compression_type=zstd"],
    ];
    for (number, options) in accepted.iter().enumerate() {
        let Some(file) = make(&format!("{number}"), options) else { return };
        let facts = inspect(&file, file.metadata().unwrap().len());
        assert_eq!(facts.unwrap(), ImageFacts { format: Format::Qcow2, virtual_bytes: 3 << 30 }, "{options:?}");
    }
    let base = room.path().join("0");
    let refused = [
        (vec!["-F", "qcow2", "-b", base.to_str().unwrap()], "backing"),
        (vec!["-u", "-F", "raw", "-b", "/etc/shadow"], "/etc/shadow"),
        (vec!["-o", "data_file=/dev/shm/garboard-nowhere,data_file_raw=on"], "external"),
    ];
    for (number, (options, name)) in refused.iter().enumerate() {
        let Some(file) = make(&format!("refused{number}"), options) else { return };
        match inspect(&file, file.metadata().unwrap().len()) {
            Err(ProbeError::Qcow2(cause)) => assert!(cause.to_string().contains(name), "{cause}"),
            other => panic!("{options:?}: {other:?}"),
        }
    }
    let _ = std::fs::remove_file("/dev/shm/garboard-nowhere");
}

#[test]
fn a_raw_disk_that_looks_like_qcow2_is_noticed_and_nothing_more() {
    let (file, length) = holding(b"QFI\xfb and what a guest wrote");
    assert!(looks_like_qcow2(&file));
    assert_eq!(raw_facts(length).unwrap().format, Format::Raw);
}
