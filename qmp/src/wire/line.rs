//! Bytes to lines, with a limit.

/// What a splitter keeps allocated between messages, in bytes. One long reply (a schema, a block graph) must not make
/// the process larger for the rest of its life.
const KEPT_CAPACITY: usize = 16 << 10;

/// A line longer than the limit; its bytes were thrown away as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes is longer than the limit of {limit}")]
pub struct Overlong {
    /// Bytes of the line, without its line feed.
    pub length: usize,
    /// The limit, in bytes.
    pub limit: usize,
}

/// Cuts a stream into lines without their line feed (and without a carriage return before it). Empty lines vanish.
#[derive(Debug)]
pub struct LineSplitter {
    buffer: Vec<u8>,
    /// Where the line that has not been handed out yet begins.
    start: usize,
    /// Up to where there is certainly no line feed.
    scanned: usize,
    /// Bytes of the present line thrown away so far, once it was too long.
    discarded: Option<usize>,
    limit: usize,
}

impl LineSplitter {
    /// A splitter that refuses lines of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, scanned: 0, discarded: None, limit }
    }

    /// Takes what was read. Call [`next_line`](Self::next_line) until it answers `None` before pushing again; what is
    /// kept then stays below the limit.
    pub fn push(&mut self, bytes: &[u8]) {
        self.drop_consumed();
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line, or `Overlong` in place of one that was too long, or `None` when more bytes are needed.
    pub fn next_line(&mut self) -> Option<Result<&[u8], Overlong>> {
        loop {
            let Some(end) = self.find_line_feed() else {
                self.discard_if_too_long();
                return None;
            };
            let begin = std::mem::replace(&mut self.start, end + 1);
            self.scanned = self.start;
            let length = end - begin;
            if let Some(discarded) = self.discarded.take() {
                return Some(Err(Overlong { length: discarded.saturating_add(length), limit: self.limit }));
            }
            if length > self.limit {
                return Some(Err(Overlong { length, limit: self.limit }));
            }
            let end = if self.buffer[begin..end].last() == Some(&b'\r') { end - 1 } else { end };
            if end > begin {
                return Some(Ok(&self.buffer[begin..end]));
            }
        }
    }

    /// Bytes that wait for their line feed, the thrown away ones not counted.
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn find_line_feed(&self) -> Option<usize> {
        self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n').map(|offset| self.scanned + offset)
    }

    fn discard_if_too_long(&mut self) {
        self.scanned = self.buffer.len();
        let waiting = self.pending_bytes();
        if self.discarded.is_none() && waiting <= self.limit {
            return;
        }
        self.discarded = Some(self.discarded.unwrap_or(0).saturating_add(waiting));
        self.start = self.buffer.len();
        self.drop_consumed();
    }

    fn drop_consumed(&mut self) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        if self.buffer.capacity() > KEPT_CAPACITY && self.buffer.len() <= KEPT_CAPACITY / 2 {
            self.buffer.shrink_to(KEPT_CAPACITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Vec<Result<Vec<u8>, Overlong>> {
        let mut splitter = LineSplitter::new(limit);
        let mut lines = Vec::new();
        for chunk in chunks {
            splitter.push(chunk);
            while let Some(line) = splitter.next_line() {
                lines.push(line.map(<[u8]>::to_vec));
            }
            assert!(splitter.pending_bytes() <= limit, "kept more than the limit");
        }
        lines
    }

    #[test]
    fn lines_lose_their_line_end_and_empty_ones_vanish() {
        assert_eq!(split(&[b"{}\r\n\r\n\nab\nrest"], 10), [Ok(b"{}".to_vec()), Ok(b"ab".to_vec())]);
    }

    #[test]
    fn a_line_may_arrive_byte_by_byte() {
        let bytes = b"{\"a\":1}\r\n{\"b\":2}\n";
        let chunks: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(split(&chunks, 20), [Ok(b"{\"a\":1}".to_vec()), Ok(b"{\"b\":2}".to_vec())]);
    }

    #[test]
    fn a_long_line_is_named_once_and_the_next_one_is_read() {
        let lines = split(&[b"0123", b"456789", b"0\nok\n"], 5);
        assert_eq!(lines, [Err(Overlong { length: 11, limit: 5 }), Ok(b"ok".to_vec())]);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_taken() {
        assert_eq!(split(&[b"12345\n123456\n"], 5), [Ok(b"12345".to_vec()), Err(Overlong { length: 6, limit: 5 })]);
    }

    #[test]
    fn memory_of_one_long_line_is_given_back() {
        let mut splitter = LineSplitter::new(1 << 20);
        splitter.push(&vec![b'x'; 300_000]);
        assert!(splitter.next_line().is_none());
        splitter.push(b"\n");
        assert_eq!(splitter.next_line().unwrap().unwrap().len(), 300_000);
        splitter.push(b"{}\n");
        assert!(splitter.buffer.capacity() <= KEPT_CAPACITY, "{}", splitter.buffer.capacity());
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_reads_divide_them(
            bytes in proptest::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n'), 1 => Just(b'\r')], 0..400),
            cuts in proptest::collection::vec(1usize..40, 0..40),
        ) {
            let mut chunks = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (chunk, tail) = rest.split_at(cut.min(rest.len()));
                chunks.push(chunk);
                rest = tail;
            }
            chunks.push(rest);
            prop_assert_eq!(split(&chunks, 30), split(&[&bytes[..]], 30));
        }

        #[test]
        fn joined_lines_split_into_themselves(lines in proptest::collection::vec("[^\r\n]{1,20}", 0..20)) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let found: Vec<_> = split(&[text.as_bytes()], 100).into_iter().map(|line| line.unwrap()).collect();
            prop_assert_eq!(found, lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }
}
