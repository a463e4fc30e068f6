//! What Garboard knows and cannot honour yet. Admission refuses it first; here it is refused again, because nothing a
//! manifest asks for may be dropped in silence on the way to QEMU.

use garboard_api::v1::{Devices, DomainSpec, Interface, Volume};

use super::draft::{Input, text};
use super::error::PlanError;

/// Refuses the first thing that is not realised.
pub(super) fn refuse(input: Input<'_>) -> Result<(), PlanError> {
    let spec = input.spec();
    let architecture = text(&spec.architecture);
    first(&[
        (
            architecture.is_some_and(|name| name != "amd64"),
            "spec.architecture",
            "another architecture than amd64",
            "write `amd64`",
        ),
        (!spec.utility_volumes.is_empty(), "spec.utilityVolumes", "a utility volume", "leave it out"),
        (!spec.resource_claims.is_empty(), "spec.resourceClaims", "a claim on a device", "leave it out"),
    ])?;
    domain(input.domain())?;
    devices(input.devices())?;
    for (index, interface) in input.devices().interfaces.iter().enumerate() {
        binding(interface, index)?;
    }
    spec.volumes.iter().enumerate().try_for_each(|(index, one)| volume(one, index))
}

/// Whether it is asked for, its path, what it is, what to write instead.
type Row<'a> = (bool, &'a str, &'static str, &'static str);

fn first(rows: &[Row<'_>]) -> Result<(), PlanError> {
    match rows.iter().find(|&&(is_asked, ..)| is_asked) {
        None => Ok(()),
        Some(&(_, field, what, instead)) => Err(PlanError::NotRealised { field: field.to_owned(), what, instead }),
    }
}

fn domain(domain: &DomainSpec) -> Result<(), PlanError> {
    let cpu = domain.cpu.as_ref();
    let is_numa = cpu.and_then(|cpu| cpu.numa.as_ref()).is_some_and(|numa| numa.guest_mapping_passthrough.is_some());
    let acpi = domain.firmware.as_ref().and_then(|firmware| firmware.acpi.as_ref());
    first(&[
        (
            cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true)),
            "spec.domain.cpu.dedicatedCpuPlacement",
            "pinning vCPUs",
            "leave it out; limits.cpu bounds what the VM may use",
        ),
        (
            cpu.is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true)),
            "spec.domain.cpu.isolateEmulatorThread",
            "a CPU for the emulator alone",
            "leave it out",
        ),
        (is_numa, "spec.domain.cpu.numa.guestMappingPassthrough", "the host's NUMA topology", "leave it out"),
        (cpu.is_some_and(|cpu| cpu.realtime.is_some()), "spec.domain.cpu.realtime", "realtime", "leave it out"),
        (domain.launch_security.is_some(), "spec.domain.launchSecurity", "a confidential guest", "leave it out"),
        (acpi.is_some(), "spec.domain.firmware.acpi", "an ACPI table of one's own", "leave it out"),
    ])
}

fn devices(devices: &Devices) -> Result<(), PlanError> {
    let has_tpm = devices.tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false));
    let is_diag = devices.watchdog.as_ref().is_some_and(|watchdog| watchdog.diag288.is_some());
    first(&[
        (has_tpm, "spec.domain.devices.tpm", "a TPM", "leave it out"),
        (!devices.filesystems.is_empty(), "spec.domain.devices.filesystems", "virtiofs", "use a disk"),
        (!devices.gpus.is_empty(), "spec.domain.devices.gpus", "a GPU", "leave it out"),
        (!devices.host_devices.is_empty(), "spec.domain.devices.hostDevices", "a device of the host", "leave it out"),
        (devices.autoattach_vsock == Some(true), "spec.domain.devices.autoattachVSOCK", "vsock", "leave it out"),
        (
            devices.client_passthrough.is_some(),
            "spec.domain.devices.clientPassthrough",
            "USB redirection",
            "leave it out",
        ),
        (devices.downward_metrics.is_some(), "spec.domain.devices.downwardMetrics", "downward metrics", "leave it out"),
        (is_diag, "spec.domain.devices.watchdog.diag288", "the watchdog of s390x", "write `i6300esb: {}`"),
    ])?;
    for (index, disk) in devices.disks.iter().enumerate() {
        let reservation = format!("spec.domain.devices.disks[{index}].lun.reservation");
        let tracking = format!("spec.domain.devices.disks[{index}].changedBlockTracking");
        first(&[
            (
                disk.lun.as_ref().is_some_and(|lun| lun.reservation == Some(true)),
                &reservation,
                "a persistent reservation",
                "leave it out",
            ),
            (disk.changed_block_tracking == Some(true), &tracking, "tracking of changed blocks", "leave it out"),
        ])?;
    }
    Ok(())
}

fn binding(interface: &Interface, index: usize) -> Result<(), PlanError> {
    let at = |name: &str| format!("spec.domain.devices.interfaces[{index}].{name}");
    first(&[
        (interface.sriov.is_some(), &at("sriov"), "a virtual function", "write `masquerade: {}`"),
        (interface.binding.is_some(), &at("binding"), "a binding plugin", "write `masquerade: {}`"),
        (interface.macvtap.is_some(), &at("macvtap"), "macvtap", "write `bridge: {}`"),
        (interface.slirp.is_some(), &at("slirp"), "slirp", "write `masquerade: {}`"),
        (interface.passt.is_some(), &at("passt"), "the old passt binding", "write `passtBinding: {}`"),
        (!interface.port_ranges.is_empty(), &at("portRanges"), "a range of ports", "write single `ports`"),
    ])
}

fn volume(volume: &Volume, index: usize) -> Result<(), PlanError> {
    let at = |name: &str| format!("spec.volumes[{index}].{name}");
    first(&[
        (volume.container_path.is_some(), &at("containerPath"), "a path of the container", "use a disk"),
        (volume.downward_metrics.is_some(), &at("downwardMetrics"), "downward metrics", "leave it out"),
        (volume.memory_dump.is_some(), &at("memoryDump"), "a memory dump", "leave it out"),
    ])
}
