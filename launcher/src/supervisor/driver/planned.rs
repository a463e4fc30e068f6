//! What the driver takes from a plan, and what became of it while QEMU runs: its status.

use std::collections::BTreeMap;

use garboard_plan::StartState;
use garboard_protocol::control::Link;

use super::{Driver, Planned};
use crate::vm::OnReady;

impl Driver {
    /// A plan was made, or found.
    pub(super) fn note_plan(&mut self, planned: Planned) {
        self.seed.life.follow(&planned.lifecycle);
        self.seed.on_ready = match planned.lifecycle.start {
            StartState::Running if !self.seed.journal.started => OnReady::LetRun,
            StartState::Running | StartState::Paused => OnReady::Leave,
        };
        let status = &mut self.seed.status;
        status.software_emulation = planned.software_emulation;
        status.interpreted_by_kvm = planned.interpreted_by_kvm;
        status.machine = planned.machine;
        status.memory_bytes = planned.memory_bytes;
        status.overhead_bytes = planned.overhead_bytes;
        status.vcpus = planned.vcpus;
        status.stored = planned.stored;
        status.disks = planned.disks;
        status.interfaces.clone_from(&planned.interfaces);
        self.planned = planned.interfaces;
    }

    /// Cables, by name of the interface.
    pub(super) fn note_links(&mut self, links: &BTreeMap<String, Link>) {
        for interface in self.planned.iter_mut().chain(&mut self.seed.status.interfaces) {
            if let Some(link) = links.get(&interface.name) {
                interface.link = Some(*link);
            }
        }
    }
}
