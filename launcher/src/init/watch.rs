//! The one loop of PID 1.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use garboard_common::memory::MemoryWitness;
use garboard_protocol::exit::{ExitReport, ProcessEnd};
use garboard_protocol::launch::{FromInit, InitState, Launch, ToInit};
use garboard_protocol::paths;
use garboard_protocol::{OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::account::{self, TerminationLog, print_error};
use super::link::{Link, Received};
use super::logs::Logs;
use super::own::OwnDirectory;
use super::{
    InitError, InitOptions, Isolation, NamespacesBy, confine, helper, isolate, last_resort, spawn, user_namespace,
};
use crate::supervisor::REQUEST_PATIENCE;
use crate::sys::descriptors;
use crate::vm::QUIT_PATIENCE;

/// How soon a lost supervisor is looked for, and how rarely at last. A new one has no state of QEMU until we have connected,
/// and holds requests meanwhile.
const FIRST_RECONNECT: Duration = Duration::from_millis(10);
const RAREST_RECONNECT: Duration = Duration::from_millis(250);
const _: () =
    assert!(RAREST_RECONNECT.as_millis() * 4 <= REQUEST_PATIENCE.as_millis(), "found before requests are refused");
/// How long a connected supervisor may take to report that it powers the guest down.
const SUPERVISOR_PATIENCE: Duration = Duration::from_secs(2);
/// How much longer than announced the supervisor may take before PID 1 kills QEMU itself. Longer than the supervisor lets
/// QEMU flush its disks after the announced time (`vm/step.rs`), and within what a pod has beyond the guest's grace.
const MARGIN: Duration = Duration::from_secs(5).saturating_add(QUIT_PATIENCE);
/// The longest time that a supervisor may announce.
const LONGEST_PROMISE: Duration = Duration::from_secs(366 * 24 * 3600);
/// Random bytes by which a supervisor identifies us.
const SECRET_BYTES: usize = 16;

/// QEMU's own process and what was agreed about its end.
struct Machine {
    pid: Pid,
    /// A connection to its second monitor.
    monitor: Option<UnixStream>,
    grace: Duration,
    witness: MemoryWitness,
    asked_by_init: bool,
    killed_by_init: bool,
}

/// What has to happen by when.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deadline {
    None,
    SupervisorAnswer(Instant),
    Kill(Instant),
}

struct Init {
    own: OwnDirectory,
    secret: String,
    log: TerminationLog,
    signals: SignalFd,
    link: Option<Link>,
    /// How long until the supervisor is looked for again.
    pause: Duration,
    machine: Option<Machine>,
    witness: Option<MemoryWitness>,
    logs: Logs,
    /// The helpers of the launch, and those that ended before QEMU.
    helpers: String,
    ended_helpers: Option<String>,
    deadline: Deadline,
    terminating: bool,
}

/// Runs PID 1 until QEMU is gone; answers with the exit code of the process.
#[must_use]
pub fn run(options: InitOptions) -> u8 {
    let log = TerminationLog::open(options.termination_log.as_deref());
    let mut init = match OwnDirectory::open(&options.directory).and_then(|own| Init::new(own, log)) {
        Ok(init) => init,
        Err(error) => {
            print_error(&error.chain());
            return account::exit_code(ProcessEnd::NeverStarted);
        }
    };
    match init.isolate(&options).and_then(|()| init.serve()) {
        Ok(code) => code,
        Err(error) => {
            let report = ExitReport {
                end: ProcessEnd::NeverStarted,
                oom_kills: 0,
                memory_limit_bytes: None,
                asked_by_init: false,
                killed_by_init: false,
                last_output: account::last_output(&init.own.file(paths::QEMU_LOG)),
                failure: Some(error.chain()),
            };
            print_error(&error.chain());
            account::write(&init.own, &init.log, &report);
            account::exit_code(report.end)
        }
    }
}

impl Init {
    fn new(own: OwnDirectory, log: TerminationLog) -> Result<Self, InitError> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block().map_err(|errno| InitError::system("block signals", errno))?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(|errno| InitError::system("listen for signals", errno))?;
        Ok(Self {
            own,
            secret: new_secret()?,
            log,
            signals,
            link: None,
            pause: FIRST_RECONNECT,
            machine: None,
            witness: None,
            logs: Logs::default(),
            helpers: String::new(),
            ended_helpers: None,
            deadline: Deadline::None,
            terminating: false,
        })
    }

    /// Takes its place: where no container runtime did it, in namespaces and a root of its own.
    fn isolate(&mut self, options: &InitOptions) -> Result<(), InitError> {
        let Isolation::OwnRoot { by, readable, devices, device_owner } = &options.isolation else {
            self.witness = Some(MemoryWitness::new());
            return Ok(());
        };
        isolate::wait_for_shim()?;
        // While there are paths to the control groups.
        self.witness = Some(MemoryWitness::new());
        let devices = isolate::Devices { paths: devices, owner: *device_owner };
        let build = || isolate::own_root(&options.directory, readable, &devices);
        match by {
            NamespacesBy::Shim => build()?,
            NamespacesBy::UserNamespace => user_namespace::enter(build),
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<u8, InitError> {
        loop {
            self.reconnect()?;
            if self.terminating && self.machine.is_none() {
                let why = "it was stopped before QEMU was executed".to_owned();
                return Ok(self.finish(ProcessEnd::NeverStarted, Some(why)));
            }
            self.wait()?;
            if let Some(code) = self.take_signals()? {
                return Ok(code);
            }
            self.take_messages()?;
            self.check_deadline();
            if self.link.is_none() {
                self.logs.truncate_long();
            }
        }
    }

    fn reconnect(&mut self) -> Result<(), InitError> {
        if self.link.is_some() {
            return Ok(());
        }
        let state = match &self.machine {
            None => InitState::Waiting,
            Some(machine) => InitState::Running { pid: machine.pid.as_raw() },
        };
        let mut link = match Link::connect(&self.own.file(paths::LAUNCH_SOCKET)) {
            Ok(Some(link)) => link,
            Err(error) if self.machine.is_none() => return Err(error),
            // QEMU must not die of that; it is tried again.
            Ok(None) | Err(_) => {
                // One that waits for its launch is waited for itself.
                let rarest = if self.machine.is_none() { FIRST_RECONNECT } else { RAREST_RECONNECT };
                self.pause = rarest.min(self.pause * 2);
                return Ok(());
            }
        };
        self.pause = FIRST_RECONNECT;
        let (version, oldest) = (PROTOCOL_VERSION, OLDEST_PROTOCOL_VERSION);
        let hello = FromInit::Hello { version, oldest, state, secret: self.secret.clone() };
        if link.send(&hello).is_ok() {
            self.link = Some(link);
            self.report_helpers();
            if self.terminating {
                self.ask_supervisor();
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), InitError> {
        let mut watched = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if let Some(link) = &self.link {
            watched.push(PollFd::new(link.descriptor(), PollFlags::POLLIN));
        }
        let reconnect = self.link.is_none().then_some(self.pause);
        let deadline = match self.deadline {
            Deadline::None => None,
            Deadline::SupervisorAnswer(at) | Deadline::Kill(at) => Some(at.saturating_duration_since(Instant::now())),
        };
        let timeout = match (reconnect, deadline) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        };
        let timeout = timeout.map_or(PollTimeout::NONE, |time| {
            // Rounded up, so that an almost-over deadline does not make this loop spin.
            PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(InitError::system("wait", errno)),
        }
    }

    fn take_signals(&mut self) -> Result<Option<u8>, InitError> {
        let mut child_changed = false;
        while let Some(info) = self.signals.read_signal().map_err(|errno| InitError::system("read a signal", errno))? {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            if number == Signal::SIGCHLD as i32 {
                child_changed = true;
            } else {
                self.begin_termination();
            }
        }
        Ok(if child_changed { self.reap() } else { None })
    }

    fn reap(&mut self) -> Option<u8> {
        let mut helpers = Vec::new();
        while let Ok(status) = waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
            let (pid, end) = match status {
                WaitStatus::Exited(pid, code) => (pid, ProcessEnd::Exited { code }),
                WaitStatus::Signaled(pid, signal, _) => (pid, ProcessEnd::Signalled { signal: signal as i32 }),
                WaitStatus::StillAlive => break,
                WaitStatus::Stopped(..)
                | WaitStatus::PtraceEvent(..)
                | WaitStatus::PtraceSyscall(_)
                | WaitStatus::Continued(_) => continue,
            };
            if self.machine.as_ref().is_some_and(|machine| machine.pid == pid) {
                return Some(self.finish(end, None));
            }
            helpers.push(end);
        }
        // Those that end with QEMU are not logged, nor are children that others left where the launch has no helper:
        // a shell of `kubectl debug` may have.
        helpers.retain(|_| !self.helpers.is_empty());
        for end in helpers {
            print_error(&format!("a helper of QEMU ended ({end:?}); the guest's network is gone until its next start"));
            self.ended_helpers = Some(self.helpers.clone());
            self.report_helpers();
        }
        None
    }

    fn report_helpers(&mut self) {
        let (Some(program), Some(link)) = (self.ended_helpers.clone(), &mut self.link) else { return };
        if link.send(&FromInit::HelperEnded { program }).is_err() {
            self.link = None;
        }
    }

    fn finish(&mut self, end: ProcessEnd, failure: Option<String>) -> u8 {
        let machine = self.machine.take();
        let witness = machine.as_ref().map(|machine| &machine.witness).or(self.witness.as_ref());
        let report = ExitReport {
            end,
            oom_kills: witness.map_or(0, MemoryWitness::kills),
            memory_limit_bytes: witness.and_then(MemoryWitness::limit_bytes),
            asked_by_init: machine.as_ref().is_some_and(|machine| machine.asked_by_init),
            killed_by_init: machine.as_ref().is_some_and(|machine| machine.killed_by_init),
            last_output: account::last_output(&self.own.file(paths::QEMU_LOG)),
            failure,
        };
        account::write(&self.own, &self.log, &report);
        let code = account::exit_code(report.end);
        if let Some(link) = &mut self.link {
            let _ = link.send(&FromInit::Ended { report });
        }
        code
    }

    fn take_messages(&mut self) -> Result<(), InitError> {
        while let Some(link) = &mut self.link {
            let received = match link.receive() {
                // A supervisor of another build may send what this build does not support; that must not end QEMU.
                Err(error) if self.machine.is_some() => {
                    print_error(&error.chain());
                    Received::Closed
                }
                other => other?,
            };
            match received {
                Received::Nothing => return Ok(()),
                Received::Closed => {
                    self.link = None;
                    if let Deadline::SupervisorAnswer(_) = self.deadline {
                        self.power_down_alone();
                    }
                }
                Received::Message(ToInit::Launch(launch)) => self.launch(&launch)?,
                Received::Message(ToInit::PoweringDown { within_seconds }) => {
                    let promised = Duration::from_secs(within_seconds).min(LONGEST_PROMISE);
                    self.deadline = Deadline::Kill(Instant::now() + promised + MARGIN);
                }
                Received::Message(ToInit::Kill) => self.kill_machine(),
                Received::Message(ToInit::Unknown) => print_error("unknown message of the supervisor; ignored"),
            }
        }
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), InitError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let arrived = link.take_descriptors();
        let Some(witness) = self.witness.take() else {
            print_error("a second launch request was ignored");
            return Ok(());
        };
        // Our own descriptors must not sit where QEMU's will be.
        let arrived = arrived.into_iter().map(descriptors::keep_clear).collect::<std::io::Result<Vec<OwnedFd>>>();
        let arrived = arrived.map_err(|error| InitError::system("take the descriptors", error))?;
        let spawn::Arrived { for_qemu, for_helpers, monitor } = spawn::share_out(launch, arrived)?;
        // Before we are confined: passt builds a confinement of its own, which Landlock would forbid.
        helper::start_all(launch, for_helpers)?;
        self.helpers = helper::names(launch);
        self.logs = Logs::of(launch, &for_qemu);
        confine::confine(launch, &for_qemu, &self.own)?;
        let rules = confine::of_qemu(launch, &for_qemu)?;
        let pid = spawn::spawn(launch, for_qemu, rules)?;
        let grace = Duration::from_secs(launch.grace_seconds).min(LONGEST_PROMISE);
        let monitor = monitor.map(UnixStream::from);
        self.machine = Some(Machine { pid, monitor, grace, witness, asked_by_init: false, killed_by_init: false });
        if link.send(&FromInit::Spawned { pid: pid.as_raw() }).is_err() {
            self.link = None;
        }
        Ok(())
    }

    fn begin_termination(&mut self) {
        if self.terminating {
            return;
        }
        self.terminating = true;
        if self.link.is_some() { self.ask_supervisor() } else { self.power_down_alone() }
    }

    fn ask_supervisor(&mut self) {
        let asked = self.link.as_mut().is_some_and(|link| link.send(&FromInit::TerminationRequested).is_ok());
        if !asked {
            self.link = None;
            self.power_down_alone();
        } else if self.deadline == Deadline::None {
            self.deadline = Deadline::SupervisorAnswer(Instant::now() + SUPERVISOR_PATIENCE);
        }
    }

    fn power_down_alone(&mut self) {
        let Some(machine) = &mut self.machine else { return };
        if machine.asked_by_init {
            return;
        }
        machine.asked_by_init = true;
        self.deadline = Deadline::Kill(Instant::now() + machine.grace);
        let Some(monitor) = &machine.monitor else {
            return print_error("the guest cannot be asked to power down: the supervisor left no monitor");
        };
        if let Err(error) = last_resort::power_down(monitor) {
            print_error(&format!("could not ask the guest to power down: {error}"));
        }
    }

    fn check_deadline(&mut self) {
        match self.deadline {
            Deadline::SupervisorAnswer(at) if at <= Instant::now() => self.power_down_alone(),
            Deadline::Kill(at) if at <= Instant::now() => {
                self.deadline = Deadline::None;
                self.kill_machine();
            }
            Deadline::None | Deadline::SupervisorAnswer(_) | Deadline::Kill(_) => {}
        }
    }

    fn kill_machine(&mut self) {
        // Without a machine there is nothing to wait for: the supervisor could not prepare one.
        self.terminating |= self.machine.is_none();
        if let Some(machine) = &mut self.machine {
            machine.killed_by_init = true;
            if let Err(errno) = kill(machine.pid, Signal::SIGKILL) {
                print_error(&format!("could not kill QEMU: {errno}"));
            }
        }
    }
}

/// What no other process can find out: QEMU's process cannot look into this one.
fn new_secret() -> Result<String, InitError> {
    let mut bytes = [0; SECRET_BYTES];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| InitError::system("make a secret", error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
