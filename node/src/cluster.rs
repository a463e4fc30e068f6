//! The API server as far as the agent writes to it; everything is a patch under one name.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use garboard_api::v1::VirtualMachineInstance;
use garboard_cluster::names::NODE_MANAGER;
use garboard_cluster::report::InstanceEvent;
use garboard_cluster::report::condition::PodUpdate;
use garboard_protocol::record::{GROUP, KIND, PLURAL, VERSION};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::events::{Event, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::contain::contained;
use crate::pods::{self, LauncherPod};
use crate::policy::Answer;

/// Not of kubevirt.io, and never written.
const FORBIDDEN_LABEL: &str = "garboard.dev/may-not-be-written-by-the-agent";

/// How long the API server may take for one request. One that hangs is asked again, with what is newest then.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Another client wrote it meanwhile.
    #[error("the object was changed by another client in the meantime")]
    Conflict,
    /// It is not there any more.
    #[error("the object is not there any more")]
    Gone,
    /// The API server does not answer.
    #[error("the API server took longer than {} s", PATIENCE.as_secs())]
    Slow,
    /// The API server is away, or refuses.
    #[error("the request to the API server failed")]
    Failed(#[source] Box<kube::Error>),
}

impl ClusterError {
    /// Whether the same will be refused again: it is wrong, or not the agent's to write, or its namespace goes.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Gone => true,
            Self::Failed(error) => {
                matches!(&**error, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 413 | 422))
            }
            Self::Conflict | Self::Slow => false,
        }
    }
}

impl From<kube::Error> for ClusterError {
    fn from(error: kube::Error) -> Self {
        let code = if let kube::Error::Api(status) = &error { status.code } else { 0 };
        match code {
            404 => Self::Gone,
            409 => Self::Conflict,
            _ => Self::Failed(Box::new(error)),
        }
    }
}

/// What a node is marked with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMetadata {
    /// All its labels.
    pub labels: BTreeMap<String, String>,
    /// All its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What is written.
pub trait Cluster: Send + Sync + 'static {
    /// Gets a VMI.
    fn vmi(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<VirtualMachineInstance, ClusterError>> + Send;
    /// Patches a VMI.
    fn patch_vmi(
        &self,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> impl Future<Output = Result<VirtualMachineInstance, ClusterError>> + Send;
    /// Patches a VMI, also one that cannot be read.
    fn mark_vmi(
        &self,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// The launcher pods of a node, as they are now.
    fn pods_of(&self, node: &str) -> impl Future<Output = Result<Vec<LauncherPod>, ClusterError>> + Send;
    /// Writes conditions of a pod: its readiness gate, its launcher's first report.
    fn mark_pod(&self, pod: &LauncherPod, news: &PodUpdate) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Makes an object of the kind MachineRun.
    fn keep_run(&self, namespace: &str, run: Value) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Records what happened to the VMI of a pod.
    fn emit_event(
        &self,
        pod: &LauncherPod,
        event: &InstanceEvent,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
}

/// The real one.
#[derive(Clone)]
pub struct ApiServer {
    client: Client,
    recorder: Recorder,
}

impl ApiServer {
    /// As the agent of a node.
    #[must_use]
    pub fn new(client: Client, node: &str) -> Self {
        let reporter = Reporter { controller: NODE_MANAGER.to_owned(), instance: Some(node.to_owned()) };
        Self { recorder: Recorder::new(client.clone(), reporter), client }
    }

    /// Sets annotations of a node, and sets or removes labels; what it has then.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub async fn mark_node(
        &self,
        node: &str,
        labels: &BTreeMap<String, Option<String>>,
        annotations: &BTreeMap<String, String>,
    ) -> Result<NodeMetadata, ClusterError> {
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
        let nodes = Api::<Node>::all(self.client.clone());
        let answer = soon(nodes.patch_metadata(node, &parameters(), &Patch::Merge(patch))).await?;
        let (labels, annotations) = (answer.metadata.labels, answer.metadata.annotations);
        Ok(NodeMetadata { labels: labels.unwrap_or_default(), annotations: annotations.unwrap_or_default() })
    }

    /// Tries, as a dry run, to put a label on a node that is not the agent's to write.
    pub async fn try_what_is_forbidden(&self, node: &str) -> Answer {
        let patch = json!({"metadata": {"labels": {FORBIDDEN_LABEL: "true"}}});
        let parameters = PatchParams { dry_run: true, ..parameters() };
        Answer::of(Api::<Node>::all(self.client.clone()).patch_metadata(node, &parameters, &Patch::Merge(patch)).await)
    }

    /// The launcher pods of a node, as they are now.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub async fn launcher_pods(&self, node: &str) -> Result<Vec<LauncherPod>, ClusterError> {
        let (fields, labels) = pods::selectors(node);
        let wanted = ListParams::default().fields(&fields).labels(&labels);
        let listed = soon(Api::<Pod>::all(self.client.clone()).list(&wanted)).await?;
        let read = |pod| contained("a pod", || pods::launcher_pod(pod, node)).flatten();
        Ok(listed.items.iter().filter_map(read).collect())
    }

    fn vmis(&self, namespace: &str) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// The answer, if it comes in time.
async fn soon<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, ClusterError> {
    tokio::time::timeout(PATIENCE, answer).await.map_err(|_| ClusterError::Slow)?.map_err(ClusterError::from)
}

/// The kind of records of runs.
fn runs() -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: KIND.to_owned(),
        plural: PLURAL.to_owned(),
    }
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(NODE_MANAGER.to_owned()), ..PatchParams::default() }
}

impl Cluster for ApiServer {
    async fn vmi(&self, namespace: &str, name: &str) -> Result<VirtualMachineInstance, ClusterError> {
        soon(self.vmis(namespace).get(name)).await
    }

    async fn patch_vmi(
        &self,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<VirtualMachineInstance, ClusterError> {
        soon(self.vmis(namespace).patch(name, &parameters(), &Patch::Merge(patch))).await
    }

    async fn mark_vmi(&self, namespace: &str, name: &str, patch: Value) -> Result<(), ClusterError> {
        let vmis = self.vmis(namespace);
        soon(vmis.patch_metadata(name, &parameters(), &Patch::Merge(patch))).await.map(drop)
    }

    async fn pods_of(&self, node: &str) -> Result<Vec<LauncherPod>, ClusterError> {
        self.launcher_pods(node).await
    }

    async fn mark_pod(&self, pod: &LauncherPod, news: &PodUpdate) -> Result<(), ClusterError> {
        let conditions = news.conditions(jiff::Timestamp::now());
        // Strategic: each condition is merged into the others by its type. The UID keeps it off a namesake.
        let patch = json!({"metadata": {"uid": pod.uid.as_str()}, "status": {"conditions": conditions}});
        let pods = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace);
        soon(pods.patch_status(&pod.name, &parameters(), &Patch::Strategic(patch))).await.map(drop)
    }

    async fn keep_run(&self, namespace: &str, run: Value) -> Result<(), ClusterError> {
        let runs: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &runs());
        let object: DynamicObject = serde_json::from_value(run)
            .map_err(|error| ClusterError::Failed(Box::new(kube::Error::SerdeError(error))))?;
        let parameters = PostParams { field_manager: Some(NODE_MANAGER.to_owned()), ..PostParams::default() };
        soon(runs.create(&parameters, &object)).await.map(drop)
    }

    async fn emit_event(&self, pod: &LauncherPod, event: &InstanceEvent) -> Result<(), ClusterError> {
        let name = event.reason.name();
        debug_assert!(event.reason.is_of_event(), "{name}: Reason::is_of_event says that no event has it");
        let about = ObjectReference {
            api_version: Some(garboard_api::v1::API_VERSION.to_owned()),
            kind: Some("VirtualMachineInstance".to_owned()),
            name: Some(pod.vmi.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.vmi_uid.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: event.kind,
            reason: name.to_owned(),
            note: Some(event.note.clone()),
            action: name.to_owned(),
            secondary: None,
        };
        soon(self.recorder.publish(&event, &about)).await
    }
}
