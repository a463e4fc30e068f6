//! Why there is no plan.

use garboard_machine::cpu::CpuTokenError;
use garboard_machine::facts::{KvmState, UefiKind};
use garboard_machine::id::IdError;
use garboard_machine::pci::PciError;

use super::lint::Finding;

/// Why there is no plan. An error in the manifest names the field and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A field of the API that Garboard does not support yet.
    #[error("{field}: {why}; {instead}")]
    NotInThisVersion {
        /// Path of the field.
        field: String,
        /// Why it cannot be honoured.
        why: String,
        /// What to write instead.
        instead: String,
    },
    /// A value this machine cannot have.
    #[error("{field}: {message}; {instead}")]
    Invalid {
        /// Path of the field.
        field: String,
        /// What is wrong.
        message: String,
        /// What to write instead.
        instead: String,
    },
    /// More vCPUs than a machine of this type can have, on whatever host.
    #[error("{field}: {message}; {instead}")]
    TooManyVcpus {
        /// Path of the field.
        field: String,
        /// What is asked for.
        message: String,
        /// What to write instead.
        instead: String,
    },
    /// A name that QEMU cannot carry.
    #[error("{field}: the name cannot be used")]
    Name {
        /// Path of the field.
        field: String,
        /// QEMU's rule.
        #[source]
        source: IdError,
    },
    /// A CPU model or feature that `-cpu` cannot carry.
    #[error("{field}: the value cannot be used")]
    CpuToken {
        /// Path of the field.
        field: String,
        /// QEMU's rule.
        #[source]
        source: CpuTokenError,
    },
    /// A device has no free place.
    #[error("{field}: the device has no place on its bus")]
    Pci {
        /// Path of the field, or of the list it comes from.
        field: String,
        /// What is in the way.
        #[source]
        source: PciError,
    },
    /// There is no KVM, and nothing else is allowed.
    #[error(
        "{state}, and the guest is to run under KVM; use another host, or set the annotation `garboard.dev/accelerator: tcg` for QEMU's slower translator"
    )]
    NoKvm {
        /// The state of `/dev/kvm`.
        state: KvmState,
    },
    /// The QEMU of this host lacks something.
    #[error("{field}: QEMU {version} has no {what}; {instead}")]
    QemuLacks {
        /// Path of the field.
        field: String,
        /// Version of the QEMU.
        version: String,
        /// What it lacks.
        what: String,
        /// What to do.
        instead: String,
    },
    /// No firmware of the kind is installed.
    #[error("{field}: no UEFI firmware of kind {kind:?} is installed; install package ovmf, or write `bios: {{}}`")]
    NoUefi {
        /// Path of the field.
        field: String,
        /// The kind.
        kind: UefiKind,
    },
    /// The host lacks something a field needs.
    #[error("{field}: {message}; {instead}")]
    HostLacks {
        /// Path of the field.
        field: String,
        /// What is missing.
        message: String,
        /// What to do.
        instead: String,
    },
    /// A newer Garboard stored the machine.
    #[error(
        "a newer Garboard has stored what this machine must keep (version {found} of a stored machine, this one supports {known}); \
         start it with that version or a later one"
    )]
    StoredVersion {
        /// Version in the stored machine.
        found: u32,
        /// [`super::STORED_VERSION`].
        known: u32,
    },
    /// The plan contradicts itself: a defect of Garboard.
    #[error("the plan contradicts itself, which is a defect of Garboard: {}", join(findings))]
    Contradiction {
        /// What the linter found.
        findings: Vec<Finding>,
    },
}

/// Where it can be corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The author of the manifest.
    Manifest,
    /// The administrator of the host; another host may do.
    Host,
    /// Garboard itself: a defect.
    Garboard,
}

impl PlanError {
    /// Where it can be corrected. Trying again without a change never helps: a plan is a function of its input.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::NotInThisVersion { .. }
            | Self::Invalid { .. }
            | Self::TooManyVcpus { .. }
            | Self::Name { .. }
            | Self::CpuToken { .. }
            | Self::Pci { .. } => Fault::Manifest,
            Self::NoKvm { .. }
            | Self::QemuLacks { .. }
            | Self::NoUefi { .. }
            | Self::HostLacks { .. }
            | Self::StoredVersion { .. } => Fault::Host,
            Self::Contradiction { .. } => Fault::Garboard,
        }
    }

    /// Path of the field it is about.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::NotInThisVersion { field, .. }
            | Self::Invalid { field, .. }
            | Self::TooManyVcpus { field, .. }
            | Self::Name { field, .. }
            | Self::CpuToken { field, .. }
            | Self::Pci { field, .. }
            | Self::QemuLacks { field, .. }
            | Self::NoUefi { field, .. }
            | Self::HostLacks { field, .. } => Some(field),
            Self::NoKvm { .. } | Self::StoredVersion { .. } | Self::Contradiction { .. } => None,
        }
    }
}

fn join(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
