//! One run of the machine: its supervisors, its PID 1, until that is gone.

use std::time::{Duration, Instant};

use garboard_protocol::paths::Layout;
use garboard_shim_client::logs::SUPERVISOR_LOG;
use garboard_shim_client::pending_restart;
use garboard_shim_client::request::LaunchRequest;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::children::{
    ask_to_terminate, end_supervisor, has_ended, next_supervisor, report_started, start_init, start_supervisor,
};
use crate::resources::HostResources;
use crate::restarts::{self, Restarts};
use crate::serve::store_machine;
use crate::{logs, run_journal};

/// How often is looked whether the guest runs, until its machine is stored.
const LOOK: Duration = Duration::from_secs(1);
/// A machine whose supervisors have died this often before QEMU was executed is given up.
const MOST_FALSE_STARTS: u32 = 20;

/// Runs the machine once.
pub(crate) async fn run_machine(
    request: &LaunchRequest,
    resources: &mut HostResources,
    terminate: &mut Signals,
) -> anyhow::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let log = request.machine.join(SUPERVISOR_LOG);
    let layout = request.layout();
    resources.begin_run(request).await?;
    let (mut supervisor, mut born) = (Some(start_supervisor(request, resources, &log)?), Instant::now());
    pending_restart::withdraw(&request.machine);
    let init = match start_init(request, resources, &log) {
        Ok(init) => init,
        Err(error) => {
            end_supervisor(supervisor, &layout).await;
            return Err(error);
        }
    };
    report_started();
    let now = tokio::time::Instant::now;
    let (mut next, mut look) = (None, now() + LOOK);
    let mut log_look = tokio::time::interval(logs::LOOK);
    let (mut false_starts, mut restarts) = (0, Restarts::default());
    let mut is_stored = false;
    loop {
        tokio::select! {
            _ = children.recv() => {}
            _ = terminate.recv() => ask_to_terminate(init),
            () = tokio::time::sleep_until(next.unwrap_or(look)), if next.is_some() => {
                next = None;
                (supervisor, born) = (next_supervisor(request, resources, &log), Instant::now());
            }
            _ = log_look.tick() => logs::cut_all(&request.machine),
            () = tokio::time::sleep_until(look), if !is_stored => {
                is_stored = store_machine(request);
                look = now() + LOOK;
            }
        }
        if has_ended(init) {
            end_supervisor(supervisor, &layout).await;
            return Ok(());
        }
        if next.is_none() && supervisor.is_none_or(has_ended) {
            // Its number may be another process's from now on.
            supervisor = None;
            let is_launched = is_launched(&layout);
            // Before QEMU is executed they are counted instead: the command waits.
            let pause = if is_launched { restarts.pause(born.elapsed()) } else { restarts::USUAL };
            tracing::warn!(?pause, "the supervisor ended; the next one is started");
            next = Some(now() + pause);
            false_starts += u32::from(!is_launched);
            if false_starts == MOST_FALSE_STARTS {
                run_journal::never_started(&layout, logs::last_error(&layout));
                ask_to_terminate(init);
            }
        }
    }
}

/// Whether QEMU was executed, or may have been, according to the journal.
fn is_launched(layout: &Layout) -> bool {
    matches!(run_journal::read(layout), Ok(Some(journal)) if journal.launched)
}
