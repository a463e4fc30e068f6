//! What the rules judge: one instance specification, where it stands, and the cluster it is for.

use crate::arch::Arch;
use crate::cluster::ClusterConfig;
use crate::fault::FieldPath;
use crate::quantity::Quantity;
use crate::v1::VirtualMachineInstanceSpec;

/// An instance specification under judgement.
pub(crate) struct Subject<'a> {
    /// The specification, after defaulting.
    pub(crate) spec: &'a VirtualMachineInstanceSpec,
    /// Where it stands: `spec` of an instance, `spec.template.spec` of a machine.
    pub(crate) at: FieldPath,
    /// What the cluster permits.
    pub(crate) config: &'a ClusterConfig,
}

impl Subject<'_> {
    /// The path of a field of the specification; `steps` are joined by dots.
    pub(crate) fn path(&self, steps: &str) -> FieldPath {
        self.at.child(steps)
    }

    /// The name of the architecture, which is the cluster's where the specification has none.
    pub(crate) fn architecture(&self) -> &str {
        match text(&self.spec.architecture) {
            "" => &self.config.default_architecture,
            name => name,
        }
    }

    /// The architecture, if it is a known one.
    pub(crate) fn arch(&self) -> Option<Arch> {
        Arch::named(self.architecture())
    }

    /// What the guest asks of a resource of the host.
    pub(crate) fn request(&self, resource: &str) -> Option<&Quantity> {
        self.spec.domain.resources.as_ref()?.requests.get(resource)
    }

    /// What the guest may take of a resource of the host.
    pub(crate) fn limit(&self, resource: &str) -> Option<&Quantity> {
        self.spec.domain.resources.as_ref()?.limits.get(resource)
    }
}

/// An optional text; to KubeVirt the empty one and the absent one are the same.
pub(crate) fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}
