//! Feature gates, as KubeVirt 1.9 names them.

use std::fmt;

/// A feature gate that changes what is admitted, or which pod is made of it. Gates that change nothing here are not
/// listed: [`crate::fields::gates`] has every name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Volumes that are paths inside the launcher's container.
    ContainerPathVolumes,
    /// CD-ROM drives without a volume.
    DeclarativeHotplugVolumes,
    /// Machines that wait for a migration from another cluster.
    DecentralizedLiveMigration,
    /// Metrics of the host, shown to the guest.
    DownwardMetrics,
    /// GPUs from resource claims.
    GpusWithDra,
    /// Disks that are files of the host.
    HostDisk,
    /// Devices of the host.
    HostDevices,
    /// Host devices from resource claims.
    HostDevicesWithDra,
    /// Ignition configurations.
    Ignition,
    /// Container disks as image volumes of the pod; without it a program in each image's own container opens them.
    ImageVolume,
    /// Networks from resource claims.
    NetworkDevicesWithDra,
    /// The binding `passtBinding`.
    PasstBinding,
    /// SCSI persistent reservations.
    PersistentReservation,
    /// Ranges of forwarded ports.
    PortRanges,
    /// What a guest's reboot does.
    RebootPolicy,
    /// Memory reserved for the launcher.
    ReservedOverheadMemlock,
    /// Hook sidecars.
    Sidecar,
    /// AMD's memory encryption.
    Sev,
    /// Intel's memory encryption.
    Tdx,
    /// Filesystems on claims.
    VirtiofsStorage,
    /// Sockets between host and guest.
    Vsock,
}

/// The default of a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Usual {
    /// On unless it is switched off.
    On,
    /// Off unless it is switched on.
    Off,
}

/// Every gate, its name in a KubeVirt object, and what it is by itself.
// `tests/e2e/garboard_e2e/cluster/admission.py` reads the names of the gates that are off out of these lines.
pub(super) const GATES: &[(Gate, &str, Usual)] = &[
    (Gate::ContainerPathVolumes, "ContainerPathVolumes", Usual::Off),
    (Gate::DeclarativeHotplugVolumes, "DeclarativeHotplugVolumes", Usual::On),
    (Gate::DecentralizedLiveMigration, "DecentralizedLiveMigration", Usual::On),
    (Gate::DownwardMetrics, "DownwardMetrics", Usual::Off),
    (Gate::GpusWithDra, "GPUsWithDRA", Usual::On),
    (Gate::HostDisk, "HostDisk", Usual::Off),
    (Gate::HostDevices, "HostDevices", Usual::Off),
    (Gate::HostDevicesWithDra, "HostDevicesWithDRA", Usual::On),
    (Gate::Ignition, "ExperimentalIgnitionSupport", Usual::Off),
    (Gate::ImageVolume, "ImageVolume", Usual::On),
    (Gate::NetworkDevicesWithDra, "NetworkDevicesWithDRA", Usual::Off),
    (Gate::PasstBinding, "PasstBinding", Usual::On),
    (Gate::PersistentReservation, "PersistentReservation", Usual::On),
    (Gate::PortRanges, "PortRangesSpec", Usual::Off),
    (Gate::RebootPolicy, "RebootPolicy", Usual::On),
    (Gate::ReservedOverheadMemlock, "ReservedOverheadMemlock", Usual::Off),
    (Gate::Sidecar, "Sidecar", Usual::Off),
    (Gate::Sev, "WorkloadEncryptionSEV", Usual::On),
    (Gate::Tdx, "WorkloadEncryptionTDX", Usual::Off),
    (Gate::VirtiofsStorage, "EnableVirtioFsStorageVolumes", Usual::Off),
    (Gate::Vsock, "VSOCK", Usual::Off),
];

impl Gate {
    /// The gate of this name, as a KubeVirt object spells it.
    pub fn named(name: &str) -> Option<Self> {
        GATES.iter().find(|(_, known, _)| *known == name).map(|(gate, _, _)| *gate)
    }

    /// The name of the gate, as a KubeVirt object spells it.
    pub fn name(self) -> &'static str {
        GATES.iter().find(|(gate, _, _)| *gate == self).map_or("", |(_, name, _)| name)
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_has_one_name() {
        for (gate, name, _) in GATES {
            assert_eq!(Gate::named(name), Some(*gate));
            assert_eq!(gate.name(), *name);
        }
        assert_eq!(Gate::named("LiveMigration"), None);
    }
}
