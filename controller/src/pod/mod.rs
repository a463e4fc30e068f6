//! From a VirtualMachineInstance to its launcher pod. Pure.
//!
//! ```text
//!   init containers of container disks, where the cluster has no image volumes     (`container_disks`)
//!   init container `launcher` (restartPolicy Always)   every volume, the order, the agent's directory by its device
//!   container `compute`                                what PID 1 shares, and /dev/kvm, nothing else
//! ```
//!
//! The last two run the launcher image as user 107 without capabilities, on a read-only root: the pod passes Pod Security
//! `restricted`. Names, labels and annotations that other programs look for are KubeVirt's.

mod claims;
mod container_disks;
mod containers;
mod contribution;
mod host_disk;
mod metadata;
mod nodes;
mod order;
mod probes;
mod projected;
pub mod state;
mod volumes;

pub use metadata::WRITTEN_IMAGE;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use garboard_api::conditions::Reason;
use garboard_api::defaults::{GRACE_PERIOD_SECONDS, RUNTIME_USER};
use garboard_api::fields::{self, Setting};
use garboard_api::v1::non_empty;
use garboard_api::validate::review;
use garboard_api::{ClusterConfig, Fault, Quantity, VirtualMachineInstance};
use garboard_cluster::report::condition::UNPAUSED;
use garboard_machine::facts::{HostFacts, HugepagePool};
use garboard_plan::{AcceleratorChoice, PlanError, PlanOptions, Resources, Shares, plan};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, Pod, PodReadinessGate, PodSecurityContext, PodSpec, SeccompProfile,
};

use crate::data_volumes::{self, DataVolumeProgress};

/// What the pod has beyond the guest's grace, seconds: QEMU's own end, and the last report.
const EXTRA_GRACE_SECONDS: i64 = 30;
/// A name has at most this many bytes; room is left for prefix and suffix.
const LONGEST_NAME: usize = 253;

/// What the containers of a launcher pod are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherImage {
    /// The image.
    pub reference: String,
    /// When a node pulls it: `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
}

/// What a pod depends on.
pub struct PodInput<'a> {
    /// The instance, defaulted.
    pub vmi: &'a VirtualMachineInstance,
    /// The claims it names, as far as they exist.
    pub claims: &'a BTreeMap<String, PersistentVolumeClaim>,
    /// Image of both containers.
    pub launcher_image: &'a LauncherImage,
    /// The cluster's settings.
    pub config: &'a ClusterConfig,
}

impl PodInput<'_> {
    /// Whether the guest runs under TCG, so that the pod needs no `/dev/kvm`.
    pub(crate) fn is_emulated(&self) -> bool {
        garboard_api::accelerator::is_emulated(self.vmi, self.config)
    }
}

/// Why no pod can be made.
#[derive(Debug, thiserror::Error)]
pub enum PodRefusal {
    /// A claim that does not exist, yet.
    #[error("the PersistentVolumeClaim {claim} does not exist")]
    NoClaim {
        /// Its name.
        claim: String,
    },
    /// The claim of an earlier machine of this name, which goes.
    #[error(
        "the PersistentVolumeClaim {claim} belongs to an earlier machine and is being deleted; this machine starts when it is gone"
    )]
    ClaimLeaves {
        /// Its name.
        claim: String,
    },
    /// A claim that is not filled.
    #[error("{}", data_volumes::message(name, progress))]
    DataVolume {
        /// Name of the DataVolume.
        name: String,
        /// How far it is.
        progress: DataVolumeProgress,
    },
    /// What a launcher would refuse as well.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// A field that cannot be honoured in a cluster.
    #[error("{0}")]
    NotInThisVersion(Fault),
    /// A field that makes no sense.
    #[error("{field} is not valid; {instead}")]
    Invalid {
        /// Its path.
        field: String,
        /// What to do about it.
        instead: &'static str,
    },
    /// A field that the cluster does not admit, or no longer: a gate was closed since.
    #[error("{0}")]
    NotAdmitted(Fault),
    /// The order could not be written down.
    #[error("the order for the launcher could not be written as JSON")]
    Order(#[source] serde_json::Error),
}

impl PodRefusal {
    /// KubeVirt's reason of the condition `Synchronized` and of the event.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoClaim { .. } | Self::DataVolume { progress: DataVolumeProgress::Missing, .. } => {
                Reason::FailedPvcNotFound
            }
            Self::DataVolume { progress: DataVolumeProgress::Failed(_) | DataVolumeProgress::GivenUp(_), .. } => {
                Reason::FailedDataVolumeImport
            }
            Self::DataVolume { .. } => Reason::NotAllDataVolumesReady,
            Self::ClaimLeaves { .. } => Reason::BackendStorageNotReady,
            Self::Plan(_)
            | Self::NotInThisVersion(_)
            | Self::Invalid { .. }
            | Self::NotAdmitted(_)
            | Self::Order(_) => Reason::FailedCreate,
        }
    }

    /// Whether a claim is only not filled yet: that has a condition of its own, and nothing is warned of.
    #[must_use]
    pub fn is_unfilled(&self) -> bool {
        matches!(
            self,
            Self::DataVolume { progress: DataVolumeProgress::UnderWay(_) | DataVolumeProgress::WaitsForConsumer, .. }
        )
    }

    /// Whether waiting does not help, and the instance has failed.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::DataVolume { progress: DataVolumeProgress::GivenUp(_), .. })
    }

    /// Whether an importer is at work on it.
    #[must_use]
    pub fn is_being_filled(&self) -> bool {
        matches!(self, Self::DataVolume { progress: DataVolumeProgress::UnderWay(_), .. })
    }
}

/// The name of an instance's pod. It follows from the UID, so that there is never a second one, whatever a cache has.
#[must_use]
pub fn name(vmi: &VirtualMachineInstance) -> Option<String> {
    let (name, uid) = (vmi.metadata.name.as_deref()?, vmi.metadata.uid.as_deref()?);
    let digest: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    let room = LONGEST_NAME - "virt-launcher--".len() - digest.len();
    let kept: String = name.chars().take(room).collect();
    Some(format!("virt-launcher-{kept}-{digest}"))
}

/// How long a pod has from the order to go until it is killed, seconds.
fn grace_seconds(vmi: &VirtualMachineInstance) -> i64 {
    let of_guest = vmi.spec.termination_grace_period_seconds.unwrap_or(i64::from(GRACE_PERIOD_SECONDS));
    of_guest.saturating_add(EXTRA_GRACE_SECONDS).max(0)
}

/// How long the pod of an instance has from the order to go, seconds, if its guest was given more time since the pod was made.
#[must_use]
pub fn prolonged_grace_seconds(vmi: &VirtualMachineInstance, pod: &Pod) -> Option<i64> {
    let own = pod.spec.as_ref()?.termination_grace_period_seconds?;
    Some(grace_seconds(vmi)).filter(|seconds| *seconds > own)
}

/// Makes the pod.
///
/// # Errors
/// [`PodRefusal`], which is for the condition `Synchronized`.
pub fn launcher_pod(input: &PodInput<'_>) -> Result<Pod, PodRefusal> {
    // Admission refuses it first, but there are clusters whose webhooks are switched off.
    if let Some(fault) = fields::refused(&input.vmi.spec, Setting::Cluster).into_iter().next() {
        return Err(PodRefusal::NotInThisVersion(fault));
    }
    if let Some(fault) = judged_again(input).map_err(PodRefusal::Order)? {
        return Err(PodRefusal::NotAdmitted(fault));
    }
    let resources = resources(input)?;
    let mounted = volumes::mounted(input, &resources)?;
    let spec = &input.vmi.spec;
    let order = order::render(input, &mounted).map_err(PodRefusal::Order)?;
    let mut init_containers = container_disks::containers(input, &resources, &mounted.opened);
    init_containers.push(containers::launcher(input, &resources, &mounted));
    let account = projected::account(input.vmi).or(spec.service_account_name.as_deref());
    Ok(Pod {
        metadata: metadata::of(input, &resources, order),
        spec: Some(PodSpec {
            init_containers: Some(init_containers),
            containers: vec![containers::compute(input, &resources)],
            volumes: Some(mounted.volumes),
            image_pull_secrets: Some(volumes::pull_secrets(input.vmi)).filter(|all| !all.is_empty()),
            restart_policy: Some("Never".to_owned()),
            termination_grace_period_seconds: Some(grace_seconds(input.vmi)),
            security_context: Some(security()),
            readiness_gates: Some(vec![PodReadinessGate { condition_type: UNPAUSED.to_owned() }]),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            node_selector: Some(nodes::selector(input)),
            affinity: nodes::affinity(spec),
            tolerations: Some(spec.tolerations.clone()).filter(|all| !all.is_empty()),
            topology_spread_constraints: Some(spec.topology_spread_constraints.clone()).filter(|all| !all.is_empty()),
            scheduler_name: spec.scheduler_name.clone(),
            priority_class_name: spec.priority_class_name.clone(),
            service_account_name: account.map(str::to_owned),
            hostname: non_empty(&spec.hostname).map(str::to_owned).or_else(|| metadata::hostname(input.vmi)),
            subdomain: non_empty(&spec.subdomain).map(str::to_owned),
            dns_policy: spec.dns_policy.clone(),
            dns_config: spec.dns_config.clone(),
            ..PodSpec::default()
        }),
        status: None,
    })
}

/// What admission has against the specification by the settings of now. Time has passed since it was admitted, in which gates
/// may have been closed, and an instance may have been stored while no webhook was asked. Its metadata are left: labels of ours
/// may be there by now.
fn judged_again(input: &PodInput<'_>) -> Result<Option<Fault>, serde_json::Error> {
    let written = serde_json::to_value(VirtualMachineInstance { status: None, ..input.vmi.clone() })?;
    let mut faults = review(&written, input.config).faults.into_iter();
    Ok(faults.find(|fault| fault.path.as_str().starts_with("spec")))
}

/// The host that a pod's resources are planned for: QEMU is that of the launcher's image, and there are pages of the usual sizes.
static HOST: LazyLock<HostFacts> = LazyLock::new(|| HostFacts {
    hugepages: [2 << 20, 1 << 30].map(plenty_of).to_vec(),
    ..HostFacts::launcher_image()
});

const fn plenty_of(page_bytes: u64) -> HugepagePool {
    HugepagePool { page_bytes, total: u64::MAX, free: u64::MAX }
}

/// [`HOST`], with whatever pages the guest may request: which node has them, and whether one has, is for the scheduler.
fn host(vmi: &VirtualMachineInstance) -> Cow<'static, HostFacts> {
    let hugepages = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.hugepages.as_ref());
    let size = hugepages.and_then(|hugepages| hugepages.page_size.as_ref()?.parse::<Quantity>().ok()?.to_bytes());
    match size {
        Some(page_bytes) if HOST.hugepages.iter().all(|pool| pool.page_bytes != page_bytes) => {
            Cow::Owned(HostFacts { hugepages: vec![plenty_of(page_bytes)], ..HostFacts::clone(&HOST) })
        }
        Some(_) | None => Cow::Borrowed(&*HOST),
    }
}

/// The resources that the plan decides.
fn resources(input: &PodInput<'_>) -> Result<Resources, PodRefusal> {
    let accelerator = if input.is_emulated() { AcceleratorChoice::Tcg } else { AcceleratorChoice::Kvm };
    let shares = Shares {
        cpu_allocation_ratio: input.config.cpu_allocation_ratio,
        memory_overcommit_percent: input.config.memory_overcommit_percent,
        overhead_permille: input.config.overhead_permille,
    };
    let options = PlanOptions { accelerator, shares, ..PlanOptions::default() };
    Ok(plan(input.vmi, &host(input.vmi), &options, None)?.resources)
}

fn security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_user: Some(i64::from(RUNTIME_USER)),
        run_as_group: Some(i64::from(RUNTIME_USER)),
        run_as_non_root: Some(true),
        fs_group: Some(i64::from(RUNTIME_USER)),
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

#[cfg(test)]
mod tests;
