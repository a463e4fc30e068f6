//! Ends every process of a group and waits until they are gone.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::pidfd::Pidfd;

/// Kills what `members` lists until it lists nothing, at most `limit` long. Returns what is left: nothing, or processes
/// the kernel cannot end now (in the middle of disk access that does not return).
///
/// A process is held by a descriptor before it is killed and is asked for again afterwards, so that one whose number
/// was reused is not hit. A process that has ended but was not waited for by its parent no longer belongs to the group.
pub(super) fn end_all(mut members: impl FnMut() -> Vec<u32>, limit: Duration) -> Vec<u32> {
    let deadline = Instant::now() + limit;
    loop {
        let present = members();
        if present.is_empty() || Instant::now() >= deadline {
            return present;
        }
        let held: Vec<(u32, Pidfd)> = present.iter().filter_map(|pid| Some((*pid, Pidfd::open(*pid).ok()?))).collect();
        let still = members();
        let ours: Vec<Pidfd> =
            held.into_iter().filter(|(pid, _)| still.contains(pid)).map(|(_, process)| process).collect();
        for process in &ours {
            if let Err(error) = process.kill() {
                tracing::warn!(%error, "a process of a control group could not be killed");
            }
        }
        for process in &ours {
            wait_for_end(process, deadline);
        }
    }
}

/// Waits until the kernel rewrites `cgroup.events`, for twenty milliseconds at most.
pub(super) fn wait_for_change(events: &Path) {
    let Ok(mut file) = File::open(events) else { return };
    // Reading it is what makes the next change count.
    let _ = file.read_to_end(&mut Vec::new());
    let mut wait = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
    let _ = poll(&mut wait, PollTimeout::from(20_u8));
}

fn wait_for_end(process: &Pidfd, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    let mut wait = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    // Interrupted or not: the caller looks again.
    let _ = poll(&mut wait, timeout);
}
