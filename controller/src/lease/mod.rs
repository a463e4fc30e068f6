//! Who reconciles: one replica at a time, by a Lease (coordination.k8s.io/v1), as Kubernetes' own controllers do it.
//!
//! Clocks are not compared: a candidate takes over when it has seen the lease unchanged for as long as the lease lasts. A
//! leader that cannot renew for two thirds of that, counted from when it asked, stops by itself, so that there are never two.

pub mod decide;

use std::time::{Duration, Instant};

use garboard_protocol::causes::ErrorChain;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use crate::context::{Context, FIELD_MANAGER, ReconcileError, while_trying};
use decide::{Claim, Observation, decide};

/// Name of the Lease.
pub const LEASE: &str = "garboard-controller";
/// A lease that was not renewed for so long is free.
pub const DURATION: Duration = Duration::from_secs(15);
/// A leader that has not renewed for so long gives up.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often the lease is looked at.
const PERIOD: Duration = Duration::from_secs(2);

/// One replica's part in the election.
pub struct Candidate {
    leases: Api<Lease>,
    /// Who this replica is: the name of its pod.
    me: String,
    /// The lease as it was last seen to change, and when that was.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Candidate {
    /// A replica that does not lead yet.
    #[must_use]
    pub fn new(context: &Context, me: String) -> Self {
        Self { leases: Api::namespaced(context.client.clone(), &context.namespace), me, seen: None }
    }

    /// Returns when this replica leads, and since when: since it asked, for an answer may be long on its way.
    pub async fn win(&mut self) -> Instant {
        loop {
            let asked = Instant::now();
            if self.try_once().await && asked.elapsed() < RENEW_DEADLINE {
                tracing::info!(holder = self.me, "this replica is the leader");
                return asked;
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Renews the lease, and returns when this replica does not lead any more. `won` is the answer of [`Self::win`].
    pub async fn lose(&mut self, won: Instant) {
        let mut renewed = won;
        while renewed.elapsed() < RENEW_DEADLINE {
            tokio::time::sleep(PERIOD).await;
            let rest = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            let asked = Instant::now();
            match tokio::time::timeout(rest, self.attempt()).await {
                Ok(Ok(true)) => renewed = asked,
                Ok(Ok(false)) => break,
                Ok(Err(error)) => {
                    tracing::warn!(error = %ErrorChain(&error), "renewal of the lease failed; tried again")
                }
                Err(_) => tracing::warn!("renewal of the lease timed out; tried again"),
            }
        }
        tracing::warn!(holder = self.me, "this replica is not the leader any more");
    }

    /// Lets the lease go, so that another replica need not wait for its end.
    pub async fn release(&mut self) {
        let Ok(Some(lease)) = self.leases.get_opt(LEASE).await else { return };
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_deref() == Some(self.me.as_str()) {
            let free = LeaseSpec { holder_identity: Some(String::new()), ..spec };
            if let Err(error) = self.leases.replace(LEASE, &params(), &Lease { spec: Some(free), ..lease }).await {
                tracing::warn!(%error, "release of the lease failed; it expires");
            }
        }
    }

    async fn try_once(&mut self) -> bool {
        match self.attempt().await {
            Ok(held) => held,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "renewal of the lease failed; tried again");
                false
            }
        }
    }

    /// Looks at the lease and claims or renews it if that is due. Returns whether it is held afterwards.
    async fn attempt(&mut self) -> Result<bool, ReconcileError> {
        let lease = self.leases.get_opt(LEASE).await.map_err(while_trying("get the lease"))?;
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone());
        if self.seen.as_ref().map(|(known, _)| known) != spec.as_ref() {
            self.seen = spec.clone().map(|spec| (spec, Instant::now()));
        }
        let unchanged = self.seen.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
        match decide(&Observation { spec: spec.as_ref(), unchanged, me: &self.me }) {
            Claim::Wait => Ok(false),
            Claim::Write(spec) => self.write(lease, *spec).await,
        }
    }

    /// Loses the race quietly: the resource version shows whether another replica was faster.
    async fn write(&mut self, lease: Option<Lease>, mut spec: LeaseSpec) -> Result<bool, ReconcileError> {
        let now = MicroTime(jiff::Timestamp::now());
        if spec.acquire_time.is_none() {
            spec.acquire_time = Some(now.clone());
        }
        spec.renew_time = Some(now);
        let written = match lease {
            Some(lease) => self.leases.replace(LEASE, &params(), &Lease { spec: Some(spec), ..lease }).await,
            None => {
                let metadata = ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() };
                self.leases.create(&params(), &Lease { metadata, spec: Some(spec) }).await
            }
        };
        match written {
            Ok(lease) => {
                self.seen = lease.spec.map(|spec| (spec, Instant::now()));
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
            Err(error) => Err(while_trying("write the lease")(error)),
        }
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}
