//! The diagnosis of a machine.

use garboard_protocol::exit::EndReason;
use jiff::Timestamp;
use serde::Serialize;

use crate::exit;

/// The verdict's name, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DiagnosisVerdict {
    /// There is no such machine.
    NotFound,
    /// Its guest runs.
    Running,
    /// Its guest runs as it was before its machine was changed.
    RestartRequired,
    /// Its guest runs, and its pod is not ready.
    NotReady,
    /// It is not to run.
    Halted,
    /// Its run is over, as it was meant to be.
    RunOver,
    /// It is on its way.
    Starting,
    /// It is on its way out.
    Stopping,
    /// Its vCPUs were stopped on request.
    Paused,
    /// Its vCPUs were stopped because storage failed.
    StorageFailed,
    /// QEMU does not answer.
    Unresponsive,
    /// Its guest has no network until its next start.
    NetworkLost,
    /// KVM of its node interprets the code of its guest, which is very slow.
    Interpreted,
    /// No node has room.
    NoRoom,
    /// No node has the device, KVM most likely.
    NoDevice,
    /// No node is what it asks for.
    NoNodeMatches,
    /// Nodes do not take it because of their taints.
    Tainted,
    /// No node takes machines at all.
    NoSchedulableNode,
    /// No node can take it for another reason.
    Unschedulable,
    /// An image cannot be had.
    ImagePull,
    /// A container cannot be made.
    ContainerRefused,
    /// The network of its pod cannot be made.
    PodNetwork,
    /// The kubelet of its node does not take its pod.
    PodRejected,
    /// A volume cannot be mounted.
    VolumeMount,
    /// A claim does not exist.
    ClaimMissing,
    /// A claim has no volume.
    ClaimUnbound,
    /// The volume of a claim is on, or in use by, another node or pod.
    ClaimElsewhere,
    /// A DataVolume is not filled.
    DataVolume,
    /// A field is not supported.
    FieldRefused,
    /// The namespace's Pod Security refuses the pod.
    PodSecurity,
    /// The namespace's quota is used up.
    QuotaExceeded,
    /// Something else refuses the pod.
    PodRefused,
    /// A webhook that the API server asks first does not answer.
    WebhookDown,
    /// The API server refuses the instance.
    InstanceRefused,
    /// A set or a pool could not create, change, delete or adopt one of its instances or machines.
    ReplicaFailure,
    /// Two presets that select the instance contradict each other.
    PresetConflict,
    /// Its instancetype or preference is not there, or does not go with it.
    Instancetype,
    /// It failed to start and is tried again later.
    BackOff,
    /// The kernel killed QEMU for its memory.
    OutOfMemory,
    /// QEMU was killed.
    QemuKilled,
    /// QEMU crashed.
    QemuCrashed,
    /// QEMU gave up.
    QemuFailed,
    /// The guest's kernel panicked.
    GuestPanic,
    /// Its start failed before QEMU ran.
    NotStarted,
    /// Its run ended badly in another way.
    RunFailed,
    /// The kubelet ended its pod, or the cluster had it leave its node.
    Evicted,
    /// Its node does not answer.
    NodeNotReady,
    /// Its node has no agent, or no controller reaches it.
    AgentDown,
    /// No controller acts on machines.
    ControllerDown,
    /// It does not go away.
    DeletionStuck,
    /// None of these.
    Unknown,
}

impl DiagnosisVerdict {
    /// What a run comes to that ended badly for this cause.
    pub fn of_bad_end(cause: EndReason) -> Self {
        match cause {
            EndReason::OutOfMemory => Self::OutOfMemory,
            EndReason::QemuKilled | EndReason::MachineKilled => Self::QemuKilled,
            EndReason::QemuCrashed => Self::QemuCrashed,
            EndReason::QemuFailed => Self::QemuFailed,
            EndReason::GuestPanic => Self::GuestPanic,
            EndReason::NotStarted => Self::NotStarted,
            EndReason::Watchdog
            | EndReason::GracePeriodExceeded
            | EndReason::GuestShutdown
            | EndReason::GuestReboot
            | EndReason::StoppedGracefully
            | EndReason::ForceStopped
            | EndReason::Unknown => Self::RunFailed,
        }
    }
}

/// Whether a person has to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// It is as it is meant to be.
    Well,
    /// It will change by itself.
    Waiting,
    /// It will not become well by itself.
    Wrong,
}

/// Something that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// `KIND/NAME`.
    pub object: String,
    /// Where in it.
    pub field: String,
    /// Its value.
    pub value: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// One thing that is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it comes to.
    pub verdict: DiagnosisVerdict,
    /// Whether a person has to do something.
    pub health: Health,
    /// Since when it is so.
    pub since: Option<Timestamp>,
    /// Why, without a full stop.
    pub cause: String,
    /// What shows it.
    pub evidence: Vec<Evidence>,
    /// Commands, or what a person does.
    pub next: Vec<String>,
}

impl Finding {
    /// A person has to do something.
    pub fn wrong(verdict: DiagnosisVerdict, cause: impl Into<String>) -> Self {
        Self {
            verdict,
            health: Health::Wrong,
            since: None,
            cause: cause.into(),
            evidence: Vec::new(),
            next: Vec::new(),
        }
    }

    /// It will change by itself.
    pub fn waiting(verdict: DiagnosisVerdict, cause: impl Into<String>) -> Self {
        Self { health: Health::Waiting, ..Self::wrong(verdict, cause) }
    }

    /// It is as it is meant to be.
    pub fn well(verdict: DiagnosisVerdict, cause: impl Into<String>) -> Self {
        Self { health: Health::Well, ..Self::wrong(verdict, cause) }
    }

    /// Since when.
    pub fn since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }

    /// What shows it.
    pub fn shown_by(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }

    /// What to do.
    pub fn then(mut self, next: impl Into<String>) -> Self {
        self.next.push(next.into());
        self
    }
}

/// Shorthand for a piece of evidence.
pub fn seen(
    object: impl Into<String>,
    field: impl Into<String>,
    value: impl Into<String>,
    since: Option<Timestamp>,
) -> Evidence {
    Evidence { object: object.into(), field: field.into(), value: value.into(), since }
}

/// How a machine is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// `NAMESPACE/NAME`; of a set or a pool `NAMESPACE/KIND/NAME`.
    pub machine: String,
    /// KubeVirt's state, of the machine or else its instance; of a set or a pool how many are ready.
    pub state: String,
    /// What it comes to.
    pub verdict: DiagnosisVerdict,
    /// Whether an operator has to act.
    pub health: Health,
    /// Since when it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why, for a person.
    pub cause: String,
    /// Where it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What shows it.
    pub evidence: Vec<Evidence>,
    /// What to do, most useful first.
    pub next: Vec<String>,
    /// What else is so, a message each.
    pub also: Vec<String>,
    /// What could not be looked at.
    pub unseen: Vec<String>,
}

impl Diagnosis {
    /// The exit code of `why`; `judged` is `--exit-code`. A machine that is not there has one of its own in any case.
    pub fn exit_code(&self, judged: bool) -> u8 {
        match (self.verdict, judged, self.health) {
            (DiagnosisVerdict::NotFound, ..) => exit::NOT_FOUND,
            (_, false, _) | (_, true, Health::Well) => exit::OK,
            (_, true, Health::Waiting) => exit::WAITING,
            (_, true, Health::Wrong) => exit::UNHEALTHY,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_names_every_verdict() {
        let source = include_str!("diagnosis.rs");
        let body = source.split_once("pub enum DiagnosisVerdict {").unwrap().1.split_once("\n}").unwrap().0;
        let variants = body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("///"));
        let document = include_str!("../../../../docs/kubectl.md");
        let mut count = 0;
        for variant in variants.map(|line| line.trim_end_matches(',')) {
            let (first, rest) = variant.split_at(1);
            let verdict = format!("`{}{rest}`", first.to_lowercase());
            assert!(document.contains(&verdict), "docs/kubectl.md has no verdict {verdict}");
            count += 1;
        }
        assert!(count > 30, "{count} verdicts");
    }
}
