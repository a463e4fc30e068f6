//! What every server of the page has in common: its files, the paths that it uses, which requests are the page's own, the headers of its
//! answers, what it says where it refuses itself, and how a websocket that the API server refused ends. `kubectl garboard dashboard` is one; the program `garboard-dashboard`, in a cluster, is the other. Pure.

pub mod assets;
pub mod headers;
pub mod origin;
pub mod routes;
pub mod socket_frames;
pub mod status;

/// The protocol that a watch offers beside its token, for an answer: API servers name none, and browsers want one.
pub const WATCH_PROTOCOL: &str = "garboard.watch";

/// The protocols that a websocket offers, by its header.
pub fn protocols(header: Option<&str>) -> impl Iterator<Item = &str> {
    header.into_iter().flat_map(|line| line.split(',')).map(str::trim)
}
