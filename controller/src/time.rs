//! Kubernetes' times. The clock is read in `observe` only; everything else is given an instant.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// An instant as Kubernetes writes it: whole seconds.
#[must_use]
pub fn stamp(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
