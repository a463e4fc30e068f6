//! How a file gets out of the container that has it: the supervisor connects, and the program inside answers with one message.
//!
//! ```text
//!   supervisor ── connect ──► `garboard-container-disk` in a container of the disk's image
//!              ◄── `o` PATH and one descriptor, or `n` REASON; end ──
//! ```
//!
//! No JSON: the program is to stay small, and a container has one of them for each disk.

/// First byte of an answer that brings a file; its path in the image follows.
pub const OPENED: u8 = b'o';
/// First byte of an answer without one; the reason follows.
pub const REFUSED: u8 = b'n';
/// The longest answer, bytes.
pub const MAX_ANSWER_BYTES: usize = 8192;
