//! A machine beside its template.

use super::{Fate, Line, When, both, not_yet, read, warned};

/// How a machine names its instancetype and its preference.
const MATCHER: &str = "api/src/instancetype/matcher.rs";

/// Fields of `spec` of a VirtualMachine.
pub(super) const MACHINE: &[Line] = &[
    Line {
        under: "",
        fields: "dataVolumeTemplates[]",
        cluster: Fate::Handed("controller/src/vm/decide.rs"),
        bare_host: warned(
            When::Written,
            "without a cluster nothing fills a data volume",
            "give a PersistentVolumeClaim of the same name in its place",
        ),
    },
    read("instancetype", "inferFromVolume inferFromVolumeFailurePolicy kind name revisionName", MATCHER),
    read("preference", "inferFromVolume inferFromVolumeFailurePolicy kind name revisionName", MATCHER),
    not_yet("", "runStrategy", When::Is("WaitAsReceiver"), "write `Always`"),
    read("", "running", "api/src/run_strategy.rs"),
    both("", "template.metadata template.spec", Fate::Handed("api/src/defaults/instance.rs")),
    both(
        "",
        "updateVolumesStrategy",
        warned(
            When::Is("Migration"),
            "no volume is copied while the guest runs: another volume counts from the next start on",
            "write `Replacement`",
        ),
    ),
];
