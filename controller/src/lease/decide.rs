//! Whether a replica may claim the lease. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;

use super::DURATION;

/// What a replica sees.
pub struct Observation<'a> {
    /// The lease, if there is one.
    pub spec: Option<&'a LeaseSpec>,
    /// How long it has not changed under this replica's eyes, by its own clock.
    pub unchanged: Duration,
    /// Its own name.
    pub me: &'a str,
}

/// What it does.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// Another holds it.
    Wait,
    /// Write this, with the time of now in `renewTime`, and in `acquireTime` where there is none.
    Write(Box<LeaseSpec>),
}

/// Decides.
#[must_use]
pub fn decide(observation: &Observation<'_>) -> Claim {
    let Some(spec) = observation.spec else { return claim(observation, &LeaseSpec::default()) };
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder == observation.me {
        return Claim::Write(Box::new(LeaseSpec { lease_duration_seconds: Some(seconds()), ..spec.clone() }));
    }
    let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let is_over = observation.unchanged >= lasts.map_or(DURATION, Duration::from_secs);
    if holder.is_empty() || is_over { claim(observation, spec) } else { Claim::Wait }
}

fn claim(observation: &Observation<'_>, before: &LeaseSpec) -> Claim {
    Claim::Write(Box::new(LeaseSpec {
        holder_identity: Some(observation.me.to_owned()),
        lease_duration_seconds: Some(seconds()),
        lease_transitions: Some(before.lease_transitions.map_or(0, |count| count.saturating_add(1))),
        acquire_time: None,
        renew_time: None,
        ..before.clone()
    }))
}

fn seconds() -> i32 {
    i32::try_from(DURATION.as_secs()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(by.to_owned()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    fn claimed(spec: Option<&LeaseSpec>, unchanged: u64) -> Option<(String, i32)> {
        match decide(&Observation { spec, unchanged: Duration::from_secs(unchanged), me: "me" }) {
            Claim::Wait => None,
            Claim::Write(spec) => Some((spec.holder_identity.unwrap(), spec.lease_transitions.unwrap())),
        }
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_over_and_not_before() {
        assert_eq!(claimed(None, 0), Some(("me".to_owned(), 0)));
        assert_eq!(claimed(Some(&held("")), 0), Some(("me".to_owned(), 4)));
        assert_eq!(claimed(Some(&held("other")), 14), None);
        assert_eq!(claimed(Some(&held("other")), 15), Some(("me".to_owned(), 4)));
    }

    #[test]
    fn the_holder_renews_and_counts_no_transition() {
        assert_eq!(claimed(Some(&held("me")), 0), Some(("me".to_owned(), 3)));
    }

    #[test]
    fn a_lease_without_a_duration_lasts_as_long_as_ours() {
        let spec = LeaseSpec { lease_duration_seconds: None, ..held("other") };
        assert_eq!(claimed(Some(&spec), 14), None);
        assert!(claimed(Some(&spec), 15).is_some());
    }
}
