//! An instance beside its domain: pod, networks, volumes.

use super::{Fate, Line, REMOVE, When, both, not_yet, read, warned};

const MADE_POD: &str = "controller/src/pod/mod.rs";
const CREDENTIALS: &str = "launcher/src/supervisor/credentials/wanted.rs";
const NETWORK: &str = "launcher/plan/src/interfaces.rs";
const PROJECTED: &str = "controller/src/pod/projected.rs";
const ON_HOST: &str = "cli/src/resolve.rs";
const SEEDS: &str = "launcher/src/supervisor/prepare/seeds.rs";
const SOURCE: &str = "launcher/plan/src/disks/source.rs";

const ONE_NODE: &str = "on a bare host nothing is scheduled, and this has no effect";
const NOT_MOVED: &str =
    "no guest is moved while it runs: a drain waits for `LiveMigrate` and `External`, and powers others down";
const NO_PROBES: &str = "on a bare host nothing probes the guest, and one that hangs stays so";
const HOSTS_DNS: &str = "on a bare host the guest asks the name servers of its host, and this has no effect";
const NO_ACCOUNTS: &str = "a bare host has no service accounts";
const NO_PULL_SECRETS: &str = "on a bare host images are pulled without a Secret";
const NOT_PLUGGED: &str =
    "the volume is attached when the guest starts, and neither plugged nor unplugged while it runs";
const ONE_CARD: &str = "remove the network and its interface: a machine has one network card, on `pod: {}`";

/// What a file reads in a cluster, and a bare host has no use for.
const fn cluster_only(fields: &'static str, file: &'static str, when: When, what: &'static str) -> Line {
    Line { under: "", fields, cluster: Fate::Read(file), bare_host: warned(when, what, REMOVE) }
}

/// What one file reads in a cluster and another on a bare host.
const fn each(under: &'static str, fields: &'static str, cluster: &'static str, bare_host: &'static str) -> Line {
    Line { under, fields, cluster: Fate::Read(cluster), bare_host: Fate::Read(bare_host) }
}

/// What is neither the domain's nor a volume's.
pub(super) const POD: &[Line] = &[
    not_yet("", "architecture", When::OtherThan("amd64"), "write `amd64`, or leave it out"),
    read("accessCredentials[].sshPublicKey", "propagationMethod.configDrive propagationMethod.noCloud", SEEDS),
    read("accessCredentials[].sshPublicKey", "source.secret.secretName", SEEDS),
    read("accessCredentials[].sshPublicKey", "propagationMethod.qemuGuestAgent.users", CREDENTIALS),
    read("accessCredentials[].userPassword", "propagationMethod.qemuGuestAgent", CREDENTIALS),
    each("accessCredentials[].userPassword", "source.secret.secretName", PROJECTED, ON_HOST),
    cluster_only("nodeSelector", "controller/src/pod/nodes.rs", When::Filled, ONE_NODE),
    cluster_only("affinity", MADE_POD, When::Filled, ONE_NODE),
    cluster_only("tolerations topologySpreadConstraints", MADE_POD, When::Filled, ONE_NODE),
    cluster_only("schedulerName priorityClassName", MADE_POD, When::Filled, ONE_NODE),
    cluster_only("serviceAccountName", MADE_POD, When::Filled, NO_ACCOUNTS),
    cluster_only("dnsPolicy dnsConfig", MADE_POD, When::Filled, HOSTS_DNS),
    Line {
        under: "",
        fields: "livenessProbe readinessProbe",
        cluster: Fate::Handed("controller/src/pod/containers.rs"),
        bare_host: warned(When::Written, NO_PROBES, REMOVE),
    },
    both(
        "",
        "evictionStrategy",
        warned(When::OtherThan("None"), NOT_MOVED, "write `None` for a guest that a drain may power down"),
    ),
    read("", "hostname subdomain networks[].name", NETWORK),
    read("networks[].pod", "vmNetworkCIDR vmIPv6NetworkCIDR", NETWORK),
    not_yet("networks[]", "multus resourceClaim", When::Written, ONE_CARD),
    read("", "startStrategy terminationGracePeriodSeconds", "launcher/plan/src/assemble.rs"),
    not_yet("", "resourceClaims utilityVolumes", When::Written, REMOVE),
];

/// Volumes.
pub(super) const VOLUMES: &[Line] = &[
    read("volumes[]", "name", SOURCE),
    read("volumes[].cloudInitConfigDrive", SEED, SEEDS),
    read("volumes[].cloudInitNoCloud", SEED, SEEDS),
    each("volumes[].configMap", "name optional", PROJECTED, ON_HOST),
    read("volumes[].configMap", "volumeLabel", SOURCE),
    each("volumes[].secret", "secretName optional", PROJECTED, ON_HOST),
    read("volumes[].secret", "volumeLabel", SOURCE),
    each("volumes[].downwardAPI", "fields", PROJECTED, ON_HOST),
    read("volumes[].downwardAPI", "volumeLabel", SOURCE),
    each("volumes[].sysprep", "configMap secret", PROJECTED, ON_HOST),
    each("volumes[].containerDisk", "image imagePullPolicy path", "controller/src/pod/volumes.rs", ON_HOST),
    Line {
        under: "volumes[].containerDisk",
        fields: "imagePullSecret",
        cluster: Fate::Read("controller/src/pod/volumes.rs"),
        bare_host: warned(When::Filled, NO_PULL_SECRETS, "pull the image first, with `garboard image pull`"),
    },
    not_yet("volumes[]", "containerPath", When::Written, "use a `persistentVolumeClaim`"),
    not_yet("volumes[]", "downwardMetrics memoryDump", When::Written, REMOVE),
    read("volumes[]", "dataVolume.name emptyDisk.capacity", SOURCE),
    both("volumes[]", "dataVolume.hotpluggable persistentVolumeClaim.hotpluggable", PLUGGED),
    read("volumes[].persistentVolumeClaim", "claimName", SOURCE),
    read("volumes[].persistentVolumeClaim", "readOnly", "launcher/plan/src/opening.rs"),
    both("volumes[].ephemeral", "persistentVolumeClaim", Fate::Handed(SOURCE)),
    read("volumes[].hostDisk", "capacity path shared type", SOURCE),
    Line {
        under: "volumes[]",
        fields: "iscsi",
        cluster: Fate::Read(SOURCE),
        bare_host: warned(
            When::Filled,
            "QEMU reaches no network of a bare host: `garboard run` refuses this volume",
            "run the machine on a cluster, or attach the unit with `iscsiadm` and use a `hostDisk`",
        ),
    },
    Line {
        under: "volumes[].serviceAccount",
        fields: "serviceAccountName",
        cluster: Fate::Read(PROJECTED),
        bare_host: warned(
            When::Filled,
            "a bare host has no service accounts: `garboard run` refuses this volume",
            "use a `secret`, or run the machine on a cluster",
        ),
    },
];

const SEED: &str = "networkData networkDataBase64 networkDataSecretRef secretRef userData userDataBase64";
const PLUGGED: Fate =
    warned(When::True, NOT_PLUGGED, "remove it, and restart the machine after volumes were added or taken out");
