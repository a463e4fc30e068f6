//! How a guest sees the vCPUs of an instancetype: as sockets, cores, threads, or a mixture.

use super::VirtualMachinePreferenceSpec;
use super::types::CPUInstancetype;
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::v1::{CPU, non_empty};

/// KubeVirt's spelling of the place of what is not divisible.
const SENT: &str = "instancetype.spec.cpu.guest";
/// Cores of each socket, if a preference does not say.
const USUAL_RATIO: u32 = 2;
/// Threads of each core, wherever vCPUs are threads.
const THREADS: u32 = 2;

/// What vCPUs are shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each is a socket.
    Sockets,
    /// All are cores of one socket.
    Cores,
    /// All are threads of one core.
    Threads,
    /// They are spread across two or three of these.
    Spread,
    /// As [`Self::Sockets`], except that requirements count whatever the template has.
    Any,
}

/// What vCPUs are spread across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Across {
    /// Sockets with several cores.
    SocketsCores,
    /// Cores of one socket, each with two threads.
    CoresThreads,
    /// Sockets with several cores, each with two threads.
    SocketsCoresThreads,
}

impl Topology {
    /// Those that there are, by their name and their older name.
    pub(crate) const NAMES: [(Self, &'static str, &'static str); 5] = [
        (Self::Sockets, "sockets", "preferSockets"),
        (Self::Cores, "cores", "preferCores"),
        (Self::Threads, "threads", "preferThreads"),
        (Self::Spread, "spread", "preferSpread"),
        (Self::Any, "any", "preferAny"),
    ];

    /// Of a name in a preference.
    pub(crate) fn named(text: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, name, old)| *name == text || *old == text).map(|(topology, _, _)| topology)
    }

    /// Of a preference; sockets where there is none.
    #[must_use]
    pub fn of(preference: Option<&VirtualMachinePreferenceSpec>) -> Self {
        let cpu = preference.and_then(|preference| preference.cpu.as_ref());
        let name = cpu.and_then(|cpu| non_empty(&cpu.preferred_cpu_topology));
        name.and_then(Self::named).unwrap_or(Self::Sockets)
    }
}

impl Across {
    /// Those that there are, by their name.
    pub(crate) const NAMES: [(Self, &'static str); 3] = [
        (Self::SocketsCores, "SocketsCores"),
        (Self::CoresThreads, "CoresThreads"),
        (Self::SocketsCoresThreads, "SocketsCoresThreads"),
    ];

    /// Of a name in a preference.
    pub(crate) fn named(text: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, name)| *name == text).map(|(across, _)| across)
    }
}

/// How vCPUs are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    /// Across what.
    pub(crate) across: Across,
    /// Cores of each socket, or threads of each core; at least 1.
    pub(crate) ratio: u32,
}

impl Spread {
    /// As a preference has it, with what it leaves out.
    pub(crate) fn of(preference: &VirtualMachinePreferenceSpec) -> Self {
        let options = preference.cpu.as_ref().and_then(|cpu| cpu.spread_options.as_ref());
        let across = options.and_then(|options| non_empty(&options.across)).and_then(Across::named);
        let ratio = options.and_then(|options| options.ratio).or(preference.prefer_spread_socket_to_core_ratio);
        Self {
            across: across.unwrap_or(Across::SocketsCores),
            ratio: ratio.filter(|ratio| *ratio > 0).unwrap_or(USUAL_RATIO),
        }
    }

    /// Into how many equal parts vCPUs are divided.
    fn parts(self) -> u32 {
        match self.across {
            Across::SocketsCores | Across::CoresThreads => self.ratio,
            Across::SocketsCoresThreads => self.ratio.saturating_mul(THREADS),
        }
    }
}

/// Why vCPUs cannot be spread as the preference has it.
pub(super) fn indivisible(size: &CPUInstancetype, preference: Option<&VirtualMachinePreferenceSpec>) -> Option<Fault> {
    let preference = preference.filter(|_| Topology::of(preference) == Topology::Spread)?;
    let spread = Spread::of(preference);
    let by = match spread.across {
        Across::SocketsCores => format!("{} cores of each socket", spread.ratio),
        Across::CoresThreads => format!("{} threads of each core", spread.ratio),
        Across::SocketsCoresThreads => {
            format!("{THREADS} threads of each core and {} cores of each socket", spread.ratio)
        }
    };
    let message =
        format!("its {} vCPUs cannot be divided into the {by} that the preference spreads them by", size.guest);
    let fault = Fault::new(FieldPath::from("spec.instancetype"), FaultCode::Invalid, message).field(SENT);
    (!size.guest.is_multiple_of(spread.parts()))
        .then(|| fault.instead("name another instancetype, or another preference"))
}

/// Sets the topology of so many vCPUs.
pub(super) fn lay_out(vcpus: u32, preference: Option<&VirtualMachinePreferenceSpec>, cpu: &mut CPU) {
    (cpu.sockets, cpu.cores, cpu.threads) = (Some(1), Some(1), Some(1));
    // None counts as one, as everywhere.
    if vcpus <= 1 {
        return;
    }
    match Topology::of(preference) {
        Topology::Cores => cpu.cores = Some(vcpus),
        Topology::Threads => cpu.threads = Some(vcpus),
        Topology::Sockets | Topology::Any => cpu.sockets = Some(vcpus),
        Topology::Spread => {
            let Some(preference) = preference else { return };
            let spread = Spread::of(preference);
            let rest = vcpus / spread.parts();
            match spread.across {
                Across::SocketsCores => (cpu.sockets, cpu.cores) = (Some(rest), Some(spread.ratio)),
                Across::CoresThreads => (cpu.cores, cpu.threads) = (Some(rest), Some(spread.ratio)),
                Across::SocketsCoresThreads => {
                    (cpu.sockets, cpu.cores, cpu.threads) = (Some(rest), Some(spread.ratio), Some(THREADS));
                }
            }
        }
    }
}
