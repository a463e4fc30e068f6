//! The heads of usbredir's packets (`usbredirproto.h`), as far as QEMU has to be kept from a client that sends others. Pure.
//!
//! QEMU aborts, and its guest with it, when its parser refuses a head and more bytes follow: `usbredir_chardev_read: Assertion
//! 'dev->read_buf == NULL' failed` (`hw/usb/redirect.c`; seen with 7.2 and 10.0). Any program that connects and speaks something else
//! would do that. So what the parser refuses (`usbredirparser.c` of usbredir 0.13) is refused here before: another type, another length of
//! what the type has first, a packet that is too long. All else is QEMU's to judge.
//!
//! ```text
//!   type (4 bytes)  length (4)  number (4; 8 if both sides can)  head of the type  data     little-endian
//! ```

/// Bytes of a header whose number is short, as that of each `hello` that comes first.
pub(super) const SHORT_HEADER: usize = 12;
/// The same of one whose number is long.
const LONG_HEADER: usize = 16;
/// The most bytes that may follow a header: the parser's `MAX_PACKET_SIZE`.
const LONGEST: u32 = 128 * 1024 * 1024 + 1024;
/// Bytes of the version in a `hello`; capabilities follow.
const VERSION: usize = 64;
/// Bytes of the capabilities that decide about forms.
const CAPABILITIES: usize = 4;
/// The most bytes of a `hello` of QEMU's behind its header: more capabilities than there will be.
const LONGEST_HELLO: u32 = 256;

const HELLO: u32 = 0;

/// Why a client's packet does not reach QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadPacket {
    /// It speaks another protocol, or has not greeted.
    #[error("the client did not begin with the greeting of usbredir's protocol")]
    NoHello,
    /// QEMU has no such packet, or sends it itself.
    #[error("a client sends no packet of type {kind}")]
    Kind {
        /// Its type.
        kind: u32,
    },
    /// It is shorter or longer than its type is.
    #[error("a packet of type {kind} is not {length} bytes long")]
    Length {
        /// Its type.
        kind: u32,
        /// What follows the header, bytes.
        length: u32,
    },
}

/// What a side can (`usb_redir_cap_…`), a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities(u32);

impl Capabilities {
    const BULK_STREAMS: u32 = 1;
    const CONNECT_DEVICE_VERSION: u32 = 1 << 1;
    const EP_INFO_MAX_PACKET_SIZE: u32 = 1 << 4;
    const NUMBERS_OF_64_BITS: u32 = 1 << 5;
    const BULK_LENGTH_OF_32_BITS: u32 = 1 << 6;

    /// Of what follows the header of a `hello`. Bytes that are missing are zeros.
    pub(super) fn of_content(content: &[u8]) -> Self {
        let mut bytes = [0; CAPABILITIES];
        for (byte, sent) in bytes.iter_mut().zip(content.iter().skip(VERSION)) {
            *byte = *sent;
        }
        Self(u32::from_le_bytes(bytes))
    }

    /// What both sides can. Streams need the sizes of packets.
    fn and(self, other: Self) -> Self {
        let both = Self(self.0 & other.0);
        if both.has(Self::EP_INFO_MAX_PACKET_SIZE) { both } else { Self(both.0 & !Self::BULK_STREAMS) }
    }

    const fn has(self, capability: u32) -> bool {
        self.0 & capability != 0
    }
}

/// Type and length.
fn header_of(header: &[u8; SHORT_HEADER]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h, ..] = *header;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// How many bytes follow the first header that QEMU sends; nothing if it is not that of a `hello`.
pub(super) fn rest_of_hello(header: &[u8; SHORT_HEADER]) -> Option<usize> {
    let (kind, length) = header_of(header);
    let least = u32::try_from(VERSION).unwrap_or(u32::MAX);
    if kind == HELLO && (least..=LONGEST_HELLO).contains(&length) { usize::try_from(length).ok() } else { None }
}

/// How long what follows a header may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The head of the type, bytes.
    Exactly(u32),
    /// The head of the type, and data.
    AtLeast(u32),
}

/// The form of a packet that a client may send (`usbredirparser_get_type_header_len`); nothing for any other.
const fn form(kind: u32, both: Capabilities) -> Option<Form> {
    let of_endpoints = if both.has(Capabilities::BULK_STREAMS) {
        288
    } else if both.has(Capabilities::EP_INFO_MAX_PACKET_SIZE) {
        160
    } else {
        96
    };
    Some(match kind {
        HELLO => Form::AtLeast(64),
        // A device comes and leaves.
        1 => Form::Exactly(if both.has(Capabilities::CONNECT_DEVICE_VERSION) { 10 } else { 8 }),
        2 => Form::Exactly(0),
        // Its interfaces and endpoints.
        4 => Form::Exactly(132),
        5 => Form::Exactly(of_endpoints),
        // What became of a configuration, of another setting, of streams, of receiving by itself.
        8 | 14 | 17 => Form::Exactly(2),
        11 => Form::Exactly(3),
        20 => Form::Exactly(9),
        27 => Form::Exactly(6),
        // A filter.
        23 => Form::AtLeast(0),
        // Control, bulk, isochronous and interrupt transfers, and bulk that was received by itself.
        100 | 104 => Form::AtLeast(10),
        101 => Form::AtLeast(if both.has(Capabilities::BULK_LENGTH_OF_32_BITS) { 10 } else { 8 }),
        102 | 103 => Form::AtLeast(4),
        _ => return None,
    })
}

/// Follows what a client sends to a QEMU.
#[derive(Debug)]
pub(super) struct Checker {
    qemu: Capabilities,
    /// What both sides can, from the client's `hello` on.
    both: Option<Capabilities>,
    header: Vec<u8>,
    /// The first bytes of the client's `hello`, behind its header.
    hello: Vec<u8>,
    /// Bytes of a packet that are still to come, behind its header.
    left: usize,
}

impl Checker {
    /// Of the client of a QEMU with these capabilities.
    pub(super) const fn new(qemu: Capabilities) -> Self {
        Self { qemu, both: None, header: Vec::new(), hello: Vec::new(), left: 0 }
    }

    /// Judges the next bytes, in whatever pieces they come.
    ///
    /// # Errors
    /// [`BadPacket`]: QEMU must get none of these bytes.
    pub(super) fn judge(&mut self, mut bytes: &[u8]) -> Result<(), BadPacket> {
        while !bytes.is_empty() {
            let taken = if self.left > 0 { self.take_content(bytes) } else { self.take_header(bytes)? };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn take_content(&mut self, bytes: &[u8]) -> usize {
        let count = self.left.min(bytes.len());
        self.left -= count;
        if self.both.is_none() {
            let missing = (VERSION + CAPABILITIES).saturating_sub(self.hello.len());
            self.hello.extend(bytes.iter().take(count.min(missing)));
            if self.left == 0 {
                self.both = Some(self.qemu.and(Capabilities::of_content(&self.hello)));
            }
        }
        count
    }

    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, BadPacket> {
        let is_long = self.both.is_some_and(|both| both.has(Capabilities::NUMBERS_OF_64_BITS));
        let whole = if is_long { LONG_HEADER } else { SHORT_HEADER };
        let count = whole.saturating_sub(self.header.len()).min(bytes.len());
        self.header.extend(&bytes[..count]);
        if self.header.len() == whole
            && let Some(header) = self.header.first_chunk()
        {
            self.left = self.expected(header_of(header))?;
            self.header.clear();
        }
        Ok(count)
    }

    /// How many bytes follow a header with this type and length.
    fn expected(&self, (kind, length): (u32, u32)) -> Result<usize, BadPacket> {
        if self.both.is_none() && kind != HELLO {
            return Err(BadPacket::NoHello);
        }
        let fits = match form(kind, self.both.unwrap_or_default()).ok_or(BadPacket::Kind { kind })? {
            Form::Exactly(bytes) => length == bytes,
            Form::AtLeast(bytes) => (bytes..=LONGEST).contains(&length),
        };
        let bytes = usize::try_from(length).ok().filter(|_| fits);
        bytes.ok_or(BadPacket::Length { kind, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = 0xff;

    fn packet(kind: u32, content: &[u8], is_long: bool) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap();
        let number: &[u8] = if is_long { &[0; 8] } else { &[0; 4] };
        [&kind.to_le_bytes()[..], &length.to_le_bytes()[..], number, content].concat()
    }

    fn hello(capabilities: u32) -> Vec<u8> {
        packet(HELLO, &[&[b'x'; VERSION][..], &capabilities.to_le_bytes()[..]].concat(), false)
    }

    /// A client with these capabilities, which has greeted a QEMU that can all.
    fn greeted(capabilities: u32) -> Checker {
        let mut checker = Checker::new(Capabilities(ALL));
        checker.judge(&hello(capabilities)).unwrap();
        checker
    }

    #[test]
    fn qemus_hello_has_its_capabilities() {
        let whole = hello(ALL);
        let (header, content) = whole.split_first_chunk().unwrap();
        assert_eq!(rest_of_hello(header), Some(content.len()));
        assert_eq!(Capabilities::of_content(content), Capabilities(ALL));
        for other in [packet(1, &[0; 68], false), packet(HELLO, &[0; 63], false), packet(HELLO, &[0; 257], false)] {
            assert_eq!(rest_of_hello(other.first_chunk().unwrap()), None);
        }
    }

    /// As QEMU 7.2 was seen to take them: type and length, for clients that can nothing, what xHCI needs, and all.
    #[test]
    fn lengths_are_those_that_qemu_takes() {
        let table: [(u32, [u32; 3]); 10] = [
            (1, [8, 8, 10]),
            (2, [0, 0, 0]),
            (4, [132, 132, 132]),
            (5, [96, 160, 288]),
            (8, [2, 2, 2]),
            (11, [3, 3, 3]),
            (14, [2, 2, 2]),
            (17, [2, 2, 2]),
            (20, [9, 9, 9]),
            (27, [6, 6, 6]),
        ];
        for (kind, lengths) in table {
            for (capabilities, exactly) in [0, 0x70, ALL].into_iter().zip(lengths) {
                let taken: Vec<u32> =
                    (0..300).filter(|&length| greeted(capabilities).expected((kind, length)).is_ok()).collect();
                assert_eq!(taken, [exactly], "type {kind} of {capabilities:#x}");
            }
        }
        let table: [(u32, [u32; 3]); 7] = [
            (0, [64, 64, 64]),
            (23, [0, 0, 0]),
            (100, [10, 10, 10]),
            (101, [8, 10, 10]),
            (102, [4, 4, 4]),
            (103, [4, 4, 4]),
            (104, [10, 10, 10]),
        ];
        for (kind, lengths) in table {
            for (capabilities, least) in [0, 0x70, ALL].into_iter().zip(lengths) {
                let first = (0..300).find(|&length| greeted(capabilities).expected((kind, length)).is_ok());
                assert_eq!(first, Some(least), "type {kind} of {capabilities:#x}");
                assert!(greeted(capabilities).expected((kind, LONGEST)).is_ok());
                let longer = greeted(capabilities).expected((kind, LONGEST + 1));
                assert_eq!(longer, Err(BadPacket::Length { kind, length: LONGEST + 1 }));
            }
        }
        let of_qemu = [3, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 21, 22, 24, 25, 26, 28, 99, 105, u32::MAX];
        for kind in of_qemu {
            assert_eq!(greeted(ALL).expected((kind, 0)), Err(BadPacket::Kind { kind }));
        }
    }

    #[test]
    fn a_client_is_followed_in_whatever_pieces_it_sends() {
        for (capabilities, is_long) in [(0, false), (0x70, true), (ALL, true)] {
            let mut sent = hello(capabilities);
            sent.extend(packet(2, &[], is_long));
            sent.extend(packet(100, &[7; 1000], is_long));
            sent.extend(packet(8, &[0, 1], is_long));
            // One that QEMU sends itself.
            let good = sent.len();
            sent.extend(packet(3, &[], is_long));
            for piece in [1, 2, 3, 11, 12, 13, 80, 1000, sent.len()] {
                let mut checker = Checker::new(Capabilities(ALL));
                let judged = sent[..good].chunks(piece).try_for_each(|bytes| checker.judge(bytes));
                assert_eq!(judged, Ok(()), "{capabilities:#x} in pieces of {piece}");
                let judged = sent[good..].chunks(piece).try_for_each(|bytes| checker.judge(bytes));
                assert_eq!(judged, Err(BadPacket::Kind { kind: 3 }), "{capabilities:#x} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn another_protocol_is_none() {
        let early = packet(1, &[0; 8], false);
        for other in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"SSH-2.0-OpenSSH\r\n".to_vec(), early] {
            assert_eq!(Checker::new(Capabilities(ALL)).judge(&other), Err(BadPacket::NoHello));
        }
        let short = packet(HELLO, &[0; 63], false);
        let judged = Checker::new(Capabilities(ALL)).judge(&short);
        assert_eq!(judged, Err(BadPacket::Length { kind: HELLO, length: 63 }));
    }

    #[test]
    fn a_hello_may_have_no_capabilities_or_more_than_are_known() {
        for more in [0, 1, 4, 400] {
            let content = [vec![b'x'; VERSION], vec![0x70; more]].concat();
            let mut checker = Checker::new(Capabilities(ALL));
            checker.judge(&packet(HELLO, &content, false)).unwrap();
            assert_eq!(checker.both.map(|both| both.has(Capabilities::NUMBERS_OF_64_BITS)), Some(more > 0), "{more}");
        }
    }
}
