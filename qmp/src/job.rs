//! Waiting for QEMU's background jobs (backup, mirror, commit, stream, create, snapshots).
//!
//! ```text
//!  created ► running ► ready ► (job-complete) ► waiting ► pending ► concluded ► null
//!               │        ▲ mirrors only           │          ▲ auto-finalize=false only
//!               └────────┴──── aborting ◄─────────┴──────────┘ any failure or cancel, then concluded
//! ```
//!
//! Make the watch first, then send the command that starts the job. A job that was started with `auto-dismiss=false`
//! stays listed when it is concluded, with its error, until it is dismissed: [`JobWatch::concluded`] does that. A block
//! job that dismisses itself reports its error only in `BLOCK_JOB_COMPLETED`, which the watch reads too.
//!
//! Sources followed: `qapi/job.json`, `qapi/block-core.json` of QEMU 7.2 and 10.0.

use serde::Deserialize;
use tracing::debug;

use crate::connection::Monitor;
use crate::error::{CallError, ShutdownReason};
use crate::event::{Event, Interest, Notice, Subscription};
use crate::qmp;
use crate::text::printable;

const EVENTS: Interest =
    Interest::Named(&["JOB_STATUS_CHANGE", "BLOCK_JOB_COMPLETED", "BLOCK_JOB_CANCELLED", "BLOCK_JOB_ERROR"]);

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// Not begun.
    Created,
    /// At work.
    Running,
    /// Held by the user or by QEMU.
    Paused,
    /// A mirror in step with its source.
    Ready,
    /// Ready, and held.
    Standby,
    /// Done, waiting for the other jobs of its transaction.
    Waiting,
    /// Done, waiting for `job-finalize`.
    Pending,
    /// Failing or cancelled, cleaning up.
    Aborting,
    /// Over, for better or worse, and still listed.
    Concluded,
    /// Ended and dismissed.
    Null,
    /// A status newer than this program.
    #[serde(other)]
    Unknown,
}

/// Why a job did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// It ended with an error, or was cancelled.
    #[error("job `{job}` failed: {message}")]
    Failed {
        /// The job's id.
        job: String,
        /// QEMU's message. Escaped and bounded.
        message: String,
    },
    /// QEMU ended meanwhile.
    #[error("the connection to QEMU ended while job `{job}` ran")]
    Disconnected {
        /// The job's id.
        job: String,
        /// Why QEMU ended, if it reported that.
        reason: Option<ShutdownReason>,
    },
    /// A command about the job failed.
    #[error("job `{job}` could not be followed")]
    Call {
        /// The job's id.
        job: String,
        /// How it failed.
        #[source]
        source: CallError,
    },
}

/// Follows one job. Put a time limit around its methods with `tokio::time::timeout`: they lose nothing when dropped.
#[derive(Debug)]
pub struct JobWatch {
    monitor: Monitor,
    job: String,
    events: Subscription,
    /// The error of a block job that dismisses itself.
    block_job_error: Option<String>,
    status: Option<JobStatus>,
}

#[derive(Deserialize)]
struct JobInfo {
    id: String,
    status: JobStatus,
    #[serde(default)]
    error: Option<String>,
}

impl Monitor {
    /// Follows the job that will have, or has, this id.
    pub fn watch_job(&self, job: impl Into<String>) -> JobWatch {
        let events = self.subscribe(EVENTS);
        JobWatch { monitor: self.clone(), job: job.into(), events, block_job_error: None, status: None }
    }
}

impl JobWatch {
    /// The job's last reported status; `None` before the first news.
    pub fn status(&self) -> Option<JobStatus> {
        self.status
    }

    /// Waits until the job is ready (a mirror in step) or pending (waiting for `job-finalize`).
    pub async fn ready(&mut self) -> Result<JobStatus, JobError> {
        loop {
            match self.status {
                Some(status @ (JobStatus::Ready | JobStatus::Standby | JobStatus::Pending)) => return Ok(status),
                Some(JobStatus::Concluded | JobStatus::Null) => {
                    self.judge().await?;
                    return Ok(JobStatus::Concluded);
                }
                _ => self.step().await?,
            }
        }
    }

    /// Waits until the job is over, dismisses it if it is still listed, and returns whether it did its work.
    pub async fn concluded(mut self) -> Result<(), JobError> {
        while !matches!(self.status, Some(JobStatus::Concluded | JobStatus::Null)) {
            self.step().await?;
        }
        self.judge().await
    }

    /// Looks at the job now, without waiting for news. For a supervisor that takes over a running job.
    pub async fn look(&mut self) -> Result<JobStatus, JobError> {
        let status = self.query().await?.map_or(JobStatus::Null, |info| info.status);
        self.status = Some(status);
        Ok(status)
    }

    async fn step(&mut self) -> Result<(), JobError> {
        match self.events.next().await {
            Some(Notice::Event(event)) => self.observe(&event),
            Some(Notice::Lagged(lost)) => {
                debug!(job = self.job, lost, "events of a job were lost; its state is queried");
                self.look().await?;
            }
            Some(Notice::Closed { reason }) => return Err(JobError::Disconnected { job: self.job.clone(), reason }),
            None => return Err(JobError::Disconnected { job: self.job.clone(), reason: None }),
        }
        Ok(())
    }

    fn observe(&mut self, event: &Event) {
        #[derive(Deserialize)]
        struct StatusChange {
            id: String,
            status: JobStatus,
        }
        #[derive(Deserialize)]
        struct BlockJob {
            device: String,
            error: Option<String>,
        }
        if event.name == "JOB_STATUS_CHANGE" {
            if let Ok(change) = event.decode::<StatusChange>()
                && change.id == self.job
            {
                self.status = Some(change.status);
            }
        } else if let Ok(block_job) = event.decode::<BlockJob>()
            && block_job.device == self.job
        {
            match &*event.name {
                "BLOCK_JOB_CANCELLED" => self.block_job_error = Some("it was cancelled".to_owned()),
                "BLOCK_JOB_COMPLETED" => self.block_job_error = block_job.error,
                // BLOCK_JOB_ERROR: QEMU may retry or ignore it; only the end counts.
                _ => {}
            }
        }
    }

    /// Whether the job, which is over, did its work.
    async fn judge(&mut self) -> Result<(), JobError> {
        let mut error = self.block_job_error.take();
        if let Some(info) = self.query().await? {
            error = info.error.or(error);
            // A job that dismisses itself may do so between our question and this.
            if let Err(error) = self.monitor.call(&qmp::job_dismiss { id: self.job.clone() }).await {
                debug!(job = self.job, %error, "could not dismiss a concluded job");
            }
        }
        match error {
            None => Ok(()),
            Some(message) => Err(JobError::Failed { job: self.job.clone(), message: printable(&message, 500) }),
        }
    }

    async fn query(&self) -> Result<Option<JobInfo>, JobError> {
        let jobs: Result<Vec<JobInfo>, _> = self.monitor.ask(&qmp::query_jobs {}).await;
        let jobs = jobs.map_err(|source| JobError::Call { job: self.job.clone(), source })?;
        Ok(jobs.into_iter().find(|info| info.id == self.job))
    }
}
