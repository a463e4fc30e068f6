//! A scratch VM that really executes 64-bit supervisor code, and how fast.
//!
//! ```text
//! guest address   0x0000  page tables: level 4 ─► 0x1000 level 3 ─► 0x2000 level 2 ─► one 2 MiB page at 0
//!                 0x3000  the loop, ending in OUT to an unused port
//! ```
//!
//! An emulated KVM (a KVM inside a virtual machine without nested virtualisation) opens, answers its version and
//! creates machines like any other. What gives it away is time: supervisor code goes through the kernel's instruction
//! emulator. So the loop runs in ring 0, and its result is checked: only 64-bit mode computes it. The same loop in ring 3
//! is measured too: some emulated KVMs run user code on the processor, which is reported separately.
//!
//! The run has a thread of its own and a time limit: a broken nested KVM has been seen to enter a guest and never leave.
//!
//! Sources followed: `Documentation/virt/kvm/api.rst` of Linux; Intel SDM volume 3, 4.5 (four-level paging), 3.4.5
//! (segment descriptors), 2.5 (control registers).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};
use kvm_ioctls::{Kvm, VcpuExit};

use super::measure::{Slowdown, TimedLoop, slowdown};
use crate::sys::kick::Kick;
use crate::sys::native_loop::{END_PORT, MACHINE_CODE, sum_downwards};
use crate::sys::scratch_vm::{PAGE, ScratchVm, ScratchVmError};

/// How long a measurement is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Time the whole measurement may take before the virtual processor is called stuck.
    finish: Duration,
    /// Time a stuck run has to leave the kernel after it was interrupted.
    leave: Duration,
}

impl Patience {
    /// The caller waits for the answer.
    pub(super) const USUAL: Self = Self { finish: Duration::from_millis(800), leave: Duration::from_millis(200) };
}

/// Entries asked for when reading the CPUID leaves KVM supports; the most kvm-bindings holds.
const CPUID_ENTRIES: usize = kvm_bindings::KVM_MAX_CPUID_ENTRIES;

/// Page table bits: present, writable, open to user mode.
const MAPPED: u64 = 0b111;
const LARGE_PAGE: u64 = 1 << 7;
const LOOP_ADDRESS: u64 = 0x3000;

const CR0_PROTECTED: u64 = 1;
const CR0_EXTENSION_TYPE: u64 = 1 << 4;
const CR0_PAGING: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LONG_MODE_ENABLE: u64 = 1 << 8;
const EFER_LONG_MODE_ACTIVE: u64 = 1 << 10;
/// The bit of RFLAGS that is always set, and I/O privilege level 3 so that ring 3 may use OUT.
const RFLAGS: u64 = 1 << 1 | 3 << 12;

/// The guest's privilege level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// Ring 0: what a kernel is.
    Supervisor,
    /// Ring 3: what a program is.
    User,
}

/// Why long mode did not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum LongModeError {
    #[error("the scratch VM could not be created")]
    Create(#[source] ScratchVmError),
    #[error("the vCPU refused {what}")]
    Set {
        what: &'static str,
        #[source]
        source: kvm_ioctls::Error,
    },
    #[error("the vCPU could not be run")]
    Run(#[source] kvm_ioctls::Error),
    #[error("the guest left its loop with {exit} instead of OUT")]
    UnexpectedExit { exit: String },
    #[error("the guest computed {got} instead of {expected}: it was not in 64-bit mode")]
    WrongResult { expected: u64, got: u64 },
    #[error("the guest did not finish within {limit:?}")]
    Stuck { limit: Duration },
    #[error("the measuring thread could not be started")]
    Thread(#[source] std::io::Error),
}

/// Runs the loop in a scratch VM of `kvm` and here; returns how many times slower the guest is.
///
/// # Errors
/// Everything that keeps 64-bit code from running to its end, including time.
pub(super) fn measure(kvm: &Kvm, ring: Ring, patience: Patience) -> Result<Slowdown, LongModeError> {
    let vm = prepare(kvm, ring)?;
    let abandoned = Arc::new(AtomicBool::new(false));
    let mut guest = GuestLoop { vm, abandoned: Arc::clone(&abandoned), limit: patience.finish };
    let (result, finished) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("kvm-measure".into())
        .spawn(move || {
            let _ = result.send(slowdown(&mut guest, &mut NativeLoop));
        })
        .map_err(LongModeError::Thread)?;
    let outcome = wait(&finished, &thread, &abandoned, patience);
    if !matches!(outcome, Err(LongModeError::Stuck { .. })) {
        // It has sent its last message, so this does not block. A stuck one is left to the end of the process.
        let _ = thread.join();
    }
    outcome
}

type Outcome = Result<Slowdown, LongModeError>;

fn wait(
    finished: &mpsc::Receiver<Outcome>,
    thread: &JoinHandle<()>,
    abandoned: &AtomicBool,
    patience: Patience,
) -> Outcome {
    let stuck = LongModeError::Stuck { limit: patience.finish };
    if let Ok(result) = finished.recv_timeout(patience.finish) {
        return result;
    }
    abandoned.store(true, Ordering::Relaxed);
    let Some(kick) = Kick::arm() else { return Err(stuck) };
    let give_up = Instant::now() + patience.leave;
    // Again and again: one that arrives before the system call starts would be lost. Once at least, however late it is: no other
    // thread ends the guest.
    loop {
        kick.thread(thread);
        if finished.recv_timeout(Duration::from_millis(5)).is_ok() || Instant::now() >= give_up {
            return Err(stuck);
        }
    }
}

fn prepare(kvm: &Kvm, ring: Ring) -> Result<ScratchVm, LongModeError> {
    let page = PAGE as u64;
    let to_level_3 = (page | MAPPED).to_le_bytes();
    let to_level_2 = ((2 * page) | MAPPED).to_le_bytes();
    let to_memory = (MAPPED | LARGE_PAGE).to_le_bytes();
    let contents: [(usize, &[u8]); 4] =
        [(0, &to_level_3), (PAGE, &to_level_2), (2 * PAGE, &to_memory), (3 * PAGE, &MACHINE_CODE)];
    let mut vm = ScratchVm::create(kvm, 4, &contents).map_err(LongModeError::Create)?;
    let refused = |what| move |source| LongModeError::Set { what, source };
    let vcpu = vm.vcpu();
    if let Ok(cpuid) = kvm.get_supported_cpuid(CPUID_ENTRIES) {
        vcpu.set_cpuid2(&cpuid).map_err(refused("its CPUID leaves"))?;
    }
    let mut sregs = vcpu.get_sregs().map_err(refused("to return its system registers"))?;
    enter_long_mode(&mut sregs, ring);
    vcpu.set_sregs(&sregs).map_err(refused("long mode"))?;
    Ok(vm)
}

fn enter_long_mode(sregs: &mut kvm_sregs, ring: Ring) {
    let privilege: u8 = if ring == Ring::User { 3 } else { 0 };
    let code = kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector: 8 | u16::from(privilege),
        type_: 0b1011, // execute, read, accessed
        present: 1,
        dpl: privilege,
        db: 0,
        s: 1,
        l: 1, // 64-bit
        g: 1,
        avl: 0,
        unusable: 0,
        padding: 0,
    };
    let data = kvm_segment { selector: 16 | u16::from(privilege), type_: 0b0011, l: 0, db: 1, ..code };
    sregs.cs = code;
    (sregs.ds, sregs.es, sregs.ss, sregs.fs, sregs.gs) = (data, data, data, data, data);
    sregs.cr3 = 0;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LONG_MODE_ENABLE | EFER_LONG_MODE_ACTIVE;
    sregs.cr0 = CR0_PROTECTED | CR0_EXTENSION_TYPE | CR0_PAGING;
}

struct GuestLoop {
    vm: ScratchVm,
    abandoned: Arc<AtomicBool>,
    /// The error of one that was abandoned.
    limit: Duration,
}

impl TimedLoop for GuestLoop {
    type Error = LongModeError;

    fn run(&mut self, rounds: u64) -> Result<Duration, LongModeError> {
        let start = kvm_regs { rip: LOOP_ADDRESS, rcx: rounds, rflags: RFLAGS, ..kvm_regs::default() };
        let vcpu = self.vm.vcpu();
        vcpu.set_regs(&start).map_err(|source| LongModeError::Set { what: "its registers", source })?;
        let begin = Instant::now();
        loop {
            match vcpu.run() {
                Ok(VcpuExit::IoOut(END_PORT, _)) => break,
                Ok(VcpuExit::Intr) => {}
                Ok(exit) => return Err(LongModeError::UnexpectedExit { exit: format!("{exit:?}") }),
                Err(error) if error.errno() == nix::libc::EINTR => {}
                Err(error) => return Err(LongModeError::Run(error)),
            }
            if self.abandoned.load(Ordering::Relaxed) {
                return Err(LongModeError::Stuck { limit: self.limit });
            }
        }
        let time = begin.elapsed();
        let regs = vcpu.get_regs().map_err(|source| LongModeError::Set { what: "to return its registers", source })?;
        let expected = rounds * (rounds + 1) / 2;
        if regs.rax == expected { Ok(time) } else { Err(LongModeError::WrongResult { expected, got: regs.rax }) }
    }
}

struct NativeLoop;

impl TimedLoop for NativeLoop {
    type Error = LongModeError;

    fn run(&mut self, rounds: u64) -> Result<Duration, LongModeError> {
        let begin = Instant::now();
        std::hint::black_box(sum_downwards(std::hint::black_box(rounds)));
        Ok(begin.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing here takes a second; a test that hangs takes longer than any neighbour on the same processors makes it.
    const BUSY_HOST: Duration = Duration::from_secs(60);
    /// For what has to come.
    const PATIENCE: Patience = Patience { finish: BUSY_HOST, leave: BUSY_HOST };

    #[test]
    fn a_scratch_vm_runs_the_loop_in_long_mode_and_ends_in_time() {
        let Ok(kvm) = Kvm::new() else {
            eprintln!("skipped: /dev/kvm is not there or may not be opened");
            return;
        };
        let begin = Instant::now();
        for ring in [Ring::Supervisor, Ring::User] {
            let ratio = measure(&kvm, ring, PATIENCE).unwrap();
            eprintln!("{ring:?}: guest loop / native loop = {ratio}, measured in {:?}", begin.elapsed());
            assert!(ratio > Slowdown::of_ratio(0.2), "a guest cannot be faster than its processor: {ratio}");
        }
    }

    #[test]
    fn a_guest_that_never_ends_is_given_up() {
        let Ok(kvm) = Kvm::new() else {
            eprintln!("skipped: /dev/kvm is not there or may not be opened");
            return;
        };
        let mut vm = prepare(&kvm, Ring::Supervisor).unwrap();
        // With a count of 0 the loop goes round 2^64 times.
        let abandoned = Arc::new(AtomicBool::new(false));
        let (result, finished) = mpsc::channel();
        let flag = Arc::clone(&abandoned);
        let thread = std::thread::spawn(move || {
            let start = kvm_regs { rip: LOOP_ADDRESS, rflags: RFLAGS, ..kvm_regs::default() };
            vm.vcpu().set_regs(&start).unwrap();
            while !flag.load(Ordering::Relaxed) {
                let _ = vm.vcpu().run();
            }
            result.send(Ok(Slowdown::of_ratio(0.0))).unwrap();
        });
        let begin = Instant::now();
        let outcome = wait(&finished, &thread, &abandoned, Patience { finish: Patience::USUAL.finish, ..PATIENCE });
        assert!(matches!(outcome, Err(LongModeError::Stuck { .. })), "{outcome:?}");
        assert!(begin.elapsed() < BUSY_HOST, "it does not leave its guest: {:?}", begin.elapsed());
        thread.join().unwrap();
    }
}
