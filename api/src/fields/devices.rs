//! The devices of an instance: disks, interfaces, and the rest.

use super::{Fate, Line, NOT_YET, REMOVE, When, both, not_yet, read};

const SCREEN: &str = "launcher/plan/src/screen.rs";
const OTHERS: &str = "launcher/plan/src/devices.rs";
const CHANNELS: &str = "launcher/plan/src/channels.rs";
const DISKS: &str = "launcher/plan/src/disks/mod.rs";
const FRONTEND: &str = "launcher/plan/src/disks/frontend.rs";
const CACHE: &str = "launcher/plan/src/disks/cache.rs";
const NETWORK: &str = "launcher/plan/src/interfaces.rs";
const BOOT: &str = "launcher/plan/src/boot.rs";

/// Devices beside interfaces.
pub(super) const DEVICES: &[Line] = &[
    read("domain.devices", "autoattachGraphicsDevice autoattachInputDevice video.type", SCREEN),
    read("domain.devices", "inputs[].bus inputs[].name inputs[].type", SCREEN),
    read("domain.devices", "autoattachMemBalloon rng panicDevices[].model sound.model", OTHERS),
    read("domain.devices", "watchdog.i6300esb.action", OTHERS),
    both("domain.devices", "sound.name watchdog.name", Fate::Name),
    read("domain.devices", "autoattachPodInterface", "api/src/defaults/devices.rs"),
    read("domain.devices", "autoattachSerialConsole clientPassthrough logSerialConsole", CHANNELS),
    read("domain.devices", "blockMultiQueue", FRONTEND),
    read("domain.devices", "disableHotplug", DISKS),
    read("domain.devices", "networkInterfaceMultiqueue", NETWORK),
    read("domain.devices", "useVirtioTransitional", "launcher/plan/src/draft.rs"),
    read(
        "domain.devices.disks[]",
        "blockSize.custom.discardGranularity blockSize.custom.logical blockSize.custom.physical \
         blockSize.matchVolume.enabled cdrom.bus cdrom.tray disk.bus disk.pciAddress errorPolicy lun.bus serial",
        FRONTEND,
    ),
    read("domain.devices.disks[]", "bootOrder", BOOT),
    read("domain.devices.disks[]", "cache io", CACHE),
    read("domain.devices.disks[]", "cdrom.readonly disk.readonly lun.readonly", "launcher/plan/src/opening.rs"),
    read("domain.devices.disks[]", "dedicatedIOThread", "launcher/plan/src/disks/iothreads.rs"),
    read("domain.devices.disks[]", "name shareable tag", DISKS),
    not_yet("domain.devices.disks[]", "changedBlockTracking lun.reservation", When::True, REMOVE),
    not_yet("domain.devices", "autoattachVSOCK", When::True, REMOVE),
    not_yet("domain.devices", "downwardMetrics gpus hostDevices", When::Written, REMOVE),
    not_yet("domain.devices", "filesystems", When::Written, "use the volume as a disk"),
    not_yet("domain.devices", "tpm", When::Enabled, REMOVE),
    not_yet("domain.devices", "watchdog.diag288", When::Written, "write `i6300esb: {}`: guests are of amd64"),
];

/// Network cards.
pub(super) const INTERFACES: &[Line] = &[
    read(
        "domain.devices.interfaces[]",
        "acpiIndex bridge dhcpOptions.bootFileName dhcpOptions.ntpServers dhcpOptions.privateOptions[].option \
         dhcpOptions.privateOptions[].value dhcpOptions.tftpServerName masquerade model name pciAddress state tag",
        NETWORK,
    ),
    read("domain.devices.interfaces[]", "bootOrder", BOOT),
    read("domain.devices.interfaces[]", "macAddress", "launcher/plan/src/mac.rs"),
    Line {
        under: "domain.devices.interfaces[]",
        fields: "ports[].name",
        cluster: Fate::Read("controller/src/pod/containers.rs"),
        bare_host: Fate::Name,
    },
    read("domain.devices.interfaces[]", "ports[].port ports[].protocol", NETWORK),
    Line {
        under: "domain.devices.interfaces[]",
        fields: "passtBinding",
        cluster: Fate::Refused {
            when: When::Written,
            why: "the image of launcher pods has no passt, so that no guest with this binding starts in a cluster",
            instead: "write `masquerade: {}`",
        },
        bare_host: Fate::Read(NETWORK),
    },
    not_yet("domain.devices.interfaces[]", "binding sriov", When::Written, "write `masquerade: {}`"),
    not_yet("domain.devices.interfaces[]", "portRanges", When::Written, "list the ports under `ports`"),
    Line { under: "domain.devices.interfaces[]", fields: "macvtap passt slirp", cluster: GONE, bare_host: GONE },
];

/// Bindings that KubeVirt has discontinued.
const GONE: Fate = Fate::Refused { when: When::Written, why: NOT_YET, instead: "write `masquerade: {}`" };
