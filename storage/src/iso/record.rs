//! The small pieces of ECMA-119 and Rock Ridge: numbers in both orders, dates, directory records, system use entries.

use super::SECTOR_BYTES;
use super::tree::Readers;

/// A moment between 2000 and 2019, which is in every date field of a disc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    year: u16,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    hundredth: u8,
}

impl Moment {
    /// A moment that is the same for the same seed and hardly ever the same for another one.
    pub(super) fn from_seed(seed: u64) -> Self {
        let part = |divisor: u64, modulus: u64, first: u64| u8::try_from(seed / divisor % modulus + first).unwrap_or(1);
        // Mixed radix; 28 days in every month keeps all of them real.
        Self {
            hundredth: part(1, 100, 0),
            second: part(100, 60, 0),
            minute: part(6_000, 60, 0),
            hour: part(360_000, 24, 0),
            day: part(8_640_000, 28, 1),
            month: part(241_920_000, 12, 1),
            year: 2000 + u16::from(part(2_903_040_000, 20, 0)),
        }
    }

    /// Seven bytes, as in directory records and Rock Ridge.
    pub(super) fn short(self) -> [u8; 7] {
        let since_1900 = u8::try_from(self.year - 1900).unwrap_or(u8::MAX);
        [since_1900, self.month, self.day, self.hour, self.minute, self.second, 0]
    }

    /// Seventeen bytes, as in volume descriptors.
    pub(super) fn long(self) -> [u8; 17] {
        let text = format!(
            "{:04}{:02}{:02}{:02}{:02}{:02}{:02}",
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.hundredth
        );
        let mut bytes = [0; 17];
        for (byte, digit) in bytes.iter_mut().zip(text.bytes()) {
            *byte = digit;
        }
        bytes
    }
}

/// A number in both byte orders, 8 bytes.
pub(super) fn both_u32(value: u32) -> [u8; 8] {
    let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
    [little[0], little[1], little[2], little[3], big[0], big[1], big[2], big[3]]
}

/// A number in both byte orders, 4 bytes.
pub(super) fn both_u16(value: u16) -> [u8; 4] {
    let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
    [little[0], little[1], big[0], big[1]]
}

/// The place of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    /// First sector.
    pub(super) sector: u32,
    /// Length in bytes.
    pub(super) bytes: u32,
}

/// The number of sectors that `bytes` take.
pub(super) fn sectors(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(SECTOR_BYTES)).unwrap_or(u32::MAX)
}

/// A directory record (ECMA-119 9.1) with its system use area.
pub(super) fn directory_record(
    id: &[u8],
    extent: Extent,
    directory: bool,
    moment: Moment,
    system_use: &[u8],
) -> Vec<u8> {
    let pad = usize::from(id.len().is_multiple_of(2));
    let length = 33 + id.len() + pad + system_use.len();
    // Records have even length.
    let length = length + length % 2;
    let mut record = Vec::with_capacity(length);
    record.push(u8::try_from(length).unwrap_or(0));
    record.push(0);
    record.extend(both_u32(extent.sector));
    record.extend(both_u32(extent.bytes));
    record.extend(moment.short());
    record.push(if directory { 2 } else { 0 });
    record.extend([0, 0]);
    record.extend(both_u16(1));
    record.push(u8::try_from(id.len()).unwrap_or(0));
    record.extend(id);
    record.extend(std::iter::repeat_n(0, pad));
    record.extend(system_use);
    record.resize(length, 0);
    record
}

/// Bytes of a record that are left for system use, beside a `CE` entry.
pub(super) fn system_use_room(id: &[u8]) -> usize {
    254 - 33 - id.len() - usize::from(id.len().is_multiple_of(2))
}

/// Length of a `CE` entry.
pub(super) const CONTINUATION_BYTES: usize = 28;

/// `CE`: the system use area goes on elsewhere.
pub(super) fn continuation(sector: u32, offset: usize, bytes: usize) -> Vec<u8> {
    let number = |value: usize| both_u32(u32::try_from(value).unwrap_or(0));
    let mut entry = entry(*b"CE", CONTINUATION_BYTES);
    entry.extend(both_u32(sector));
    entry.extend(number(offset));
    entry.extend(number(bytes));
    entry
}

/// `SP` and `ER`: this is Rock Ridge. The first is in the root's own record, the second behind its `CE`.
pub(super) fn announcement() -> (Vec<u8>, Vec<u8>) {
    const ID: &[u8] = b"RRIP_1991A";
    const TEXT: &[u8] = b"THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS";
    const SOURCE: &[u8] = b"SEE THE ROCK RIDGE INTERCHANGE PROTOCOL VERSION 1.10";
    let mut present = entry(*b"SP", 7);
    present.extend([0xbe, 0xef, 0]);
    let mut reference = entry(*b"ER", 8 + ID.len() + TEXT.len() + SOURCE.len());
    for text in [ID, TEXT, SOURCE] {
        reference.push(u8::try_from(text.len()).unwrap_or(0));
    }
    reference.push(1);
    for text in [ID, TEXT, SOURCE] {
        reference.extend(text);
    }
    (present, reference)
}

/// `PX` and `TF`: mode, links and time. Owner is root.
pub(super) fn attributes(directory: bool, links: u32, readers: Readers, moment: Moment) -> Vec<u8> {
    let mode = match (directory, readers) {
        (true, Readers::All) => 0o040_555,
        (true, Readers::Root) => 0o040_500,
        (false, Readers::All) => 0o100_444,
        (false, Readers::Root) => 0o100_400,
    };
    let mut bytes = entry(*b"PX", 36);
    for number in [mode, links, 0, 0] {
        bytes.extend(both_u32(number));
    }
    bytes.extend(entry(*b"TF", 12));
    bytes.push(2); // one time: of modification
    bytes.extend(moment.short());
    bytes
}

/// `NM`: the real name, in as many entries as it takes.
pub(super) fn real_name(name: &str) -> Vec<u8> {
    const MOST: usize = 250;
    let mut bytes = Vec::new();
    let pieces: Vec<&[u8]> = name.as_bytes().chunks(MOST).collect();
    for (number, piece) in pieces.iter().enumerate() {
        bytes.extend(entry(*b"NM", 5 + piece.len()));
        bytes.push(u8::from(number + 1 < pieces.len())); // goes on in the next
        bytes.extend(*piece);
    }
    bytes
}

fn entry(signature: [u8; 2], length: usize) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes.push(u8::try_from(length).unwrap_or(0));
    bytes.push(1); // version
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_real_and_follow_the_seed() {
        for seed in [0, 1, 8_639_999, u64::MAX] {
            let moment = Moment::from_seed(seed);
            assert!((1..=12).contains(&moment.month) && (1..=28).contains(&moment.day) && moment.hour < 24);
            assert_eq!(moment, Moment::from_seed(seed));
        }
        assert_ne!(Moment::from_seed(1).long(), Moment::from_seed(2).long());
        assert_eq!(&Moment::from_seed(0).long(), b"2000010100000000\0");
    }

    #[test]
    fn records_are_even_and_contain_their_length() {
        for id in [&b"\0"[..], b"AB", b"ABC.;1"] {
            let record = directory_record(id, Extent::default(), false, Moment::from_seed(0), &[1; 7]);
            assert_eq!(usize::from(record[0]), record.len());
            assert_eq!(record.len() % 2, 0);
        }
    }

    #[test]
    fn a_long_name_is_split_with_a_mark() {
        let bytes = real_name(&"n".repeat(253));
        assert_eq!((bytes[2], bytes[4]), (255, 1));
        assert_eq!((bytes[257], bytes[259]), (8, 0));
    }
}
