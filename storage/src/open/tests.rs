use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};

use nix::fcntl::{FcntlArg, fcntl};
use tempfile::TempDir;

use super::*;
use crate::beneath::BeneathPath;

const FILE: Opening = Opening {
    access: DiskAccess::ReadWrite,
    direct: Direct::Off,
    expected: Expected::File,
    sharing: Sharing::Exclusive,
};

fn at(text: &str) -> BeneathPath {
    BeneathPath::parse(text).unwrap()
}

fn room() -> (TempDir, Dir) {
    let room = tempfile::tempdir().unwrap();
    let dir = Dir::open(room.path()).unwrap();
    (room, dir)
}

fn flags_of(disk: &OpenedDisk) -> OFlag {
    OFlag::from_bits_retain(fcntl(&disk.fd, FcntlArg::F_GETFL).unwrap())
}

#[test]
fn a_file_is_opened_with_exactly_the_access_asked_for() {
    let (room, dir) = room();
    fs::write(room.path().join("disk.img"), vec![0; 8192]).unwrap();
    for (access, flag) in [(DiskAccess::ReadOnly, OFlag::O_RDONLY), (DiskAccess::ReadWrite, OFlag::O_RDWR)] {
        let disk = dir.open_disk(&at("disk.img"), Opening { access, ..FILE }).unwrap();
        assert_eq!((disk.size_bytes, disk.kind, disk.direct), (8192, DiskKind::File, false));
        assert_eq!(flags_of(&disk) & OFlag::O_ACCMODE, flag);
        assert!(!flags_of(&disk).contains(OFlag::O_NONBLOCK), "QEMU inherits the flags");
        let on_exec = fcntl(&disk.fd, FcntlArg::F_GETFD).unwrap();
        assert_ne!(on_exec & nix::libc::FD_CLOEXEC, 0, "no other child may inherit a disk");
    }
}

#[test]
fn a_symbolic_link_inside_a_volume_is_refused_wherever_it_is() {
    let (room, dir) = room();
    let outside = tempfile::NamedTempFile::new().unwrap();
    symlink(outside.path(), room.path().join("disk.img")).unwrap();
    fs::create_dir(room.path().join("real")).unwrap();
    fs::write(room.path().join("real/disk.img"), "x").unwrap();
    symlink("real", room.path().join("linked")).unwrap();
    for name in ["disk.img", "linked/disk.img"] {
        let refused = dir.open_disk(&at(name), FILE).unwrap_err();
        assert!(matches!(refused, OpenError::SymbolicLink { .. }), "{refused}");
    }
}

#[test]
fn links_that_stay_inside_are_followed_where_the_kubelet_needs_them() {
    let (room, dir) = room();
    fs::create_dir(room.path().join("..2026_01")).unwrap();
    fs::write(room.path().join("..2026_01/key"), "value").unwrap();
    symlink("..2026_01", room.path().join("..data")).unwrap();
    symlink("..data/key", room.path().join("key")).unwrap();
    assert_eq!(dir.read_file(&at("key"), Links::Inside, 64).unwrap(), b"value");
    assert!(matches!(dir.read_file(&at("key"), Links::Refused, 64), Err(OpenError::SymbolicLink { .. })));

    symlink("/etc/hostname", room.path().join("host")).unwrap();
    symlink("../../etc/hostname", room.path().join("up")).unwrap();
    for name in ["host", "up"] {
        let refused = dir.read_file(&at(name), Links::Inside, 64).unwrap_err();
        assert!(matches!(refused, OpenError::Escapes { .. }), "{refused}");
    }
    symlink("/proc/self/fd/0", room.path().join("magic")).unwrap();
    assert!(dir.read_file(&at("magic"), Links::Inside, 64).is_err());
}

#[test]
fn only_the_expected_kind_is_opened_and_nothing_blocks() {
    let (room, dir) = room();
    nix::unistd::mkfifo(&room.path().join("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(room.path().join("socket")).unwrap();
    fs::create_dir(room.path().join("directory")).unwrap();
    for (name, kind) in [("fifo", "FIFO"), ("socket", "socket"), ("directory", "directory")] {
        match dir.open_disk(&at(name), FILE).unwrap_err() {
            OpenError::WrongKind { found, .. } => assert_eq!(found, kind),
            other => panic!("{name}: {other}"),
        }
    }
    let refused = open_disk(Path::new("/dev/null"), Opening { expected: Expected::FileOrBlock, ..FILE }).unwrap_err();
    assert!(matches!(refused, OpenError::WrongKind { found: "character device", .. }), "{refused}");
}

#[test]
fn what_is_missing_or_forbidden_has_its_own_error() {
    let (room, dir) = room();
    assert!(matches!(dir.open_disk(&at("none"), FILE), Err(OpenError::Missing { .. })));
    assert!(matches!(Dir::open(&room.path().join("none")), Err(OpenError::Missing { .. })));
    fs::write(room.path().join("file"), "").unwrap();
    assert!(matches!(Dir::open(&room.path().join("file")), Err(OpenError::WrongKind { .. })));
    if nix::unistd::geteuid().is_root() {
        eprintln!("skipped: permission check, because root may open everything");
        return;
    }
    fs::set_permissions(room.path().join("file"), fs::Permissions::from_mode(0o000)).unwrap();
    assert!(matches!(dir.open_disk(&at("file"), FILE), Err(OpenError::Denied { .. })));
}

#[test]
fn what_another_process_opened_is_checked() {
    let (room, _) = room();
    let path = room.path().join("disk");
    fs::write(&path, "0123").unwrap();
    let opened = OpenedDisk::received(File::open(&path).unwrap().into(), &path).unwrap();
    assert_eq!((opened.size_bytes, opened.access), (4, DiskAccess::ReadOnly));
    let writable = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for file in [writable, File::open(room.path()).unwrap(), File::open("/dev/null").unwrap()] {
        assert!(matches!(OpenedDisk::received(file.into(), &path), Err(OpenError::WrongKind { .. })));
    }
}

#[test]
fn the_operator_may_use_links() {
    let (room, _) = room();
    fs::write(room.path().join("disk"), "0123").unwrap();
    symlink("disk", room.path().join("by-id")).unwrap();
    assert_eq!(open_disk(&room.path().join("by-id"), FILE).unwrap().size_bytes, 4);
}

#[test]
fn creation_never_touches_what_exists() {
    let (room, dir) = room();
    fs::write(room.path().join("taken"), "mine").unwrap();
    symlink("/etc/passwd-not-there", room.path().join("dangling")).unwrap();
    for name in ["taken", "dangling"] {
        assert!(matches!(dir.create_file(&at(name)), Err(OpenError::Exists { .. })), "{name}");
    }
    assert_eq!(fs::read(room.path().join("taken")).unwrap(), b"mine");
    let made = dir.create_file(&at("fresh")).unwrap();
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_has_its_name_only_with_its_length() {
    let (room, dir) = room();
    assert!(dir.create_sized(&at("a.img"), 1 << 40, 0o600).unwrap());
    assert_eq!(fs::metadata(room.path().join("a.img")).unwrap().len(), 1 << 40);
    // What is there stays, whatever it is.
    assert!(!dir.create_sized(&at("a.img"), 5, 0o600).unwrap());
    symlink("/etc/hostname", room.path().join("link")).unwrap();
    assert!(!dir.create_sized(&at("link"), 5, 0o600).unwrap());
    // Also if it comes while the file is being made.
    fs::write(room.path().join("fresh"), "").unwrap();
    assert!(!dir.rename_new(Path::new("fresh"), &at("a.img")).unwrap());
    fs::remove_file(room.path().join("fresh")).unwrap();
    // No file is as long as this.
    assert!(dir.create_sized(&at("b.img"), u64::MAX, 0o600).is_err());
    assert_eq!(dir.names(9).unwrap(), ["a.img", "link"]);
    assert_eq!(fs::metadata(room.path().join("a.img")).unwrap().len(), 1 << 40);
}

#[test]
fn a_long_file_is_not_read_into_memory() {
    let (room, dir) = room();
    File::create(room.path().join("long")).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(dir.read_file(&at("long"), Links::Refused, 1024), Err(OpenError::TooLarge { .. })));
    for number in 0..5 {
        fs::write(room.path().join(format!("{number}")), "").unwrap();
    }
    assert_eq!(dir.names(6).unwrap().len(), 6);
    assert_eq!(dir.names(6).unwrap().len(), 6, "listing twice sees the same");
    assert!(dir.names(5).is_err());
}

#[test]
fn direct_is_reported_as_it_is() {
    let (room, dir) = room();
    fs::write(room.path().join("disk"), vec![7; 8192]).unwrap();
    let disk = dir.open_disk(&at("disk"), Opening { direct: Direct::IfSupported, ..FILE }).unwrap();
    assert_eq!(disk.direct, flags_of(&disk).contains(OFlag::O_DIRECT));
    assert_eq!(disk.direct, dir.supports_direct().unwrap());
    let required = dir.open_disk(&at("disk"), Opening { direct: Direct::Required, ..FILE });
    assert_eq!(required.is_ok(), disk.direct);
}

#[test]
fn a_file_system_without_direct_io_is_named() {
    // procfs has regular files and no O_DIRECT.
    let opening = Opening {
        access: DiskAccess::ReadOnly,
        direct: Direct::Required,
        expected: Expected::File,
        sharing: Sharing::Shared,
    };
    let refused = open_disk(Path::new("/proc/version"), opening).unwrap_err();
    assert!(matches!(refused, OpenError::NoDirect { .. }), "{refused}");
    let lenient = Opening { direct: Direct::IfSupported, ..opening };
    let disk = open_disk(Path::new("/proc/version"), lenient).unwrap();
    assert!(!disk.direct && !flags_of(&disk).contains(OFlag::O_DIRECT));
}

/// A loop device for the time of a test; `None`, with a message, where there are none.
fn loop_device(backing: &Path) -> Option<PathBuf> {
    let out = std::process::Command::new("losetup").args(["--find", "--show"]).arg(backing).output();
    match out {
        Ok(out) if out.status.success() => Some(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())),
        Ok(out) => {
            eprintln!("skipped: no loop device: {}", String::from_utf8_lossy(&out.stderr).trim());
            None
        }
        Err(error) => {
            eprintln!("skipped: no losetup: {error}");
            None
        }
    }
}

/// Whether a device can be opened, now or when it has no user any more. Another test of this program may have started a
/// process while it was open; until its child has executed something, the child has it open, too.
fn free(device: &Path, opening: Opening) -> bool {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match open_disk(device, opening) {
            Err(OpenError::InUse { .. }) if std::time::Instant::now() < deadline => std::thread::yield_now(),
            opened => return opened.is_ok(),
        }
    }
}

#[test]
fn a_block_device_is_measured_and_refused_while_mounted() {
    let (room, _) = room();
    let backing = room.path().join("backing");
    File::create(&backing).unwrap().set_len(16 << 20).unwrap();
    let run = |command: &str, arguments: &[&str]| {
        std::process::Command::new(command).args(arguments).output().is_ok_and(|out| out.status.success())
    };
    if !run("mkfs.ext4", &["-q", backing.to_str().unwrap()]) {
        eprintln!("skipped: no mkfs.ext4");
        return;
    }
    let Some(device) = loop_device(&backing) else { return };
    let name = device.to_str().unwrap().to_owned();
    let block = Opening { expected: Expected::Block, ..FILE };
    let disk = open_disk(&device, block).unwrap();
    // As a second container has it: another inode, the same device.
    let node = room.path().join("node");
    let rdev = fs::metadata(&device).map(|found| std::os::unix::fs::MetadataExt::rdev(&found)).unwrap();
    nix::sys::stat::mknod(&node, nix::sys::stat::SFlag::S_IFBLK, nix::sys::stat::Mode::S_IRUSR, rdev).unwrap();
    let second = open_disk(&node, block);
    let to_share = open_disk(&node, Opening { sharing: Sharing::Shared, ..block });
    let to_read = open_disk(&node, Opening { access: DiskAccess::ReadOnly, ..block });
    let is_file = open_disk(&device, FILE);
    let measured = disk.size_bytes;
    let kind = disk.kind;
    drop(disk);
    let shared = [Sharing::Shared, Sharing::Shared].map(|sharing| free(&node, Opening { sharing, ..block }));
    let third = free(&node, block);
    let mounted = room.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let in_use = if run("mount", &[&name, mounted.to_str().unwrap()]) {
        let refused = open_disk(&device, block);
        run("umount", &[&name]);
        Some(refused)
    } else {
        eprintln!("skipped: may not mount");
        None
    };
    run("losetup", &["--detach", &name]);

    assert_eq!(measured, 16 << 20);
    assert!(matches!(second, Err(OpenError::InUse { .. })), "two writers: {second:?}");
    assert!(matches!(to_share, Err(OpenError::InUse { .. })), "a writer beside one that shares nothing: {to_share:?}");
    assert!(to_read.is_ok(), "a reader: {to_read:?}");
    assert_eq!((shared, third), ([true, true], true), "when it is released");
    assert!(matches!(kind, DiskKind::Block { major: 7, .. }), "{kind:?}");
    assert!(matches!(is_file, Err(OpenError::WrongKind { found: "block device", .. })));
    if let Some(refused) = in_use {
        assert!(matches!(refused, Err(OpenError::InUse { .. })), "{refused:?}");
    }
}

#[test]
fn racing_renames_never_yield_the_wrong_file() {
    /// Ends the racing thread also when an assertion fails.
    struct Stop<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let (room, dir) = room();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    fs::write(room.path().join("good"), "good").unwrap();
    fs::hard_link(room.path().join("good"), room.path().join("disk.img")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let path = room.path().to_path_buf();
    std::thread::scope(|scope| {
        let _ends = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = fs::remove_file(path.join("next"));
                let _ = symlink(outside.path().join("secret"), path.join("next"));
                let _ = fs::rename(path.join("next"), path.join("disk.img"));
                let _ = fs::hard_link(path.join("good"), path.join("next"));
                let _ = fs::rename(path.join("next"), path.join("disk.img"));
            }
        });
        // Either thread may stand still for seconds: it goes on until both files were met, often enough to race.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let (mut opened, mut refused) = (0_u32, 0_u32);
        for tried in 0_u32.. {
            match dir.open_disk(&at("disk.img"), FILE) {
                Ok(disk) => {
                    let mut content = String::new();
                    std::io::Read::read_to_string(&mut File::from(disk.fd), &mut content).unwrap();
                    assert_eq!(content, "good");
                    opened += 1;
                }
                Err(_) => refused += 1,
            }
            if tried >= 3000 && opened > 0 && refused > 0 {
                break;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "no race in {tried} opens: {opened} met the good file, {refused} the link"
            );
        }
    });
}
