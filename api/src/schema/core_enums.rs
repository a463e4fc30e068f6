//! Values that Kubernetes' own types permit (v1.33, the enumerations of its published OpenAPI). `k8s-openapi` leaves them
//! out, and the API server refuses others by schema.

/// One field of one type, and its values.
pub(super) struct Values {
    /// The type, as `k8s-openapi` names its schema.
    pub(super) definition: &'static str,
    /// The field of the type.
    pub(super) field: &'static str,
    /// What may stand there.
    pub(super) values: &'static [&'static str],
}

const fn values(definition: &'static str, field: &'static str, values: &'static [&'static str]) -> Values {
    Values { definition, field, values }
}

/// Every field of a type of Kubernetes, reached from our kinds, that takes only certain values.
pub(super) const CORE_ENUMS: &[Values] = &[
    values("io.k8s.api.core.v1.Toleration", "operator", &["Equal", "Exists"]),
    values("io.k8s.api.core.v1.Toleration", "effect", &["NoExecute", "NoSchedule", "PreferNoSchedule"]),
    values(
        "io.k8s.api.core.v1.NodeSelectorRequirement",
        "operator",
        &["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"],
    ),
    values("io.k8s.api.core.v1.TopologySpreadConstraint", "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
    values("io.k8s.api.core.v1.TopologySpreadConstraint", "nodeAffinityPolicy", &["Honor", "Ignore"]),
    values("io.k8s.api.core.v1.TopologySpreadConstraint", "nodeTaintsPolicy", &["Honor", "Ignore"]),
    values("io.k8s.api.core.v1.HTTPGetAction", "scheme", &["HTTP", "HTTPS"]),
    values("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeMode", &["Block", "Filesystem"]),
];
