//! The rules, by what they look at.

pub(super) mod components;
pub(super) mod containers;
pub(super) mod data_volumes;
pub(super) mod ending;
mod last_end;
pub(super) mod lifecycle;
pub(super) mod refused;
pub(super) mod remarks;
pub(super) mod running;
pub(super) mod scheduling;
mod start_errors;
