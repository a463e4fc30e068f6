//! How much this server takes at once, and for how long. All of it is of one replica.
//!
//! ```text
//!   connection   PLACES: room for all streams, and beside them for requests
//!   request      the rate of its user, then of its namespace, unless it only reads objects
//!                a share of its user, then of its namespace; both are waited for
//!   body         a size by its route; few large ones of each user and each namespace; LIMITS: all together
//!   stream       a share of its user, of its namespace, and of its namespace on the node
//! ```
//!
//! A tenant is a namespace with all its accounts, or one account in many namespaces: what either takes leaves most of each to others.

use std::time::Duration;

use axum::response::Response;
use garboard_subresources::options::LONGEST_BODY;
use garboard_subresources::refusal::Refusal;

use super::rates::Rate;
use super::refused;
use super::shares::Most;
use crate::nodes::change;
use crate::webhook::bounds::{Exceeded, Limits};
use crate::webhook::listener::Places;

/// How long a request waits for its turns, all of them together.
pub(super) const TURN_WITHIN: Duration = Duration::from_secs(5);
/// How long one waits for its instance: a change of it is still answered.
pub(super) const INSTANCE_WITHIN: Duration = Duration::from_secs(2);
const _: () = assert!(INSTANCE_WITHIN.as_secs() + change::WITHIN.as_secs() < LIMITS.judging.as_secs());
/// From the head of a request to its answer, with all that it waits for.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(27);

/// How often one user may have something changed, or a launcher asked, in all namespaces together. A loop of `virtctl` over a thousand
/// machines is within it however quick it is: the burst has two calls for each. So are KubeVirt's functional tests in three processes, whose
/// clients send fewer. A flood is not: sixteen requests at once, each answered within milliseconds, come to hundreds in a second, each
/// with three or more to the API server.
pub(super) const RATE_OF_A_USER: Rate = Rate { per_second: 100, burst: 2000 };
/// The same of one namespace, whose accounts are as many users as they like. One user does not use it up.
pub(super) const RATE_OF_A_NAMESPACE: Rate = Rate { per_second: 200, burst: 4000 };
const _: () = assert!(RATE_OF_A_NAMESPACE.per_second >= 2 * RATE_OF_A_USER.per_second);
const _: () = assert!(RATE_OF_A_NAMESPACE.burst >= 2 * RATE_OF_A_USER.burst);

/// How often a user may cause a log line by what it asks of QEMU: a person's commands all have one. Of more the number is logged; the
/// supervisor has lines of its own, and the API server its audit log.
pub(super) const RATE_OF_LINES: Rate = Rate { per_second: 2, burst: 100 };

/// Requests of one user that are answered at once. Each waits for the API server a few times.
pub(super) const REQUESTS_OF_A_USER: usize = 16;
/// Requests of one user that wait.
pub(super) const WAITING_OF_A_USER: usize = 48;
/// Requests of one namespace that are answered at once.
pub(super) const REQUESTS_OF_A_NAMESPACE: usize = 32;
/// Requests of one namespace that wait or are answered: each may have a connection of its own.
pub(super) const HERE_OF_A_NAMESPACE: usize = 128;
/// Requests of one user, and of one namespace, whose bodies may be large.
pub(super) const LARGE_BODIES: usize = 2;
/// Requests and new streams of one instance at once, and those that wait for one to end.
pub(super) const ASKS_OF_AN_INSTANCE: usize = 4;
pub(super) const WAITING_OF_AN_INSTANCE: usize = 12;

/// Streams that are open. An idle one costs less than 64 KiB (`scripts/bench-streams`).
pub(super) const STREAMS: Most = Most {
    of_all: 2048,
    of_a_user: 128,
    of_a_namespace: 256,
    // The connection of a node's agent has 256 at once (`STREAMS` in `tunnel/src/lib.rs`).
    of_a_namespace_on_a_node: 96,
    of_a_node: 208,
};

/// A stream is a connection of its API server for as long as it is open; a request may be one.
pub(super) const PLACES: Places = Places { connections: 4096, of_an_address: 3072, ..Places::USUAL };
const _: () = assert!(PLACES.of_an_address >= STREAMS.of_all + 8 * HERE_OF_A_NAMESPACE);
const _: () = assert!(PLACES.connections > PLACES.of_an_address);

/// Requests at once, and their bodies. Clients wait for half a minute and longer.
pub(crate) const LIMITS: Limits = Limits {
    at_once: 16 * REQUESTS_OF_A_NAMESPACE,
    bytes: 64 << 20,
    largest: LONGEST_BODY,
    judging: Duration::from_secs(25),
    exceeded,
    ..Limits::USUAL
};

/// HTTP/2: requests of all users come over one connection of an API server. A body that is not read yet takes a part of that
/// connection's window: it has room for as much as all requests together may send unread, so that none holds back another.
pub(super) const REQUESTS_OF_A_CONNECTION: u32 = 200;
pub(super) const WINDOW_OF_A_REQUEST: u32 = 64 << 10;
pub(super) const WINDOW_OF_A_CONNECTION: u32 = REQUESTS_OF_A_CONNECTION * WINDOW_OF_A_REQUEST;

/// The `Status` of a request that exceeds [`LIMITS`].
fn exceeded(what: Exceeded) -> Response {
    let refusal = match what {
        Exceeded::Broken => Refusal::BadRequest("the body of the request could not be read to its end".to_owned()),
        Exceeded::Size { largest } => Refusal::TooLarge(largest),
        Exceeded::Reading { within } => Refusal::SlowBody(within.as_secs()),
        Exceeded::Judging { within } => Refusal::Late(within.as_secs()),
    };
    refused(&refusal, None)
}
