//! The driver over a simulated QEMU.

mod guest;
mod lifecycle;
mod numbered;

use std::time::Duration;

use garboard_plan::{Lifecycle, RebootPolicy, StartState};
use garboard_qmp::agent::{Agent, AgentOptions};
use garboard_qmp::testing::FakeAgent;

use super::{Input, Planned};

/// For what has to come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

fn lifecycle(start: StartState, acpi: bool) -> Lifecycle {
    Lifecycle { grace_period_seconds: 900, start, reboot: RebootPolicy::Reboot, acpi }
}

fn planned(lifecycle: Lifecycle) -> Input {
    Input::Planned(Box::new(Planned {
        lifecycle,
        software_emulation: false,
        interpreted_by_kvm: false,
        machine: "pc-q35-7.2".to_owned(),
        memory_bytes: 1 << 28,
        overhead_bytes: 1 << 26,
        vcpus: 1,
        stored: None,
        disks: Vec::new(),
        interfaces: Vec::new(),
    }))
}

/// An agent that answers, and the host's connection to it.
async fn agent() -> (FakeAgent, Agent) {
    let (fake, stream) = FakeAgent::pair(b"").unwrap();
    let agent = Agent::connect(stream, AgentOptions { limit: PATIENCE, ..AgentOptions::default() }).await.unwrap();
    (fake, agent)
}
