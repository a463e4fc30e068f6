//! Kubernetes' times. The clock is read in `observe` only; everything else is given an instant.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// An instant as Kubernetes writes it: whole seconds.
#[must_use]
pub fn stamp(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// How long something is ago; nothing if it is yet to come.
#[must_use]
pub fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}
