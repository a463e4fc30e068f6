//! Images of strangers.

use garboard_storage::qcow2::{Header, MOST_VIRTUAL_BYTES, parse_header};

/// Numbers that matter in headers.
pub const TOKENS: &[&str] = &[
    "QFI",
    "\u{0}\u{0}\u{0}\u{2}",
    "\u{0}\u{0}\u{0}\u{3}",
    "\u{0}\u{0}\u{0}\u{10}",
    "\u{0}\u{0}\u{0}\u{9}",
    "\u{0}\u{0}\u{0}\u{68}",
    "\u{0}\u{0}\u{0}\u{70}",
    "\u{44}\u{41}\u{54}\u{41}",
    "\u{0}\u{0}\u{0}\u{0}\u{0}\u{1}\u{0}\u{0}",
    "\u{7f}\u{7f}\u{7f}\u{7f}",
    "/etc/shadow",
];

/// The first eight bytes are the length of the file, the rest its beginning. A header that is taken names no other file,
/// no key and no feature of the future, and all its numbers are within QEMU's own limits.
pub fn qcow2_header(data: &[u8]) {
    let Some((length, head)) = data.split_first_chunk::<8>() else { return };
    let file_bytes = u64::from_be_bytes(*length);
    let Ok(header) = parse_header(head, file_bytes) else { return };
    let Header { version, virtual_bytes, cluster_bytes, snapshot_count, .. } = header;
    assert!(matches!(version, 2 | 3));
    assert!(virtual_bytes <= MOST_VIRTUAL_BYTES);
    assert!(cluster_bytes.is_power_of_two() && (512..=2 << 20).contains(&cluster_bytes));
    assert!(snapshot_count <= 65536);
    assert!(head[8..20].iter().all(|byte| *byte == 0), "a backing file");
    assert!(head[32..36].iter().all(|byte| *byte == 0), "encryption");
    if version == 3 {
        assert!(head[72..79].iter().all(|byte| *byte == 0) && head[79] & !0b11001 == 0, "features {:?}", &head[72..80]);
    }
    let l1_entries = u32::from_be_bytes([head[36], head[37], head[38], head[39]]);
    assert!(u64::from(l1_entries) * 8 <= file_bytes.min(32 << 20), "an L1 table that does not fit into the file");
}
