//! A machine's console at this terminal, over as many connections as it takes: each goes on where the one before broke
//! ([ADR 36](../../../docs/adr/0036-sessions.md)).

use std::io::{self, Write};
use std::time::{Duration, Instant};

use garboard_protocol::control::ConsoleAccess;

use crate::console::{AttachmentEnd, Over, RawTerminal, Served, Terminal, report_end};
use crate::exit;
use crate::failure::Failure;
use crate::find;
use crate::kubectl::{Kubectl, failed};
use crate::line::Outgoing;
use crate::output::note;
use crate::stream::{self, LOOK_ON, PRESERVE_SESSION, Stream, Streams};

/// How long a connection that broke is tried again. A session whose client is gone without a word is over after 65 s: ours may be one.
const TRIED_FOR: Duration = Duration::from_secs(75);
/// Before it is tried again.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];

/// Attaches the terminal to a machine's console until one side leaves, as the session of it or to look on. Nothing, where there is no
/// way for one who looks on but that through the pod.
pub(crate) fn run(kubectl: &Kubectl, name: &str, access: ConsoleAccess) -> anyhow::Result<Option<u8>> {
    let running = find::running(kubectl, name)?;
    let machine = running.machine();
    let streams = Streams::of_console(kubectl, running.subresource("console"))?;
    let (first, next) = parameters(access);
    let open = |parameters| streams.open(parameters).map(|stream| connected(stream, access));
    let stream = match open(first) {
        Ok(stream) => stream,
        Err(failure) if access == ConsoleAccess::View && is_of_the_way(&failure) => return Ok(None),
        Err(failure) => return Err(failed(advised(failure))),
    };
    let outcome = {
        let _raw = RawTerminal::enter()?;
        attend(Terminal::new(io::stdin(), io::stdout()), stream, &machine, || open(next))
    };
    if outcome.is_err() {
        // The guest has left the cursor somewhere in a line.
        note!("\r");
    }
    report_end(outcome?, &machine);
    Ok(Some(exit::OK))
}

/// Of the first connection, which may end the session of another user, and of the next ones, which end nobody's.
const fn parameters(access: ConsoleAccess) -> (&'static str, &'static str) {
    match access {
        ConsoleAccess::View => (LOOK_ON, LOOK_ON),
        ConsoleAccess::Write => (PRESERVE_SESSION, PRESERVE_SESSION),
        ConsoleAccess::TakeOver => ("", PRESERVE_SESSION),
    }
}

/// What is typed by one who looks on goes nowhere, and not to a controller that does not know that it is one.
struct Mute(Outgoing);

impl Write for Mute {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn connected(stream: Stream, access: ConsoleAccess) -> Stream {
    match access {
        ConsoleAccess::View => Stream { outgoing: Box::new(Mute(stream.outgoing)), ..stream },
        ConsoleAccess::Write | ConsoleAccess::TakeOver => stream,
    }
}

/// Whether another way may be better: this one is closed, or leads to a controller of a version before, which takes every client for
/// the session.
fn is_of_the_way(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_)
        | Failure::Lost(_)
        | Failure::NotServed(_)
        | Failure::NoController(_)
        | Failure::Interrupted(_)
        | Failure::NoAnswer(_) => true,
        Failure::Refused(text) => text.contains(ANOTHER),
        Failure::NoProgram { .. }
        | Failure::Unauthorized(_)
        | Failure::Forbidden(_)
        | Failure::NotInstalled(_)
        | Failure::NotFound(_)
        | Failure::NotRunning(_)
        | Failure::Conflict(_)
        | Failure::Other(_) => false,
    }
}

/// What to do about a session that is there.
fn advised(failure: Failure) -> Failure {
    if let Failure::Refused(text) = &failure
        && text.contains(ANOTHER)
        && !text.contains("--take-over")
    {
        return Failure::Refused(format!("{text}; watch with --view or replace it with --take-over"));
    }
    failure
}

/// What a supervisor says where there is a session, or a client that types.
const ANOTHER: &str = "another client";

/// Serves one connection after another.
fn attend<S: Write>(
    mut terminal: Terminal<S>,
    mut stream: Stream,
    machine: &str,
    open: impl Fn() -> Result<Stream, Failure>,
) -> anyhow::Result<AttachmentEnd> {
    loop {
        let Stream { incoming, outgoing, ending } = stream;
        let Served { over, guest } = terminal.serve(incoming, outgoing)?;
        let ended = match over {
            Over::Detached => {
                // Nothing more is taken from the guest, and then the way to it is closed.
                drop(terminal);
                drop(guest);
                return Ok(AttachmentEnd::Detached);
            }
            Over::Ended(ended) => ended,
        };
        drop(guest);
        match ending.now().and_then(|end| end.failure(machine)) {
            Some(Failure::Interrupted(why)) => {
                note!("\r\n[the connection was lost: {why}; it is tried again, Ctrl-] leaves]\r");
                let Some(next) = again(&terminal, &open)? else { return Ok(AttachmentEnd::Detached) };
                note!("[connected again; what was typed meanwhile is lost]\r");
                stream = next;
            }
            Some(_) | None => {
                stream::judge(&ending, machine)?;
                // What was typed last may have met the end of the machine.
                if ending.now().is_none() {
                    ended?;
                }
                return Ok(AttachmentEnd::MachineEnded);
            }
        }
    }
}

/// Another connection; nothing if the user leaves meanwhile.
fn again<S: Write>(
    terminal: &Terminal<S>,
    open: impl Fn() -> Result<Stream, Failure>,
) -> anyhow::Result<Option<Stream>> {
    let deadline = Instant::now() + TRIED_FOR;
    let [.., last] = PAUSES;
    let mut pauses = PAUSES.into_iter();
    loop {
        if terminal.leaves_within(pauses.next().unwrap_or(last)) {
            return Ok(None);
        }
        match open() {
            Ok(stream) => return Ok(Some(stream)),
            Err(failure) if may_pass(&failure) && Instant::now() < deadline => {}
            Err(failure) => return Err(failed(failure)),
        }
    }
}

/// Whether it may be otherwise a moment later. A session that is there may be that of the connection that broke.
fn may_pass(failure: &Failure) -> bool {
    is_of_the_way(failure) || matches!(failure, Failure::Other(_))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use super::*;
    use crate::line::Incoming;
    use crate::stream::Ending;

    /// A connection that has printed so much, and has ended so: by a close frame with a code, or without one.
    fn stream(printed: &str, code: Option<u16>) -> Stream {
        let incoming = Incoming::of(io::Cursor::new(printed.as_bytes().to_vec()));
        Stream { incoming, outgoing: Box::new(io::sink()), ending: Arc::new(Ending::came(code, "so it is")) }
    }

    #[test]
    fn a_connection_that_breaks_is_followed_by_the_next_one() {
        let (keys, _held) = io::pipe().unwrap();
        let mut shown = Vec::new();
        let next = RefCell::new(Some(stream("in: ", Some(1000))));
        let open = || Ok(next.take().expect("one is opened"));
        let left = attend(Terminal::new(keys, &mut shown), stream("log", None), "n/a", open);
        assert_eq!((left.unwrap(), shown.as_slice()), (AttachmentEnd::MachineEnded, &b"login: "[..]));
    }

    #[test]
    fn a_session_that_another_client_took_is_not_opened_again() {
        let (keys, _held) = io::pipe().unwrap();
        let open = || -> Result<Stream, Failure> { panic!("it is opened again") };
        let left = attend(Terminal::new(keys, io::sink()), stream("log", Some(1001)), "n/a", open);
        assert_eq!(left.unwrap_err().to_string(), "n/a: the session is over: so it is");
    }

    #[test]
    fn one_that_is_refused_for_good_is_given_up_and_a_user_may_leave_before() {
        let (keys, mut user) = io::pipe().unwrap();
        let terminal = Terminal::new(keys, io::sink());
        let left = attend(terminal, stream("", None), "n/a", || Err(Failure::Forbidden("bob".into())));
        assert!(left.unwrap_err().to_string().starts_with("you may not do this: bob"));
        drop(user);
        let (keys, typed) = io::pipe().unwrap();
        user = typed;
        let leaving = std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(100));
            user.write_all(b"ls\x1d").unwrap();
            user
        });
        let failing = || Err(Failure::NoController("no endpoints available".into()));
        let left = attend(Terminal::new(keys, io::sink()), stream("", None), "n/a", failing);
        assert_eq!(left.unwrap(), AttachmentEnd::Detached);
        drop(leaving.join().unwrap());
    }

    #[test]
    fn a_session_that_is_there_may_be_ours_and_passes() {
        assert!(may_pass(&Failure::Refused("n/a: another client has opened this console".into())));
        assert!(!may_pass(&Failure::Refused("n/a: VMI is not running".into())));
    }

    #[test]
    fn only_who_takes_over_ends_a_session_and_only_at_first() {
        assert_eq!(parameters(ConsoleAccess::TakeOver), ("", PRESERVE_SESSION));
        assert_eq!(parameters(ConsoleAccess::Write), (PRESERVE_SESSION, PRESERVE_SESSION));
        let (first, next) = parameters(ConsoleAccess::View);
        assert!(first == next && first.contains("view=true") && first.contains(PRESERVE_SESSION), "{first}");
    }

    #[test]
    fn what_is_typed_by_one_who_looks_on_goes_nowhere_and_the_way_is_closed_with_it() {
        let (mut guest, typed) = io::pipe().unwrap();
        let outgoing: Outgoing = Box::new(typed);
        let mut looks_on = connected(Stream { outgoing, ..stream("", None) }, ConsoleAccess::View);
        looks_on.outgoing.write_all(b"reboot\r").unwrap();
        drop(looks_on);
        let mut arrived = Vec::new();
        io::Read::read_to_end(&mut guest, &mut arrived).unwrap();
        assert!(arrived.is_empty(), "{arrived:?}");
    }

    #[test]
    fn a_refusal_of_a_session_says_how_to_get_the_console() {
        let advised = |text: &str| advised(Failure::Refused(text.into())).to_string();
        let hint = "watch with --view or replace it with --take-over";
        assert_eq!(
            advised("n/a: another client has opened this console"),
            format!("n/a: another client has opened this console; {hint}")
        );
        let ours = format!("n/a: another client writes to this console; {hint}");
        assert_eq!(advised(&ours), ours);
        assert_eq!(advised("n/a: VMI is not running"), "n/a: VMI is not running");
    }
}
