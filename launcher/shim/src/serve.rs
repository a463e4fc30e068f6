//! The background process itself: one run after the other, in the same resources.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use garboard_common::memory::MemoryWitness;
use garboard_shim_client::pending_restart::{self, PendingRestart};
use garboard_shim_client::request::{LaunchRequest, record_name};
use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::decide::{History, Next, StopRequest};
use crate::resources::HostResources;
use crate::run::run_machine;
use crate::run_journal::MemoryPressure;
use crate::{ending, pause, record};

/// Starts the machine of a directory as its launch request has it, and stays until it is gone for good. Standard output reports
/// that both processes run, or why they do not; standard error leads to the shim's log.
///
/// # Errors
/// What the machine could not get, or what of it could not be removed.
pub fn serve(machine: &Path) -> anyhow::Result<()> {
    garboard_common::private::by_default();
    let request = LaunchRequest::read(machine)?;
    let _ = nix::unistd::setsid();
    // The command blocks the signals it waits for, and its caller may have left descriptors open: the machine's
    // processes inherit neither.
    SigSet::empty().thread_set_mask().context("unblock signals")?;
    garboard_common::close_inherited_on_exec();
    // Taps, their vhost devices and disks are opened here; the supervisor and PID 1 inherit it.
    garboard_common::raise_descriptor_limit();
    // As the supervisor's lines: the innermost span is the last of the list.
    tracing_subscriber::fmt().json().with_current_span(false).with_writer(std::io::stderr).init();
    // One machine and one thread: every line is in it.
    let _vm = span(&request).entered();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(run_all(&request));
    if let Err(error) = &outcome {
        // Standard output still leads to the command if the start failed.
        let _ = writeln!(std::io::stdout(), "{error:#}");
    }
    outcome
}

/// The span of a machine, as the supervisor has it.
fn span(request: &LaunchRequest) -> tracing::Span {
    let LaunchRequest { namespace, name, uid, .. } = request;
    tracing::info_span!("vm", namespace, vmi = name, vmi_uid = uid)
}

async fn run_all(request: &LaunchRequest) -> anyhow::Result<()> {
    // From here on, so that none is missed between two runs.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut resources = HostResources::make(request).await?;
    let outcome = repeat(request.clone(), &mut resources, &mut terminate).await;
    let removed = resources.remove().await;
    outcome?;
    removed
}

/// Runs the machine as often as its strategy requires.
async fn repeat(
    mut request: LaunchRequest,
    resources: &mut HostResources,
    terminate: &mut Signals,
) -> anyhow::Result<()> {
    let mut history = History::default();
    loop {
        let (begun, memory, before) = (Instant::now(), MemoryWitness::new(), resources.oom_kills());
        let outcome = run_machine(&request, resources, terminate).await;
        let own = resources.oom_kills().zip(before).map(|(after, before)| after.saturating_sub(before));
        let end = ending::of(&request, &outcome, begun.elapsed(), pressure(own, &request, &memory));
        let kept = keep_record(&request);
        let Next::Again(pause) = history.follow(request.strategy, &end, chance()) else {
            outcome?;
            return kept;
        };
        if let Err(error) = kept {
            tracing::error!(error = format!("{error:#}"), "the record of the run could not be written");
        }
        let length = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        let again_at_ms = jiff::Timestamp::now().as_millisecond().saturating_add(length);
        tracing::info!(cause = ?end.cause, failures = history.failures(), ?pause, "the machine is started again");
        let ended = end.cause.message();
        pending_restart::announce(
            &request.machine,
            &PendingRestart { ended, failures: history.failures(), again_at_ms },
        )?;
        request.stored = ending::stored(&request);
        resources.end_run(&request)?;
        let stop = tokio::select! {
            stop = pause::wait(&request.machine, pause) => stop,
            _ = terminate.recv() => StopRequest::Requested,
        };
        if stop == StopRequest::Requested {
            return Ok(());
        }
        request.record.set_file_name(record_name());
        request.write()?;
    }
}

/// What the kernel has done to the processes of a run: in the machine's own control group, or, where it has none, in the
/// shim's, in which they are then.
fn pressure(own_kills: Option<u64>, request: &LaunchRequest, memory: &MemoryWitness) -> MemoryPressure {
    match own_kills {
        Some(kills) => MemoryPressure { kills, limit_bytes: request.resources.memory_limit_bytes },
        None => MemoryPressure { kills: memory.kills(), limit_bytes: memory.limit_bytes() },
    }
}

/// A run that never got its directories leaves nothing to keep.
pub(crate) fn keep_record(request: &LaunchRequest) -> anyhow::Result<()> {
    if !request.layout().supervisor().exists() {
        return Ok(());
    }
    // One does not depend on the other.
    let kept = ending::store_machine(request);
    record::keep(&request.layout(), &request.record).context("keep the record of the run")?;
    kept.map(|_| ())
}

/// While the guest runs already, because the host may lose its power. Returns whether there is nothing left to do.
pub(crate) fn store_machine(request: &LaunchRequest) -> bool {
    ending::store_machine(request).unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), "the stored machine could not be written");
        true
    })
}

/// A number that cannot be foreseen: the standard library seeds its hash tables with one.
fn chance() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
