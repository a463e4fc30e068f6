//! What every server of the page has in common: its files, the paths that it uses, the headers of its answers, and how a websocket that the
//! API server refused ends. `kubectl garboard dashboard` is one; the program `garboard-dashboard`, in a cluster, is the other. Pure.

pub mod assets;
pub mod headers;
pub mod routes;
pub mod socket_frames;

/// The protocol that a watch offers beside its token, for an answer: API servers name none, and browsers want one.
pub const WATCH_PROTOCOL: &str = "garboard.watch";
