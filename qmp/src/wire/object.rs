//! Bytes of a client to JSON objects, where no line feed needs to follow one.
//!
//! Nothing is parsed here: strings and brackets are followed just far enough to find where an object ends. What is
//! between may still be no JSON.

/// Deepest nesting taken from a client. The deepest argument of QEMU 7.2 (a `blockdev-add` with nested filters) needs
/// fewer than twenty.
const DEPTH_LIMIT: u32 = 64;

/// Why some bytes were thrown away. Reading goes on behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Something that does not begin with `{`.
    #[error("expected a JSON object, which begins with `{{`")]
    NotAnObject,
    /// An object of more bytes than allowed.
    #[error("the object is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Brackets in brackets beyond the limit.
    #[error("the object is nested deeper than {DEPTH_LIMIT} levels")]
    TooDeep,
    /// A control character inside a string, which JSON requires escaped: mostly a forgotten closing quote.
    #[error("a string is not closed before the end of its line")]
    OpenString,
    /// A closing bracket that was never opened, or of the other kind.
    #[error("a closing bracket does not match")]
    Unbalanced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Between two objects.
    Outside,
    /// Inside an object, outside of its strings.
    Structure,
    Text,
    /// Behind a backslash in a string.
    Escape,
    /// In bytes that make no sense, up to the next line feed.
    Skipping,
}

/// Cuts a stream into JSON objects.
#[derive(Debug)]
pub struct ObjectSplitter {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    place: Place,
    /// One bit per open bracket, 1 for `{`; the lowest is the innermost.
    open: u64,
    depth: u32,
    limit: usize,
}

impl ObjectSplitter {
    /// A splitter that refuses objects of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, scanned: 0, place: Place::Outside, open: 0, depth: 0, limit }
    }

    /// Takes what was read. Call [`next_object`](Self::next_object) until it answers `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.shrink_to(16 << 10);
        self.buffer.extend_from_slice(bytes);
    }

    /// The bytes of the next complete object, or why some were thrown away, or `None` when more are needed.
    pub fn next_object(&mut self) -> Option<Result<&[u8], ObjectError>> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            self.scanned += 1;
            match self.step(byte) {
                Ok(false) => {}
                Ok(true) => {
                    let begin = std::mem::replace(&mut self.start, self.scanned);
                    return Some(Ok(&self.buffer[begin..self.scanned]));
                }
                Err(error) => return Some(Err(self.give_up(error, byte))),
            }
        }
        None
    }

    /// Bytes that wait for the end of their object.
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Follows one byte; true when it ends an object.
    fn step(&mut self, byte: u8) -> Result<bool, ObjectError> {
        let inside = !matches!(self.place, Place::Outside | Place::Skipping);
        if inside && self.scanned - self.start > self.limit {
            return Err(ObjectError::TooLong { limit: self.limit });
        }
        match self.place {
            Place::Skipping => {
                self.start = self.scanned;
                if byte == b'\n' {
                    self.place = Place::Outside;
                }
                return Ok(false);
            }
            Place::Outside => return self.begin(byte),
            Place::Escape => self.place = Place::Text,
            Place::Text => match byte {
                b'"' => self.place = Place::Structure,
                b'\\' => self.place = Place::Escape,
                0..=0x1f => return Err(ObjectError::OpenString),
                _ => {}
            },
            Place::Structure => match byte {
                b'"' => self.place = Place::Text,
                b'{' | b'[' => self.descend(byte)?,
                b'}' | b']' => {
                    self.ascend(byte)?;
                    if self.depth == 0 {
                        self.place = Place::Outside;
                        return Ok(true);
                    }
                }
                _ => {}
            },
        }
        Ok(false)
    }

    fn begin(&mut self, byte: u8) -> Result<bool, ObjectError> {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                self.start = self.scanned;
                Ok(false)
            }
            b'{' => {
                self.start = self.scanned - 1;
                self.place = Place::Structure;
                self.descend(byte)?;
                Ok(false)
            }
            _ => Err(ObjectError::NotAnObject),
        }
    }

    fn descend(&mut self, bracket: u8) -> Result<(), ObjectError> {
        if self.depth == DEPTH_LIMIT {
            return Err(ObjectError::TooDeep);
        }
        self.depth += 1;
        self.open = self.open << 1 | u64::from(bracket == b'{');
        Ok(())
    }

    fn ascend(&mut self, bracket: u8) -> Result<(), ObjectError> {
        if self.open & 1 != u64::from(bracket == b'}') {
            return Err(ObjectError::Unbalanced);
        }
        self.depth -= 1;
        self.open >>= 1;
        Ok(())
    }

    fn give_up(&mut self, error: ObjectError, last: u8) -> ObjectError {
        self.start = self.scanned;
        self.depth = 0;
        self.open = 0;
        self.place = if last == b'\n' { Place::Outside } else { Place::Skipping };
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Vec<Result<String, ObjectError>> {
        let mut splitter = ObjectSplitter::new(limit);
        let mut objects = Vec::new();
        for chunk in chunks {
            splitter.push(chunk);
            while let Some(object) = splitter.next_object() {
                objects.push(object.map(|bytes| String::from_utf8_lossy(bytes).into_owned()));
            }
            assert!(splitter.pending_bytes() <= limit, "kept more than the limit");
        }
        objects
    }

    fn ok(text: &str) -> Result<String, ObjectError> {
        Ok(text.to_owned())
    }

    #[test]
    fn objects_need_no_line_feed_between_them() {
        assert_eq!(
            split(&[br#"{"a":1}{"b":[{}]} {"c":"}"#, br#"\"{"}"#], 99),
            [ok(r#"{"a":1}"#), ok(r#"{"b":[{}]}"#), ok(r#"{"c":"}\"{"}"#)]
        );
    }

    #[test]
    fn an_object_may_span_lines() {
        assert_eq!(split(&[b"{\n\"a\":\n1\n}\n"], 99), [ok("{\n\"a\":\n1\n}")]);
    }

    #[test]
    fn garbage_is_named_once_and_ends_with_its_line() {
        assert_eq!(split(&[b"help me\n{}"], 99), [Err(ObjectError::NotAnObject), ok("{}")]);
        assert_eq!(split(&[b"{\"open\n{}"], 99), [Err(ObjectError::OpenString), ok("{}")]);
        assert_eq!(split(&[b"{]}\n{}"], 99), [Err(ObjectError::Unbalanced), ok("{}")]);
    }

    #[test]
    fn length_and_depth_have_limits() {
        assert_eq!(split(&[b"{\"a\":\"0123456789\"}\n{}"], 8), [Err(ObjectError::TooLong { limit: 8 }), ok("{}")]);
        let deep = format!("{{{}\n{{}}", "[".repeat(70));
        assert_eq!(split(&[deep.as_bytes()], 99), [Err(ObjectError::TooDeep), ok("{}")]);
    }

    proptest! {
        #[test]
        fn objects_do_not_depend_on_how_reads_divide_them(
            text in r#"[{}\[\]"\\a\n ]{0,200}"#, size in 1usize..20,
        ) {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(split(&chunks, 30), split(&[text.as_bytes()], 30));
        }

        #[test]
        fn whatever_serde_writes_is_found_again(texts in proptest::collection::vec("\\PC{0,20}", 1..10)) {
            let objects: Vec<_> = texts.iter().map(|text| serde_json::json!({ text: [text] }).to_string()).collect();
            let found: Vec<_> = split(&[objects.concat().as_bytes()], 999).into_iter().map(|o| o.unwrap()).collect();
            prop_assert_eq!(found, objects);
        }
    }
}
