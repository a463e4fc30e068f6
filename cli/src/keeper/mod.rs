//! The keeper: the background process of one machine on a bare host. It plays kubelet and node agent.
//!
//! ```text
//!   run ──order.json──► keeper ─┬─ premises: directory, network namespace, cgroup      (undone in reverse)
//!                               ├─ agent.sock: opens volumes, plumbs interfaces
//!                               ├─ supervisor   (started again whenever it dies)
//!                               └─ PID 1        (once; when it is gone the machine is over)
//! ```
//!
//! It holds no state of the machine: killed, it leaves the guest running, and [`clean_up_orphan`] removes
//! what it made from names alone.

mod agent_server;
pub(crate) mod order;
mod premises;
mod projected;
mod record;
pub(crate) mod spawn;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::KeeperArgs;
use crate::exit;
use crate::places::{MachineId, Places};
use order::Order;
use premises::Premises;
use spawn::Apart;

/// Name of the order in the machine's directory.
pub(crate) const ORDER: &str = "order.json";
/// Name of the keeper's own log.
const KEEPER_LOG: &str = "keeper.log";
/// What the keeper says once both processes run.
const STARTED: &str = "started";
/// A supervisor that dies at once is started again this much later, so that it cannot spin.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
/// How long the supervisor may take to tell everybody how it ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// Starts a keeper in the background; returns once both processes of the machine run, or with the keeper's
/// own sentence why not.
pub(crate) fn start(order: &Order) -> anyhow::Result<()> {
    let path = order.machine.join(ORDER);
    std::fs::write(&path, serde_json::to_vec_pretty(order)?).with_context(|| format!("write {}", path.display()))?;
    let log = std::fs::File::create(order.machine.join(KEEPER_LOG)).context("create the keeper's log")?;
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

/// `garboard keeper ORDER`: the background process itself.
pub(crate) fn run(args: &KeeperArgs) -> anyhow::Result<u8> {
    let bytes = std::fs::read(&args.order).with_context(|| format!("read {}", args.order.display()))?;
    let order: Order = serde_json::from_slice(&bytes).context("understand the order")?;
    let _ = nix::unistd::setsid();
    // `run` blocks the signals it waits for, and its caller may have left descriptors open: the machine's
    // processes inherit neither.
    SigSet::empty().thread_set_mask().context("unblock signals")?;
    garboard_launcher::close_inherited_on_exec();
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
    let mut premises = Premises::make(order).await?;
    let outcome = run_machine(order, &mut premises).await;
    let kept = record::keep(&order.shared(), &order.record);
    let removed = premises.remove().await;
    outcome?;
    kept.context("keep the record of the run")?;
    removed
}

async fn run_machine(order: &Order, premises: &mut Premises) -> anyhow::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let log = order.shared().join(crate::logs::SUPERVISOR_LOG);
    let shared = order.shared();
    premises.serve_agent(order)?;
    let mut supervisor = pid(spawn::supervisor(&shared, &log)?.id())?;
    let init = start_init(order, premises, &log)?;
    say_started();
    let mut pause: Option<Duration> = None;
    loop {
        tokio::select! {
            _ = children.recv() => {}
            _ = terminate.recv() => ask_to_terminate(init),
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {
                pause = None;
                supervisor = pid(spawn::supervisor(&shared, &log)?.id())?;
            }
        }
        if has_ended(init) {
            say_goodbye(supervisor, &shared).await;
            return Ok(());
        }
        if pause.is_none() && has_ended(supervisor) {
            tracing::warn!("the supervisor died; starting the next one");
            pause = Some(RESTART_PAUSE);
        }
    }
}

fn start_init(order: &Order, premises: &Premises, log: &Path) -> anyhow::Result<Pid> {
    if let Some(netns) = premises.namespace()? {
        return pid(start_init_apart(order, premises, Apart::Keeper(netns), log)?.id());
    }
    // A user's PID 1 becomes our child when the process that made its namespaces leaves.
    nix::sys::prctl::set_child_subreaper(true).context("prepare to adopt PID 1")?;
    match spawn::adopt(start_init_apart(order, premises, Apart::UserNamespace, log)?)? {
        Ok(init) => Ok(init),
        Err(why) => {
            tracing::warn!(why, "the machine has no namespaces of its own");
            pid(start_init_apart(order, premises, Apart::Nothing, log)?.id())
        }
    }
}

fn start_init_apart(order: &Order, premises: &Premises, apart: Apart, log: &Path) -> anyhow::Result<Child> {
    let mut child = spawn::init(&order.shared(), &order.facts, apart, log)?;
    premises.confine(pid(child.id())?)?;
    // Closing its standard input lets PID 1 go on.
    drop(child.stdin.take());
    Ok(child)
}

/// PID 1 inside a PID namespace ignores signals it has no handler for; SIGTERM it handles.
fn ask_to_terminate(init: Pid) {
    let _ = kill(init, Signal::SIGTERM);
}

/// PID 1 is gone: the supervisor has its last line and tells everybody, then it may go.
async fn say_goodbye(supervisor: Pid, shared: &Path) {
    let deadline = Instant::now() + FAREWELL;
    while Instant::now() < deadline && !has_ended(supervisor) && !has_told(shared) {
        tokio::time::sleep(Duration::from_millis(10)).await;
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
fn has_told(shared: &Path) -> bool {
    let journal = garboard_launcher::supervisor::journal::read(shared);
    matches!(journal, Ok(Some(journal)) if journal.ended.is_some())
}

fn say_started() {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{STARTED}");
    let _ = out.flush();
    // `run` reads until the end of the pipe: hand our standard output over to the log's place, nowhere.
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
    let mut unlocked_since = None;
    while machine.exists() {
        // The lock goes with the directory: a keeper that just removes both is not dead.
        let unlocked = (!keeper_is_alive(&machine)).then(|| *unlocked_since.get_or_insert_with(Instant::now));
        if unlocked.is_some_and(|since| premises::is_abandoned(&machine) || since.elapsed() > FAREWELL) {
            return clean_up_orphan(places, id).or_else(|error| if machine.exists() { Err(error) } else { Ok(()) });
        }
        pause_briefly();
    }
    Ok(())
}

/// Whether somebody holds the machine's lock.
pub(crate) fn keeper_is_alive(machine: &Path) -> bool {
    premises::is_locked(machine)
}

/// A wait between two looks at the file system, which cannot tell us when it changes without another crate.
pub(crate) fn pause_briefly() {
    let _ = nix::poll::poll(&mut [], nix::poll::PollTimeout::from(20_u8));
}

/// Removes everything of a machine whose keeper is dead: processes by cgroup, network by name, files.
pub(crate) fn clean_up_orphan(places: &Places, id: &MachineId) -> anyhow::Result<()> {
    let machine = places.machine(id);
    let order: Order = serde_json::from_slice(&std::fs::read(machine.join(ORDER)).context("read the machine's order")?)
        .context("understand the machine's order")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        record::keep(&order.shared(), &order.record).context("keep the record of the run")?;
        Premises::adopt(&order).remove().await
    })
}
