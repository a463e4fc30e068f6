//! `kubectl garboard why vmirs/NAME` and `vmpool/NAME`: how a set of instances or a pool of machines is, by its conditions and by the
//! first of its members that is not well, which is diagnosed as a machine is.
//!
//! ```text
//!   kubectl get … ──gather──► SetFacts, with Facts of some members ──judge (pure)──► Diagnosis
//! ```

mod facts;
mod gather;
mod judge;

pub(super) use facts::SetFacts;
#[cfg(test)]
pub(super) use facts::{Member, MemberState};
pub(super) use gather::gather;
#[cfg(test)]
pub(super) use judge::RULES;
pub(super) use judge::judge;
