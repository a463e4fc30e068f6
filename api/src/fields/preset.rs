//! A preset: the parts that instances get of it. Without a cluster there are no presets.

use super::{Fate, Line, When, both, warned};

const PRESET: &str = "api/src/preset.rs";

const fn ignored(under: &'static str, fields: &'static str) -> Line {
    const WHAT: &str = "instances do not get this part of a preset, as in KubeVirt";
    both(under, fields, warned(When::Written, WHAT, "write it into the instances"))
}

/// Fields of `spec` of a VirtualMachineInstancePreset.
pub(super) const SPEC: &[Line] = &[
    both("", "selector", Fate::Handed(PRESET)),
    both("domain", "clock cpu features firmware ioThreadsPolicy", Fate::Handed(PRESET)),
    both("domain.resources", "requests", Fate::Handed(PRESET)),
    both("domain.devices", "watchdog", Fate::Handed(PRESET)),
    ignored("domain", "chassis ioThreads launchSecurity machine memory rebootPolicy"),
    ignored("domain.resources", "limits overcommitGuestOverhead"),
    ignored(
        "domain.devices",
        "autoattachGraphicsDevice autoattachInputDevice autoattachMemBalloon autoattachPodInterface \
         autoattachSerialConsole autoattachVSOCK blockMultiQueue clientPassthrough disableHotplug disks[] downwardMetrics \
         filesystems[] gpus[] hostDevices[] inputs[] interfaces[] logSerialConsole networkInterfaceMultiqueue panicDevices[] \
         rng sound tpm useVirtioTransitional video",
    ),
];
