//! `kubectl garboard dashboard`: a page in the browser for the machines that the user's own kubectl reaches.
//!
//! ```text
//!   browser ─ http://127.0.0.1:PORT ─► guard, routes (pure) ─┬─ files of the page, in this program
//!                                                            ├─ why: `kubectl get …`, judged here
//!                                                            └─ private unix socket ─► kubectl proxy ─► API server
//! ```
//!
//! [ADR 40](../../../../docs/adr/0040-a-page-in-the-browser.md) says how it is kept from other pages and other users.

#[cfg(unix)]
pub mod page;
#[cfg(unix)]
mod served;

#[cfg(unix)]
pub(crate) use served::run;

/// The socket to kubectl has to be private, and the standard library has no such socket on this system.
#[cfg(not(unix))]
pub(crate) fn run(_: &crate::kubectl::Kubectl, _: &crate::args::DashboardArgs) -> anyhow::Result<u8> {
    Err(crate::exit::exit_error(
        crate::exit::FAILED,
        "the dashboard needs unix sockets, which this system does not have here; use it on Linux or macOS",
    ))
}
