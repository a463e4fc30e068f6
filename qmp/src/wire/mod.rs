//! Bytes of a JSON channel, cut into bounded pieces and read as messages.
//!
//! For: everything that arrives on a monitor socket, a guest agent channel or from a client of the debug broker. Not
//! for: sending, or deciding what a message means.
//!
//! ```text
//! from QEMU, from the guest agent:  bytes ─► LineSplitter   ─► one line   ─► Message::parse
//! from a client of the broker:      bytes ─► ObjectSplitter ─► one object ─► broker
//! ```
//!
//! QEMU ends every message with a line feed and never puts one inside, so a line is a message and the next line feed is
//! where messages begin again after garbage. Clients are less tidy (older `qmp-shell` sends no line feed at all), so
//! their bytes are cut where a JSON object ends.
//!
//! Invariants: nothing here panics whatever the bytes are, nothing keeps more than the given limit plus one chunk, and
//! the pieces do not depend on how the bytes were divided into reads. The fuzz targets `qmp_lines` and `broker_input`
//! hold this.
//!
//! Source followed: `docs/interop/qmp-spec.rst` of QEMU 7.2 and 10.0.

mod line;
mod message;
mod object;

pub use line::{LineSplitter, Overlong};
pub use message::{EventTime, Message, MessageError};
pub use object::{ObjectError, ObjectSplitter};

/// Longest message taken from QEMU, in bytes. `query-qmp-schema`, the longest reply of QEMU 7.2, has 207 009.
pub const MONITOR_LINE_LIMIT: usize = 8 << 20;

/// Longest message taken from a guest agent, in bytes. A list of sixty interfaces with statistics has about 40 000.
pub const AGENT_LINE_LIMIT: usize = 256 << 10;

/// Longest message taken from a client of the debug broker, in bytes.
pub const CLIENT_MESSAGE_LIMIT: usize = 1 << 20;
