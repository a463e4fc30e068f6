//! A proxy at a port of 127.0.0.1, which every process of this computer reaches. What others do not know is the beginning of its paths:
//! 128 random bits, in the command line of kubectl, which other users of Windows cannot read.

use super::{Bounds, Place, Proxy, SERVER_PATH, spawn};
use crate::kubectl::Kubectl;
use crate::output::note;

/// Starts one.
pub(super) fn start(kubectl: &Kubectl, bounds: &Bounds) -> anyhow::Result<Proxy> {
    let secret = secret();
    let [paths, methods] = bounds.options();
    let prefix = format!("--api-prefix=/{secret}/");
    let command =
        kubectl.command(&["proxy", "--address=127.0.0.1", "--port=0", &prefix, &paths, &methods, SERVER_PATH]);
    let child = spawn(command, kubectl)?;
    note!(
        "garboard: kubectl serves this stream at a port of 127.0.0.1 until it ends, at a path that begins with a secret"
    );
    Proxy::listening(child, |at| Some(Place::Port { address: at.parse().ok()?, secret }))
}

/// 128 random bits as a part of a path. A websocket's key has as many, and its alphabet is almost that of paths.
fn secret() -> String {
    let key = tungstenite::handshake::client::generate_key();
    key.chars().filter(|one| *one != '=').map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect()
}
