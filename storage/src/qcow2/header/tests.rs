use proptest::prelude::*;

use super::super::{CLUSTER_BYTES, create_empty};
use super::*;

const GIB: u64 = 1 << 30;

/// A sound header of an empty image, its first cluster, and the length of its file.
fn sound(virtual_bytes: u64) -> (Vec<u8>, u64) {
    let file = tempfile::tempfile().unwrap();
    create_empty(&file, virtual_bytes).unwrap();
    let mut head = vec![0; usize::try_from(CLUSTER_BYTES).unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0).unwrap();
    (head, file.metadata().unwrap().len())
}

fn with(at: usize, bytes: &[u8]) -> Result<Header, HeaderError> {
    let (mut head, length) = sound(GIB);
    head[at..at + bytes.len()].copy_from_slice(bytes);
    parse_header(&head, length)
}

#[test]
fn a_sound_header_is_read() {
    let (head, length) = sound(GIB);
    let header = parse_header(&head, length).unwrap();
    assert_eq!((header.version, header.virtual_bytes, header.cluster_bytes), (3, GIB, 65536));
    assert!(!header.dirty);
}

#[test]
fn another_file_is_never_followed() {
    let (mut head, length) = sound(GIB);
    let name = b"/etc/shadow";
    head[8..16].copy_from_slice(&200_u64.to_be_bytes());
    head[16..20].copy_from_slice(&11_u32.to_be_bytes());
    head[200..211].copy_from_slice(name);
    assert_eq!(parse_header(&head, length), Err(HeaderError::BackingFile { name: "/etc/shadow".into() }));
    // Half of it is enough: QEMU looks at the offset only.
    assert!(matches!(with(8, &1_u64.to_be_bytes()), Err(HeaderError::BackingFile { .. })));
    // A name beyond the file is not read, and not a panic.
    assert!(matches!(with(8, &u64::MAX.to_be_bytes()), Err(HeaderError::BackingFile { .. })));
}

#[test]
fn an_external_data_file_is_refused_by_bit_and_by_name() {
    assert_eq!(with(72, &EXTERNAL_DATA.to_be_bytes()), Err(HeaderError::ExternalDataFile { name: String::new() }));
    let mut extension = EXTENSION_DATA_FILE.to_be_bytes().to_vec();
    extension.extend_from_slice(&8_u32.to_be_bytes());
    extension.extend_from_slice(b"/dev/vda");
    assert_eq!(with(112, &extension), Err(HeaderError::ExternalDataFile { name: "/dev/vda".into() }));
    // Also behind another extension.
    let mut behind = 0x6803_f857_u32.to_be_bytes().to_vec();
    behind.extend_from_slice(&3_u32.to_be_bytes());
    behind.extend_from_slice(&[0; 8]);
    behind.extend_from_slice(&extension);
    assert!(matches!(with(112, &behind), Err(HeaderError::ExternalDataFile { .. })));
}

#[test]
fn each_wrong_field_has_its_error() {
    let cases: [(usize, &[u8], fn(&HeaderError) -> bool); 16] = [
        (0, b"QFI\xfa", |e| *e == HeaderError::NotQcow2),
        (4, &1_u32.to_be_bytes(), |e| *e == HeaderError::Version { version: 1 }),
        (4, &4_u32.to_be_bytes(), |e| *e == HeaderError::Version { version: 4 }),
        (20, &8_u32.to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
        (20, &63_u32.to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
        (24, &u64::MAX.to_be_bytes(), |e| matches!(e, HeaderError::TooLarge { .. })),
        (24, &(10 * GIB).to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
        (32, &1_u32.to_be_bytes(), |e| *e == HeaderError::Encrypted),
        (36, &u32::MAX.to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
        (40, &(1_u64 << 40).to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
        (48, &u64::MAX.to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
        (56, &u32::MAX.to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
        (60, &u32::MAX.to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
        (72, &CORRUPT.to_be_bytes(), |e| *e == HeaderError::Corrupt),
        (72, &(1_u64 << 40).to_be_bytes(), |e| *e == HeaderError::UnknownFeatures { bits: 1 << 40 }),
        (100, &12_u32.to_be_bytes(), |e| matches!(e, HeaderError::Unsound { .. })),
    ];
    for (at, bytes, expected) in cases {
        let error = with(at, bytes).expect_err(&format!("byte {at}"));
        assert!(expected(&error), "byte {at}: {error:?}");
    }
}

#[test]
fn every_cut_inside_the_header_is_refused() {
    let (head, length) = sound(GIB);
    for cut in 0..head.len() {
        assert!(parse_header(&head[..cut], cut as u64).is_err(), "{cut} bytes");
    }
    assert!(parse_header(&head, length - CLUSTER_BYTES).is_err(), "a table lies beyond the end");
}

#[test]
fn a_dirty_image_is_readable() {
    assert!(with(72, &DIRTY.to_be_bytes()).unwrap().dirty);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_name_another_file(
        mut head in proptest::collection::vec(any::<u8>(), 0..4096),
        file_bytes in any::<u64>(),
        magic in any::<bool>(),
    ) {
        if magic && head.len() >= 8 {
            head[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        }
        let _ = parse_header(&head, file_bytes);
    }

    #[test]
    fn a_changed_byte_is_refused_or_leaves_bounds_intact(at in 0_usize..160, value in any::<u8>()) {
        let (mut head, length) = sound(GIB);
        head[at] = value;
        if let Ok(header) = parse_header(&head, length) {
            prop_assert!(header.virtual_bytes <= MOST_VIRTUAL_BYTES);
            prop_assert_eq!(&head[8..20], &[0; 12], "a name of another file was accepted");
            prop_assert_eq!(head[79] & 4, 0, "an external data file was accepted");
        }
    }
}
