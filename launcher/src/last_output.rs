//! The end of what QEMU printed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

const LAST_OUTPUT_BYTES: u64 = 4096;

/// The end of QEMU's log: control characters escaped, bounded. Nothing where it cannot be read.
pub(crate) fn of(mut log: File) -> String {
    let length = log.metadata().map(|metadata| metadata.len()).unwrap_or(0);
    if log.seek(SeekFrom::Start(length.saturating_sub(LAST_OUTPUT_BYTES))).is_err() {
        return String::new();
    }
    let mut bytes = Vec::new();
    if log.take(LAST_OUTPUT_BYTES).read_to_end(&mut bytes).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    text.trim()
        .chars()
        .flat_map(|character| {
            let printable = character == '\n' || !character.is_control();
            if printable { vec![character] } else { character.escape_default().collect() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_output_is_bounded_and_printable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [b"x".repeat(10_000), b"\x1b[31mred\n".to_vec()].concat()).unwrap();
        let output = of(file.reopen().unwrap());
        assert!(output.len() < 5000 && output.ends_with("\\u{1b}[31mred"), "{output}");
    }
}
