//! The page of `kubectl garboard dashboard`, served in a cluster for users who have no kubectl.
//!
//! ```text
//!   browser ─ TLS, the user's token ─► server ─┬─ files of the page
//!                                              ├─ guard, credentials, the page's routes, head (pure)
//!                                              │      └─► upstream ─ TLS, the same token ─► API server
//!                                              └─ why: the page's user looks, the plugin's rules judge
//! ```
//!
//! It holds no rights: its pod has no token, it stores none, and what it asks of the API server it asks with the token that came with the
//! request. [ADR 41](../../docs/adr/0041-the-page-in-a-cluster.md) has the rest.
#![forbid(unsafe_code)]

pub mod credentials;
pub mod forward;
pub mod guard;
pub mod head;
mod looking;
pub mod patient;
pub mod places;
pub mod refusal;
pub mod server;
pub mod tls;
pub mod upstream;
