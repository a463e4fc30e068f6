//! From a VirtualMachineInstance and the facts of a host to a [`LaunchPlan`]. Pure: no clock, no file, no
//! environment, no randomness; the same input gives the same bytes in `explain`, in the launcher and in a test.
//!
//! ```text
//!  VMI (validated, defaulted) ─┐
//!  HostFacts ──────────────────┼─► plan ─► LaunchPlan { argv, descriptors, disks, interfaces, … , stored }
//!  PlanOptions, StoredMachine ─┘            │ linted: ids, nodes, PCI places, descriptors agree
//! ```
//!
//! Not for doing anything: the executor of a plan has no choices left. What a manifest asks for and this cannot give
//! is a [`PlanError`] that names the field, never a line in a log.

mod assemble;
mod baseline;
mod boot;
mod channels;
mod clock;
mod compute;
mod cpu;
mod devices;
mod difference;
mod disk;
mod disks;
mod draft;
mod error;
mod firmware;
mod hyperv;
mod interface;
mod interfaces;
mod kept_machine;
mod launch;
pub mod lint;
pub mod live;
mod mac;
mod opening;
mod options;
mod ordered;
mod passt;
mod pinned;
mod resources;
mod scratch;
mod screen;
mod slots;
mod stored;
#[cfg(test)]
mod tests;
mod unserved;
mod unsupported;
mod usb;
mod user_network;

pub use difference::{Difference, differences};
pub use disk::*;
pub use error::{Fault, PlanError};
pub use interface::*;
pub use interfaces::{DEFAULT_IPV4, DEFAULT_IPV6};
pub use kept_machine::*;
pub use launch::*;
pub use opening::{has_overlay, is_opened_read_only};
pub use options::*;
pub use ordered::{OrderedInterface, ordered_interfaces};
pub use stored::*;

use garboard_api::v1::VirtualMachineInstance;
use garboard_machine::facts::HostFacts;
use garboard_machine::machine::Machine;
use garboard_machine::pci::{PciAllocator, spare_ports};
use garboard_machine::process::{Action, RebootAction};

use self::boot::BootOrder;
use self::disks::Kept;
use self::draft::{Draft, Input, text};
use self::usb::UsbPorts;

/// Decides everything about one start of `vmi`, which must be validated and defaulted.
///
/// `stored` is what an earlier start of the same VM decided; it is kept.
///
/// # Errors
/// [`PlanError`] for whatever this host, this QEMU or this version of Garboard cannot give.
pub fn plan(
    vmi: &VirtualMachineInstance,
    facts: &HostFacts,
    options: &PlanOptions,
    stored: Option<&StoredMachine>,
) -> Result<LaunchPlan, PlanError> {
    plan_machine(vmi, facts, options, stored).map(|(plan, _)| plan)
}

/// The same, with the machine the argv was rendered from.
///
/// # Errors
/// As [`plan`].
pub fn plan_machine(
    vmi: &VirtualMachineInstance,
    facts: &HostFacts,
    options: &PlanOptions,
    stored: Option<&StoredMachine>,
) -> Result<(LaunchPlan, Machine), PlanError> {
    stored.map_or(Ok(()), StoredMachine::check)?;
    let input = Input { vmi, facts, options, stored };
    unsupported::refuse(input)?;
    let mut draft = Draft::new(input, compute::accelerator(input.asked_accelerator(), facts, options)?);
    compute::note_emulation(&mut draft);
    let parts = Parts::of(&mut draft)?;
    let pci = std::mem::replace(&mut draft.pci, PciAllocator::new(None));
    let pci = pci.finish(|in_use| match input.devices().disable_hotplug {
        Some(true) => 0,
        Some(false) | None => spare_ports(in_use, parts.memory.memory.size),
    });
    let machine = assemble::machine(&mut draft, &parts, &pci);
    let findings = lint::lint(&machine, &pci, &draft.descriptors);
    if !findings.is_empty() {
        return Err(PlanError::Contradiction { findings });
    }
    Ok((assemble::launch_plan(draft, parts, &machine, pci), machine))
}

/// What the parts of the planner decided beside the lists in the draft.
struct Parts {
    machine_type: String,
    smp: garboard_machine::cpu::Smp,
    cpu: cpu::CpuPlan,
    memory: compute::GuestMemory,
    backend: garboard_machine::memory::MemoryBackend,
    clock: clock::ClockPlan,
    firmware: firmware::Firmware,
    display: ScreenPlan,
    serials: Vec<SerialPlan>,
    disks: Vec<DiskPlan>,
    interfaces: Vec<InterfacePlan>,
    kept: Kept,
    action: Action,
}

impl Parts {
    /// Asks every part of the planner, in the order in which devices get their PCI places and descriptors their
    /// numbers.
    fn of(draft: &mut Draft<'_>) -> Result<Self, PlanError> {
        let input = draft.input;
        let machine_type = compute::machine_type(input)?;
        let smp = compute::smp(draft, machine_type)?;
        let memory = compute::memory(draft, smp)?;
        let cpu = cpu::cpu(draft, memory.memory)?;
        let clock = clock::clock(draft)?;
        pinned::place_all(draft)?;
        let mut boot = BootOrder::of(input.devices());
        let mut usb = UsbPorts::new(input.stored.map(|stored| &stored.places.usb_ports));
        channels::monitors(draft);
        let serials = channels::serials(draft);
        let display = screen::display(draft)?;
        let interfaces = interfaces::interfaces(draft, &mut boot, smp.cpus)?;
        channels::agent(draft)?;
        let (disks, mut kept) = disks::disks(draft, &mut boot, &mut usb, smp.cpus)?;
        let firmware = firmware::firmware(draft)?;
        devices::rng(draft)?;
        devices::balloon(draft, memory.hugepage_bytes.is_some())?;
        screen::inputs(draft, &mut usb)?;
        channels::usb_redirection(draft, &mut usb)?;
        kept.places.usb_ports = usb.into_given();
        devices::panic_devices(draft)?;
        devices::sound(draft)?;
        let watchdog = devices::watchdog(draft)?;
        let reboot = match reboot_policy(input)? {
            RebootPolicy::Reboot => RebootAction::Reset,
            RebootPolicy::Terminate => RebootAction::Shutdown,
        };
        let action = Action { reboot, watchdog };
        let backend = compute::backend(draft, &memory, smp);
        Ok(Self {
            machine_type: machine_type.name.clone(),
            smp,
            cpu,
            memory,
            backend,
            clock,
            firmware,
            display,
            serials,
            disks,
            interfaces,
            kept,
            action,
        })
    }
}

fn reboot_policy(input: Input<'_>) -> Result<RebootPolicy, PlanError> {
    match text(&input.domain().reboot_policy) {
        Some("Reboot") | None => Ok(RebootPolicy::Reboot),
        Some("Terminate") => Ok(RebootPolicy::Terminate),
        Some(other) => {
            let message = format!("there is no policy `{other}`");
            Err(draft::invalid("spec.domain.rebootPolicy", message, "write `Reboot` or `Terminate`"))
        }
    }
}
