//! A signal that makes one thread return from a blocking system call, and does nothing else.
//!
//! KVM_RUN of a guest that never exits returns only for a signal. The signal is a real-time one near the end of the
//! range (the C library takes the first two), its previous action is put back afterwards.

use std::os::unix::thread::JoinHandleExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::libc;

/// One user at a time: the signal's action belongs to the process.
static SIGNAL_IN_USE: Mutex<()> = Mutex::new(());

/// While this value lives, [`Kick::thread`] interrupts system calls of a thread.
pub(crate) struct Kick {
    previous: libc::sigaction,
    _exclusive: MutexGuard<'static, ()>,
}

fn signal_number() -> libc::c_int {
    libc::SIGRTMAX() - 3
}

extern "C" fn nothing(_: libc::c_int) {}

impl Kick {
    /// Arms the signal. `None` if the kernel refuses the action.
    pub(crate) fn arm() -> Option<Self> {
        let exclusive = SIGNAL_IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: an all-zero sigaction is a valid value (default action, empty mask, no flags).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: as above.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live values of the right type; the function installed does nothing, so it is
        // safe at any point. No SA_RESTART: interrupting is the purpose.
        let answer = unsafe { libc::sigaction(signal_number(), &raw const action, &raw mut previous) };
        (answer == 0).then_some(Self { previous, _exclusive: exclusive })
    }

    /// Interrupts a thread. One that has ended already is not disturbed.
    pub(crate) fn thread<T>(&self, thread: &JoinHandle<T>) {
        // SAFETY: its handle is borrowed, so that it was neither joined nor detached, and its identifier is valid even if it has
        // ended; the action of the signal is `nothing` as long as `self` lives.
        unsafe { libc::pthread_kill(thread.as_pthread_t(), signal_number()) };
    }
}

impl Drop for Kick {
    fn drop(&mut self) {
        // SAFETY: `previous` is what the kernel gave us in `arm`.
        unsafe { libc::sigaction(signal_number(), &raw const self.previous, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_blocked_read_of_another_thread_returns_interrupted() {
        let (reader, _writer) = UnixStream::pair().unwrap();
        let (done, finished) = mpsc::channel();
        let blocked = std::thread::spawn(move || {
            let mut byte = [0_u8; 1];
            let answer = nix::unistd::read(&reader, &mut byte);
            done.send(()).unwrap();
            answer
        });
        let kick = Kick::arm().unwrap();
        while finished.recv_timeout(Duration::from_millis(2)).is_err() {
            kick.thread(&blocked);
        }
        assert_eq!(blocked.join().unwrap(), Err(nix::errno::Errno::EINTR));
    }
}
