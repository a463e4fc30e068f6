//! What the next supervisor will need, written down; and of a start what is reported alone.

use garboard_protocol::journal::{Deadline, JournaledFreeze, JournaledSoftReboot, SoftRebootStep};

use super::Driver;
use crate::clock::{self, now_ms};
use crate::supervisor::journal;
use crate::vm::{Freeze, RebootStep, SoftReboot, State, publish};

impl Driver {
    /// Brings the file up to date; answers whether it is.
    pub(super) fn write_journal(&mut self) -> bool {
        let deadline_ms = self.deadline_ms();
        let (life, journal) = (&self.seed.life, &mut self.seed.journal);
        journal.version = garboard_protocol::PROTOCOL_VERSION;
        journal.hints = life.memory.hints;
        journal.resets = life.memory.resets;
        journal.prolonged_ms = life.memory.prolonged_ms;
        let deadline = deadline_ms.map(|at_ms| Deadline { boot_id: self.boot_id.clone(), at_ms });
        if journal.deadline != deadline {
            let now = clock::now();
            journal.stop_deadline_ms = deadline_ms.map(|at_ms| at_ms - now.boot_ms + now.wall_ms);
            journal.deadline = deadline;
        }
        journal.soft_reboot = life.memory.soft_reboot.map(|reboot| journaled(reboot, &self.boot_id));
        journal.freeze = life.memory.freeze.map(|Freeze { thaw_at_ms, is_asked: _ }| JournaledFreeze {
            thaw_at: thaw_at_ms.map(|at_ms| Deadline { boot_id: self.boot_id.clone(), at_ms }),
        });
        if let State::Running { .. } = life.state {
            journal.paused = publish::paused(&life.state);
        }
        if life.memory.has_run && !journal.started {
            journal.started = true;
            journal.started_at_ms = now_ms();
            tracing::info!("the guest runs");
        }
        if let State::Ended(ended) = &life.state {
            journal.ended = Some((**ended).clone());
        }
        if *journal != self.written && journal::write(&self.seed.shared, journal) {
            self.written = journal.clone();
        }
        self.seed.journal == self.written
    }

    /// PID 1 has executed QEMU, as it was asked to.
    pub(super) fn note_execution(&mut self, pid: i32) {
        tracing::info!(pid, "QEMU was executed");
        self.seed.status.supervisor.iter_mut().for_each(|own| own.executed_at_ms = Some(now_ms()));
    }
}

fn journaled(SoftReboot { step, until_ms }: SoftReboot, boot_id: &str) -> JournaledSoftReboot {
    let step = match step {
        RebootStep::Agent => SoftRebootStep::Agent,
        RebootStep::PowerButton => SoftRebootStep::PowerButton,
        RebootStep::Reset => SoftRebootStep::Reset,
    };
    JournaledSoftReboot { step, deadline: Deadline { boot_id: boot_id.to_owned(), at_ms: until_ms } }
}
