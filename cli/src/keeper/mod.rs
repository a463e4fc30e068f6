//! The keeper: the background process of one machine on a bare host. It plays kubelet and node agent.
//!
//! ```text
//!   run ──order.json──► keeper ─┬─ resources: directory, network namespace, cgroup      (undone in reverse)
//!                               ├─ agent.sock: opens volumes, plumbs interfaces
//!                               ├─ supervisor   (started again whenever it dies, after a pause: `restarts`)
//!                               └─ PID 1        (once; when it is gone the run is over)
//!                                     │
//!                     decide: again, when, or not ──► the same resources, the next run
//! ```
//!
//! It holds no state of the machine: killed, it leaves the guest running, and [`clean_up_orphan`] removes
//! what it made from names alone.

mod agent_server;
pub(crate) mod between;
pub(crate) mod decide;
pub(crate) mod directory;
mod ending;
pub(crate) mod identity;
pub(crate) mod last_word;
pub(crate) mod order;
pub(crate) mod processes;
mod projected;
mod record;
mod resources;
mod restarts;
mod short_logs;
pub(crate) mod spawn;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_launcher::init::MemoryWitness;
use garboard_protocol::paths::Layout;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::args::KeeperArgs;
use crate::exit;
use crate::places::{MachineId, Places};
use between::Between;
use decide::{History, Next, Wish};
use last_word::MemoryPressure;
use order::Order;
use resources::HostResources;
use restarts::Restarts;
use spawn::Apart;

/// Name of the order in the machine's directory.
pub(crate) const ORDER: &str = "order.json";
/// Name of the keeper's own log.
const KEEPER_LOG: &str = "keeper.log";
/// What the keeper says once both processes run.
const STARTED: &str = "started";
/// How often is looked whether the guest runs, until its machine is kept.
const LOOK: Duration = Duration::from_secs(1);
/// How long the rest of a machine's directory may outlive its lock.
const LAST_FILES: Duration = Duration::from_secs(2);
/// A machine whose supervisors have died this often before QEMU was executed is given up.
const MOST_FALSE_STARTS: u32 = 20;
/// How long the supervisor may take to tell everybody how it ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// Starts a keeper in the background; returns once both processes of the machine run, or with the keeper's
/// own sentence why not.
pub(crate) fn start(order: &Order) -> anyhow::Result<()> {
    let path = write_order(order)?;
    let log = short_logs::create(&order.machine.join(KEEPER_LOG)).context("create the keeper's log")?;
    let mut keeper = Command::new(std::env::current_exe()?)
        .arg("keeper")
        .arg(&path)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        // A process group of its own: Ctrl-C on the terminal is for `run`, which then asks politely.
        .process_group(0)
        .spawn()
        .context("start the keeper")?;
    let mut said = String::new();
    if let Some(mut out) = keeper.stdout.take() {
        std::io::Read::read_to_string(&mut out, &mut said).context("hear from the keeper")?;
    }
    if said.trim() == STARTED {
        return Ok(());
    }
    let _ = keeper.wait();
    let why = std::fs::read_to_string(order.machine.join(KEEPER_LOG)).unwrap_or_default();
    let why = if said.trim().is_empty() { why } else { said };
    Err(exit::complaint(exit::FAILED, why.trim().trim_start_matches("garboard: ").to_owned()))
}

fn write_order(order: &Order) -> anyhow::Result<PathBuf> {
    let path = order.machine.join(ORDER);
    crate::private::replace(&order.machine, ORDER, &serde_json::to_vec_pretty(order)?)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// `garboard keeper ORDER`: the background process itself.
pub(crate) fn run(args: &KeeperArgs) -> anyhow::Result<u8> {
    crate::private::by_default();
    let bytes = std::fs::read(&args.order).with_context(|| format!("read {}", args.order.display()))?;
    let order: Order = serde_json::from_slice(&bytes).context("understand the order")?;
    let _ = nix::unistd::setsid();
    // `run` blocks the signals it waits for, and its caller may have left descriptors open: the machine's
    // processes inherit neither.
    SigSet::empty().thread_set_mask().context("unblock signals")?;
    garboard_launcher::close_inherited_on_exec();
    // Taps, their vhost devices and disks are opened here; the supervisor and PID 1 inherit it.
    garboard_launcher::raise_descriptor_limit();
    // Standard error leads to the keeper's log.
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(keep(&order));
    if let Err(error) = &outcome {
        // Standard output still leads to `run` if the start failed.
        let _ = writeln!(std::io::stdout(), "{error:#}");
    }
    outcome.map(|()| exit::OK)
}

async fn keep(order: &Order) -> anyhow::Result<()> {
    // From here on, so that none is missed between two runs.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut resources = HostResources::make(order).await?;
    let outcome = keep_running(order.clone(), &mut resources, &mut terminate).await;
    let removed = resources.remove().await;
    outcome?;
    removed
}

/// Runs the machine as often as its strategy wants.
async fn keep_running(mut order: Order, resources: &mut HostResources, terminate: &mut Signals) -> anyhow::Result<()> {
    let mut history = History::default();
    loop {
        let (begun, memory, before) = (Instant::now(), MemoryWitness::new(), resources.oom_kills());
        let outcome = run_machine(&order, resources, terminate).await;
        let own = resources.oom_kills().zip(before).map(|(after, before)| after.saturating_sub(before));
        let end = ending::of(&order, &outcome, begun.elapsed(), pressure(own, &order, &memory));
        let kept = keep_record(&order);
        let Next::Again(pause) = history.follow(order.strategy, &end, chance()) else {
            outcome?;
            return kept;
        };
        if let Err(error) = kept {
            tracing::error!(error = format!("{error:#}"), "the record of a run is lost");
        }
        let length = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        let again_at_ms = garboard_launcher::clock::now_ms().saturating_add(length);
        tracing::info!(cause = ?end.cause, failures = history.failures(), ?pause, "the machine is started again");
        let ended = end.cause.sentence();
        between::announce(&order.machine, &Between { ended, failures: history.failures(), again_at_ms })?;
        order.stored = ending::stored(&order);
        resources.end_run(&order)?;
        let wish = tokio::select! {
            wish = between::pause(&order.machine, pause) => wish,
            _ = terminate.recv() => Wish::StayDown,
        };
        if wish == Wish::StayDown {
            return Ok(());
        }
        order.record.set_file_name(order::record_name());
        write_order(&order)?;
    }
}

/// What the kernel has done to the processes of a run: by the machine's own control group, or, where it has none, by the
/// keeper's, in which they are then.
fn pressure(own_kills: Option<u64>, order: &Order, memory: &MemoryWitness) -> MemoryPressure {
    match own_kills {
        Some(kills) => MemoryPressure { kills, limit_bytes: order.resources.memory_limit_bytes },
        None => MemoryPressure { kills: memory.kills(), limit_bytes: memory.limit_bytes() },
    }
}

/// A run that never got its directories leaves nothing to keep.
fn keep_record(order: &Order) -> anyhow::Result<()> {
    if !order.layout().supervisor().exists() {
        return Ok(());
    }
    // One does not depend on the other.
    let kept = ending::keep_machine(order);
    record::keep(&order.layout(), &order.record).context("keep the record of the run")?;
    kept.map(|_| ())
}

/// While the guest runs already, because the host may lose its power. Says whether there is nothing left to do.
fn keep_machine(order: &Order) -> bool {
    ending::keep_machine(order).unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), "the machine is not kept for another run");
        true
    })
}

/// A number nobody can foresee: the standard library seeds its hash tables with one.
fn chance() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

async fn run_machine(order: &Order, resources: &mut HostResources, terminate: &mut Signals) -> anyhow::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let log = order.machine.join(crate::logs::SUPERVISOR_LOG);
    let layout = order.layout();
    resources.begin_run(order).await?;
    let (mut supervisor, mut born) = (Some(start_supervisor(order, resources, &log)?), Instant::now());
    between::withdraw(&order.machine);
    let init = match start_init(order, resources, &log) {
        Ok(init) => init,
        Err(error) => {
            say_goodbye(supervisor, &layout).await;
            return Err(error);
        }
    };
    say_started();
    let now = tokio::time::Instant::now;
    let (mut next, mut look) = (None, now() + LOOK);
    let mut log_look = tokio::time::interval(short_logs::LOOK);
    let (mut false_starts, mut restarts) = (0, Restarts::default());
    let mut is_kept = false;
    loop {
        tokio::select! {
            _ = children.recv() => {}
            _ = terminate.recv() => ask_to_terminate(init),
            () = tokio::time::sleep_until(next.unwrap_or(look)), if next.is_some() => {
                next = None;
                (supervisor, born) = (next_supervisor(order, resources, &log), Instant::now());
            }
            _ = log_look.tick() => short_logs::cut_all(&order.machine),
            () = tokio::time::sleep_until(look), if !is_kept => {
                is_kept = keep_machine(order);
                look = now() + LOOK;
            }
        }
        if has_ended(init) {
            say_goodbye(supervisor, &layout).await;
            return Ok(());
        }
        if next.is_none() && supervisor.is_none_or(has_ended) {
            // Its number may be another process's from now on.
            supervisor = None;
            let is_launched = is_launched(&layout);
            // Before QEMU is executed they are counted instead: `garboard run` waits.
            let pause = if is_launched { restarts.pause(born.elapsed()) } else { restarts::USUAL };
            tracing::warn!(?pause, "there is no supervisor; the next one is started");
            next = Some(now() + pause);
            false_starts += u32::from(!is_launched);
            if false_starts == MOST_FALSE_STARTS {
                last_word::never_started(&layout, crate::logs::last_complaint(&layout));
                ask_to_terminate(init);
            }
        }
    }
}

fn start_supervisor(order: &Order, resources: &HostResources, log: &Path) -> anyhow::Result<Pid> {
    let supervisor = pid(spawn::supervisor(order, log)?.id())?;
    resources.confine_supervisor(supervisor);
    Ok(supervisor)
}

/// The guest runs on without one: where none can be started it is tried again.
fn next_supervisor(order: &Order, resources: &HostResources, log: &Path) -> Option<Pid> {
    start_supervisor(order, resources, log)
        .inspect_err(|error| tracing::error!(error = format!("{error:#}"), "the supervisor could not be started"))
        .ok()
}

fn start_init(order: &Order, resources: &HostResources, log: &Path) -> anyhow::Result<Pid> {
    if let Some(netns) = resources.namespace()? {
        return pid(start_init_apart(order, resources, Apart::Keeper(netns), log)?.id());
    }
    // A user's PID 1 becomes our child when the process that made its namespaces leaves.
    nix::sys::prctl::set_child_subreaper(true).context("prepare to adopt PID 1")?;
    match spawn::adopt(start_init_apart(order, resources, Apart::UserNamespace, log)?)? {
        Ok(init) => Ok(init),
        Err(why) => {
            tracing::warn!(why, "the machine has no namespaces of its own");
            pid(start_init_apart(order, resources, Apart::Nothing, log)?.id())
        }
    }
}

fn start_init_apart(order: &Order, resources: &HostResources, apart: Apart, log: &Path) -> anyhow::Result<Child> {
    let child = spawn::init(order, apart, log)?;
    let confined = pid(child.id()).and_then(|init| resources.confine(init));
    let mut child = ended_unless(confined, child)?;
    // Closing its standard input lets PID 1 go on.
    drop(child.stdin.take());
    Ok(child)
}

/// A process that waits for its standard input to be closed would go on if it were only forgotten.
fn ended_unless(outcome: anyhow::Result<()>, mut child: Child) -> anyhow::Result<Child> {
    let Err(error) = outcome else { return Ok(child) };
    child.kill().and_then(|()| child.wait()).context("end PID 1, which has no limits")?;
    Err(error)
}

/// PID 1 inside a PID namespace ignores signals it has no handler for; SIGTERM it handles.
fn ask_to_terminate(init: Pid) {
    let _ = kill(init, Signal::SIGTERM);
}

/// PID 1 is gone: the supervisor has its last line and tells everybody, then it may go.
async fn say_goodbye(supervisor: Option<Pid>, layout: &Layout) {
    let Some(supervisor) = supervisor.filter(|supervisor| !has_ended(*supervisor)) else { return };
    let deadline = Instant::now() + FAREWELL;
    while Instant::now() < deadline && !has_told(layout) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if has_ended(supervisor) {
            return;
        }
    }
    let _ = kill(supervisor, Signal::SIGTERM);
    while !has_ended(supervisor) {
        if Instant::now() > deadline + FAREWELL {
            let _ = kill(supervisor, Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether the journal holds the end.
fn has_told(layout: &Layout) -> bool {
    matches!(last_word::journal(layout), Ok(Some(journal)) if journal.ended.is_some())
}

/// Whether the journal says that QEMU was executed, or may have been.
fn is_launched(layout: &Layout) -> bool {
    matches!(last_word::journal(layout), Ok(Some(journal)) if journal.launched)
}

fn say_started() {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{STARTED}");
    let _ = out.flush();
    // Once: `run` reads until the end of the pipe: hand our standard output over to the log's place, nowhere.
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(null);
    }
}

fn has_ended(process: Pid) -> bool {
    match waitpid(process, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) => true,
        Ok(
            WaitStatus::StillAlive
            | WaitStatus::Stopped(..)
            | WaitStatus::PtraceEvent(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::Continued(_),
        ) => false,
    }
}

fn pid(id: u32) -> anyhow::Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(id).context("a process ID is out of range")?))
}

/// Waits until a machine's directory is gone: then nothing of it is left.
pub(crate) fn wait_until_gone(places: &Places, id: &MachineId) -> anyhow::Result<()> {
    let machine = places.machine(id);
    let mut alive = Instant::now();
    while machine.exists() {
        // The directory goes with its lock, at once unless it cannot be renamed: only a keeper that stays away is dead.
        if keeper_is_alive(&machine) {
            alive = Instant::now();
        } else if alive.elapsed() > LAST_FILES {
            return clear_away(places, id);
        }
        pause_briefly();
    }
    Ok(())
}

/// What a dead keeper left. Without an order nothing can be said of it any more but that it is in the way.
pub(crate) fn clear_away(places: &Places, id: &MachineId) -> anyhow::Result<()> {
    let machine = places.machine(id);
    if machine.join(ORDER).exists() {
        return clean_up_orphan(places, id);
    }
    match std::fs::remove_dir_all(&machine) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", machine.display()))
        }
        _ => Ok(()),
    }
}

/// The record of a machine's present run: each has its own, so it tells runs apart.
pub(crate) fn present_run(machine: &Path) -> Option<PathBuf> {
    let order: serde_json::Value = serde_json::from_slice(&std::fs::read(machine.join(ORDER)).ok()?).ok()?;
    order["record"].as_str().map(PathBuf::from)
}

/// Whether somebody holds the machine's lock.
pub(crate) fn keeper_is_alive(machine: &Path) -> bool {
    resources::is_locked(machine)
}

/// A wait between two looks at the file system, which cannot tell us when it changes without another crate.
pub(crate) fn pause_briefly() {
    let _ = nix::poll::poll(&mut [], nix::poll::PollTimeout::from(20_u8));
}

/// Has the keeper end a machine that `run` cannot follow any more.
pub(crate) fn give_up(places: &Places, id: &MachineId) -> anyhow::Result<()> {
    let machine = places.machine(id);
    processes::send(&processes::find(&machine, processes::Part::Keeper), Signal::SIGTERM);
    wait_until_gone(places, id)
}

/// Whether a machine without a keeper still has a guest: then it is no leftover.
pub(crate) fn has_guest(machine: &Path) -> bool {
    !processes::find(machine, processes::Part::Init).is_empty()
}

/// How long the guest of a machine may take to power down.
pub(crate) fn grace(machine: &Path) -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(read_order(machine)?.grace_seconds))
}

fn read_order(machine: &Path) -> anyhow::Result<Order> {
    let bytes = std::fs::read(machine.join(ORDER)).context("read the machine's order")?;
    serde_json::from_slice(&bytes).context("understand the machine's order")
}

/// Removes everything of a machine whose keeper is dead: processes, network by name, files.
pub(crate) fn clean_up_orphan(places: &Places, id: &MachineId) -> anyhow::Result<()> {
    let machine = places.machine(id);
    let order = read_order(&machine)?;
    processes::end_all(&machine);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        keep_record(&order)?;
        HostResources::adopt(&order).remove().await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_1_without_its_limits_does_not_go_on() {
        let room = tempfile::tempdir().unwrap();
        let went_on = room.path().join("went on");
        let waiting = || {
            let mut command = Command::new("sh");
            command.args(["-c", "read line; touch \"$0\""]).arg(&went_on).stdin(Stdio::piped()).spawn().unwrap()
        };
        let child = waiting();
        let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(ended_unless(Err(anyhow::anyhow!("no such group")), child).is_err());
        assert_eq!(kill(process, None), Err(nix::errno::Errno::ESRCH), "it is gone, not only asked to go");
        assert!(!went_on.exists());
        let mut child = ended_unless(Ok(()), waiting()).unwrap();
        assert!(child.wait().unwrap().success() && went_on.exists());
    }
}
