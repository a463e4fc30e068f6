use std::process::Command;

use super::*;

const GIB: u64 = 1 << 30;

#[test]
fn impossible_sizes_are_refused() {
    let file = tempfile::tempfile().unwrap();
    for bytes in [0, 511, 513, MOST_VIRTUAL_BYTES + 512, u64::MAX] {
        assert!(matches!(create_empty(&file, bytes), Err(CreateError::Size { .. })), "{bytes}");
    }
}

#[test]
fn the_file_takes_next_to_no_space() {
    use std::os::unix::fs::MetadataExt;
    let file = tempfile::tempfile().unwrap();
    create_empty(&file, MOST_VIRTUAL_BYTES).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), host_bytes_of_empty(MOST_VIRTUAL_BYTES));
    assert!(metadata.blocks() * 512 <= 256 << 10, "{} blocks", metadata.blocks());
}

#[test]
fn nothing_of_an_earlier_run_remains() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![0xff; 1 << 20], 0).unwrap();
    create_empty(&file, GIB).unwrap();
    let mut l1 = [1; 16];
    file.read_exact_at(&mut l1, FIRST_L1_CLUSTER * CLUSTER_BYTES).unwrap();
    assert_eq!(l1, [0; 16]);
}

/// Runs a tool of QEMU; `None`, with a message, where it is missing.
fn qemu(tool: &str, arguments: &[&str]) -> Option<(bool, String)> {
    match Command::new(tool).args(arguments).output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            Some((out.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(error) => {
            eprintln!("skipped: {tool}: {error}");
            None
        }
    }
}

#[test]
fn qemu_img_finds_the_images_sound_at_every_size() {
    let room = tempfile::tempdir().unwrap();
    // Around the borders of an L1 entry (512 MiB), of a cluster of L1 (4 TiB), and the limit.
    for bytes in [512, 65536, GIB / 2, GIB / 2 + 512, 10 * GIB, 4096 * GIB, 4096 * GIB + 512, MOST_VIRTUAL_BYTES] {
        let path = room.path().join(bytes.to_string());
        create_empty(&File::create_new(&path).unwrap(), bytes).unwrap();
        let path = path.to_str().unwrap();
        let Some((sound, report)) = qemu("qemu-img", &["check", "-f", "qcow2", path]) else { return };
        assert!(sound && report.contains("No errors were found"), "{bytes}: {report}");
        let (_, report) = qemu("qemu-img", &["info", "-f", "qcow2", "--output=json", path]).unwrap();
        let facts: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(facts["virtual-size"], bytes);
        assert_eq!(facts["cluster-size"], CLUSTER_BYTES);
        assert!(facts.get("backing-filename").is_none());
    }
}

#[test]
fn an_overlay_without_a_stored_name_reads_its_base_and_keeps_it_whole() {
    let room = tempfile::tempdir().unwrap();
    let base = room.path().join("base.raw");
    let top = room.path().join("top.qcow2");
    std::fs::write(&base, vec![0x5a; 4 << 20]).unwrap();
    create_empty(&File::create_new(&top).unwrap(), 4 << 20).unwrap();
    let node = serde_json::json!({
        "driver": "qcow2",
        "file": { "driver": "file", "filename": top },
        "backing": { "driver": "raw", "read-only": true, "file": { "driver": "file", "filename": base } },
    });
    let image = format!("json:{node}");
    let steps = [
        "read -P 0x5a 0 4M",
        "write -P 0x11 64k 4k",
        "read -P 0x5a 0 64k",
        "read -P 0x11 64k 4k",
        "read -P 0x5a 68k 1M",
    ];
    let mut arguments = Vec::new();
    for step in steps {
        arguments.extend(["-c", step]);
    }
    arguments.push(&image);
    let Some((done, report)) = qemu("qemu-io", &arguments) else { return };
    assert!(done && !report.contains("verification failed"), "{report}");
    assert_eq!(std::fs::read(&base).unwrap(), vec![0x5a; 4 << 20], "the base was written to");
    let (sound, report) = qemu("qemu-img", &["check", "-f", "qcow2", top.to_str().unwrap()]).unwrap();
    assert!(sound, "{report}");
}

/// The fastest of several times: other work on the machine only ever adds.
fn fastest(times: usize, mut work: impl FnMut(usize)) -> std::time::Duration {
    let timed = (0..times).map(|number| {
        let started = std::time::Instant::now();
        work(number);
        started.elapsed()
    });
    timed.min().unwrap()
}

/// The reason why images are written here, printed.
#[test]
fn writing_is_far_cheaper_than_a_process() {
    if qemu("qemu-img", &["--version"]).is_none() {
        return;
    }
    let room = tempfile::tempdir().unwrap();
    let own = fastest(20, |number| {
        create_empty(&File::create_new(room.path().join(format!("own{number}"))).unwrap(), 10 * GIB).unwrap();
    });
    let tool = fastest(5, |number| {
        let path = room.path().join(format!("tool{number}"));
        qemu("qemu-img", &["create", "-q", "-f", "qcow2", path.to_str().unwrap(), "10G"]).unwrap();
    });
    eprintln!("an empty qcow2: {own:?} here, {tool:?} by qemu-img");
    assert!(own < tool, "{own:?} here, {tool:?} by qemu-img");
}
