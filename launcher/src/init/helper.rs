//! Programs beside QEMU: passt, which translates the guest's frames to ordinary sockets.
//!
//! They are children of PID 1 because they must live exactly as long as QEMU: a supervisor comes and goes, and in a
//! cluster it is another container. A helper checks its arguments, takes its ports and only then leaves for the
//! background: the end of the process we start means that it is ready. What confines it is its own: namespaces and a seccomp
//! filter, which a test looks for; from us it has the machine's user and no_new_privs. It ends when QEMU's end of its socket closes, and
//! at the latest with PID 1's PID namespace.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use garboard_protocol::launch::{Helper, Launch};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::InitError;
use super::account::print_error;
use crate::sys::{descriptors, signals};

/// How long a helper may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of its messages that are looked at.
const MESSAGES_MAX: u64 = 16 << 10;
/// What passt writes on every line where there is no syslog; of no use.
const NOISE: &str = "Failed to send ";

/// Starts every helper and waits until it is ready.
///
/// # Errors
/// The helper that cannot be started, with its own last output.
pub(super) fn start_all(launch: &Launch, sockets: Vec<OwnedFd>) -> Result<(), InitError> {
    if launch.helpers.is_empty() {
        return Ok(());
    }
    // What leaves for the background becomes our child also where we are not process 1.
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(|errno| InitError::system("adopt what helpers leave in the background", errno))?;
    launch.helpers.iter().zip(sockets).try_for_each(|(helper, socket)| start(launch, helper, socket))
}

/// The programs of a launch's helpers, for users.
pub(super) fn names(launch: &Launch) -> String {
    let name = |helper: &Helper| helper.argv.first().and_then(|path| path.rsplit('/').next()).unwrap_or("").to_owned();
    let names: std::collections::BTreeSet<String> = launch.helpers.iter().map(name).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn start(launch: &Launch, helper: &Helper, socket: OwnedFd) -> Result<(), InitError> {
    let doing = || format!("start {}", helper.argv.first().map_or("a helper has no program", String::as_str));
    let failed = |error: std::io::Error| InitError::system(doing(), error);
    let placed = descriptors::place(vec![socket], &[helper.descriptor]).map_err(failed)?;
    let mut child = command(launch, helper).spawn().map_err(failed)?;
    drop(placed);
    let output = listen(&mut child).map_err(failed)?;
    for line in output.lines() {
        print_error(line);
    }
    match child.wait().map_err(failed)? {
        status if status.success() => Ok(()),
        status => {
            let last = output.lines().next_back().map_or_else(|| status.to_string(), str::to_owned);
            Err(failed(std::io::Error::other(last)))
        }
    }
}

fn command(launch: &Launch, helper: &Helper) -> Command {
    let mut command = Command::new(helper.argv.first().map_or("", String::as_str));
    signals::forbid_new_privileges(&mut command);
    command.args(helper.argv.iter().skip(1)).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some(identity) = launch.identity.as_ref().filter(|_| nix::unistd::geteuid().is_root()) {
        command.uid(identity.uid).gid(identity.gid);
    }
    command
}

/// What it prints until it closes its standard error, which the process in the background does: escaped, without noise.
fn listen(child: &mut Child) -> std::io::Result<String> {
    let Some(mut stderr) = child.stderr.take() else { return Ok(String::new()) };
    let deadline = Instant::now() + READY_LIMIT;
    let mut bytes = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        if poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLIN)], timeout)? == 0 {
            let _ = child.kill();
            let _ = child.wait();
            let text = format!("it is not ready after {} s", READY_LIMIT.as_secs());
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text));
        }
        let mut chunk = [0; 1024];
        match stderr.read(&mut chunk)? {
            0 => return Ok(printable(&bytes)),
            read => (&chunk[..read]).take(MESSAGES_MAX.saturating_sub(bytes.len() as u64)).read_to_end(&mut bytes)?,
        };
    }
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with(NOISE));
    lines.map(|line| line.trim_end().escape_debug().to_string()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Tests run side by side in one process, so each has a descriptor number of its own.
    fn launch(argv: &[&str], descriptor: i32) -> Launch {
        Launch {
            argv: Vec::new(),
            environment: Vec::new(),
            descriptors: Vec::new(),
            reopened: Vec::new(),
            logs: Vec::new(),
            identity: None,
            readable_paths: Vec::new(),
            devices: Vec::new(),
            uses_tcp: false,
            has_monitor: false,
            memlock_bytes: None,
            grace_seconds: 0,
            helpers: vec![Helper { argv: argv.iter().map(|argument| (*argument).to_owned()).collect(), descriptor }],
        }
    }

    fn passt() -> Option<&'static str> {
        let found = std::path::Path::new("/usr/bin/passt").exists().then_some("/usr/bin/passt");
        if found.is_none() {
            let _ = writeln!(std::io::stderr(), "skipped: passt is not installed");
        }
        found
    }

    /// An ARP question, with the length passt requires in front, from a guest that has no address yet.
    fn arp_frame() -> Vec<u8> {
        let mac = [2, 0, 0, 0, 0, 1];
        let mut frame = [&[0xff; 6][..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &mac, &[192, 0, 2, 200]].concat();
        frame.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
        [&u32::try_from(frame.len()).unwrap().to_be_bytes()[..], &frame].concat()
    }

    #[test]
    fn passt_answers_frames_holds_its_port_and_ends_with_its_socket() {
        let Some(passt) = passt() else { return };
        let port = free_port();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let forward = format!("127.0.0.1/{port}:22");
        start_all(&launch(&[passt, "--fd", "920", "--tcp-ports", &forward], 920), vec![theirs.into()]).unwrap();
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err(), "passt holds the port");
        assert!(status_of(&forward).contains("NoNewPrivs:\t1\n"), "{}", status_of(&forward));
        until("passt filters its system calls", || status_of(&forward).contains("Seccomp:\t2\n"));
        ours.set_read_timeout(Some(READY_LIMIT * 6)).unwrap();
        ours.write_all(&arp_frame()).unwrap();
        let mut length = [0; 4];
        ours.read_exact(&mut length).unwrap();
        assert!(u32::from_be_bytes(length) >= 42, "an Ethernet frame");
        drop(ours);
        until("passt ends with its socket", || TcpListener::bind(("127.0.0.1", port)).is_ok());
    }

    /// Below those that the kernel gives to connections and to other tests.
    fn free_port() -> u16 {
        let mut ports = (20_000..30_000).skip(usize::try_from(std::process::id()).unwrap() % 5000);
        ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
    }

    /// passt closes its standard error before it filters its system calls, and ends after its socket does.
    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + READY_LIMIT * 6;
        while !holds() {
            assert!(Instant::now() < deadline, "not in time: {what}");
            std::thread::yield_now();
        }
    }

    /// The kernel's status of the process with an argument in its command line.
    fn status_of(argument: &str) -> String {
        let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let mut found = processes.filter(|process| {
            std::fs::read_to_string(process.join("cmdline"))
                .is_ok_and(|line| line.split('\0').any(|each| each == argument))
        });
        std::fs::read_to_string(found.next().unwrap().join("status")).unwrap()
    }

    #[test]
    fn a_helper_gains_no_privileges() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let script = "grep NoNewPrivs /proc/self/status >&2; exit 1";
        let error = start_all(&launch(&["/bin/sh", "-c", script], 923), vec![theirs.into()]).unwrap_err();
        assert!(error.chain().ends_with('1') && error.chain().contains("NoNewPrivs"), "{}", error.chain());
    }

    #[test]
    fn a_helper_that_refuses_is_quoted() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let script = "echo 'Failed to send 5 bytes to syslog' >&2; echo 'no such port' >&2; exit 1";
        let error = start_all(&launch(&["/bin/sh", "-c", script], 921), vec![theirs.into()]).unwrap_err();
        assert_eq!(error.chain(), "could not start /bin/sh: no such port");
    }

    #[test]
    fn a_helper_that_is_missing_is_named() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let error = start_all(&launch(&["/garboard-no-such-passt"], 922), vec![theirs.into()]).unwrap_err();
        assert!(error.chain().starts_with("could not start /garboard-no-such-passt: "), "{}", error.chain());
    }
}
