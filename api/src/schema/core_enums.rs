//! Words that Kubernetes' own types permit (v1.33, the enumerations of its published OpenAPI). `k8s-openapi` leaves them
//! out, and the API server refuses others by schema.

/// One field of one type, and its words.
pub(super) struct Words {
    /// The type, as `k8s-openapi` names its schema.
    pub(super) definition: &'static str,
    /// The field of the type.
    pub(super) field: &'static str,
    /// What may stand there.
    pub(super) words: &'static [&'static str],
}

const fn words(definition: &'static str, field: &'static str, words: &'static [&'static str]) -> Words {
    Words { definition, field, words }
}

/// Every field of a type of Kubernetes, reached from our kinds, that takes only certain words.
pub(super) const CORE_ENUMS: &[Words] = &[
    words("io.k8s.api.core.v1.Toleration", "operator", &["Equal", "Exists"]),
    words("io.k8s.api.core.v1.Toleration", "effect", &["NoExecute", "NoSchedule", "PreferNoSchedule"]),
    words(
        "io.k8s.api.core.v1.NodeSelectorRequirement",
        "operator",
        &["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"],
    ),
    words("io.k8s.api.core.v1.TopologySpreadConstraint", "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
    words("io.k8s.api.core.v1.TopologySpreadConstraint", "nodeAffinityPolicy", &["Honor", "Ignore"]),
    words("io.k8s.api.core.v1.TopologySpreadConstraint", "nodeTaintsPolicy", &["Honor", "Ignore"]),
    words("io.k8s.api.core.v1.HTTPGetAction", "scheme", &["HTTP", "HTTPS"]),
    words("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeMode", &["Block", "Filesystem"]),
];
