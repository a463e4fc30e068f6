//! The domain of an instance beside its devices: processors, memory, firmware, clock, features.

use super::{Fate, Line, NOT_YET, REMOVE, When, both, not_yet, read, warned};

const FIRMWARE: &str = "launcher/plan/src/firmware.rs";
const CLOCK: &str = "launcher/plan/src/clock.rs";
const CPU: &str = "launcher/plan/src/cpu.rs";
const HYPERV: &str = "launcher/plan/src/hyperv.rs";
const COMPUTE: &str = "launcher/plan/src/compute.rs";
const RESOURCES: &str = "launcher/plan/src/resources.rs";
const IO_THREADS: &str = "launcher/plan/src/disks/iothreads.rs";
const KERNELS: &str = "controller/src/pod/container_disks.rs";

/// Room to grow that is not what the settings give every guest; what is, is taken out before this is asked.
const ROOM: Fate = warned(
    When::Written,
    "the guest is laid out with this room to grow, but nothing is plugged in while it runs",
    "remove it, and restart the machine after it was changed",
);

/// Fields of `domain` beside `devices`.
pub(super) const DOMAIN: &[Line] = &[
    read("domain.chassis", "asset manufacturer serial sku version", FIRMWARE),
    read("domain.clock", "timezone utc.offsetSeconds", CLOCK),
    read("domain.clock.timer", "rtc.tickPolicy rtc.track pit.present pit.tickPolicy hpet.present", CLOCK),
    not_yet("domain.clock.timer", "rtc.present", When::False, "leave it out: every guest has a real-time clock"),
    both(
        "domain.clock.timer",
        "hpet.tickPolicy",
        Fate::Refused {
            when: When::OtherThan("delay"),
            why: "QEMU's HPET can only delay ticks",
            instead: "write `delay`",
        },
    ),
    read("domain.clock.timer", "kvm.present", CPU),
    read("domain.clock.timer", "hyperv.present", HYPERV),
    read("domain.cpu", "cores sockets threads", COMPUTE),
    both("domain.cpu", "maxSockets", ROOM),
    read("domain.cpu", "model features[].name", CPU),
    Line {
        under: "domain.cpu",
        fields: "features[].policy",
        cluster: Fate::Read("controller/src/pod/nodes.rs"),
        bare_host: warned(
            When::Is("forbid"),
            "the guest does not get this feature, but a host that has it is used all the same",
            "write `disable`",
        ),
    },
    not_yet("domain.cpu", "dedicatedCpuPlacement isolateEmulatorThread", When::True, REMOVE),
    not_yet("domain.cpu", "numa realtime", When::Written, REMOVE),
    not_yet("domain.firmware", "acpi", When::Written, REMOVE),
    read("domain.firmware", "uuid serial bootloader.bios.useSerial", FIRMWARE),
    read("domain.firmware.bootloader.efi", "persistent secureBoot", FIRMWARE),
    read("domain.firmware.kernelBoot", "kernelArgs container.initrdPath container.kernelPath", FIRMWARE),
    Line {
        under: "domain.firmware.kernelBoot.container",
        fields: "image imagePullPolicy",
        cluster: Fate::Read(KERNELS),
        bare_host: Fate::Read("cli/src/resolve.rs"),
    },
    Line {
        under: "domain.firmware.kernelBoot.container",
        fields: "imagePullSecret",
        cluster: Fate::Read("controller/src/pod/volumes.rs"),
        bare_host: warned(
            When::Filled,
            "on a bare host images are pulled without a Secret",
            "pull the image first, with `garboard image pull`",
        ),
    },
    read("domain.features", "acpi.enabled", "launcher/plan/src/assemble.rs"),
    read("domain.features", "apic.endOfInterrupt kvm.hidden pvspinlock.enabled", CPU),
    both("domain.features", "apic.enabled", warned(When::False, "every guest has an APIC, as under KubeVirt", REMOVE)),
    read("domain.features", "smm.enabled", FIRMWARE),
    read("domain.features", "hypervPassthrough.enabled", HYPERV),
    read(
        "domain.features.hyperv",
        "evmcs.enabled frequencies.enabled ipi.enabled reenlightenment.enabled relaxed.enabled reset.enabled \
         runtime.enabled spinlocks.enabled spinlocks.spinlocks synic.enabled synictimer.enabled \
         synictimer.direct.enabled tlbflush.enabled tlbflush.direct.enabled tlbflush.extended.enabled vapic.enabled \
         vendorid.enabled vendorid.vendorid vpindex.enabled",
        HYPERV,
    ),
    read("domain", "ioThreads.supplementalPoolThreadCount ioThreadsPolicy", IO_THREADS),
    not_yet("domain", "launchSecurity", When::Written, REMOVE),
    read("domain", "machine.type memory.guest memory.hugepages.pageSize", COMPUTE),
    both("domain.memory", "maxGuest", ROOM),
    read("domain.memory", "reservedOverhead.addedOverhead", RESOURCES),
    Line {
        under: "domain.memory",
        fields: "reservedOverhead.memLock",
        cluster: Fate::Refused { when: When::OtherThan("NotRequired"), why: NOT_YET, instead: REMOVE },
        bare_host: Fate::Read(RESOURCES),
    },
    read("domain", "rebootPolicy", "launcher/plan/src/lib.rs"),
    read("domain.resources", "overcommitGuestOverhead", RESOURCES),
    Line {
        under: "domain.resources",
        fields: "limits",
        cluster: Fate::Read("controller/src/pod/containers.rs"),
        bare_host: warned(
            When::OtherKeys(&["cpu", "memory", "ephemeral-storage"]),
            "on a bare host only limits of `cpu`, `memory` and `ephemeral-storage` count",
            "remove the other resources",
        ),
    },
    Line {
        under: "domain.resources",
        fields: "requests",
        cluster: Fate::Read("controller/src/pod/containers.rs"),
        bare_host: warned(
            When::OtherKeys(&["cpu", "memory"]),
            "on a bare host only requests of `cpu` and `memory` count",
            "remove the other resources",
        ),
    },
];
