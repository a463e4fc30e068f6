//! Evictions of launcher pods: looking at pod and instance, and marking the instance where another controller is to see to it.

pub mod decide;

use std::time::Duration;

use garboard_api::VirtualMachineInstance;
use garboard_api::metadata::label;
use garboard_protocol::causes::ErrorChain;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::core::admission::AdmissionResponse;
use kube::{Api, Resource};
use serde_json::json;

use self::decide::{EvictionVerdict, decide};
use super::{Request, answer};
use crate::context::{Context, FIELD_MANAGER, ReconcileError, while_trying};
use crate::stores::{Cached, Instances};

/// HTTP's status for "ask again later"; clients that drain a node do.
const TOO_MANY_REQUESTS: u16 = 429;

/// How long an eviction may be judged. What answers later than the webhook's own deadline is an eviction that is allowed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers a request of `/evict`.
pub(super) async fn evict(context: &Context, request: &Request) -> AdmissionResponse {
    let response = AdmissionResponse::from(request);
    match in_time(judge(context, request)).await {
        EvictionVerdict::Allowed => response,
        EvictionVerdict::Refused { message, .. } => {
            let status = Status::failure(&message, "TooManyRequests").with_code(TOO_MANY_REQUESTS);
            answer::denied(response, status)
        }
    }
}

/// The verdict. Where there is none in time it is not known whether there is a guest to be kept: the eviction waits.
async fn in_time(judging: impl Future<Output = Result<EvictionVerdict, ReconcileError>>) -> EvictionVerdict {
    let why = match tokio::time::timeout(PATIENCE, judging).await {
        Ok(Ok(verdict)) => return verdict,
        Ok(Err(error)) => ErrorChain(&error).to_string(),
        Err(_) => "the API server does not answer in time".to_owned(),
    };
    EvictionVerdict::Refused { message: format!("the eviction cannot be judged now: {why}"), evacuate: None }
}

async fn judge(context: &Context, request: &Request) -> Result<EvictionVerdict, ReconcileError> {
    let namespace = request.namespace.as_deref().ok_or(ReconcileError::Incomplete { what: "a namespace" })?;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let pod = pods.get_opt(&request.name).await.map_err(while_trying("get the launcher pod"))?;
    let Some((pod, (name, uid))) = pod.and_then(|pod| owner(&pod).map(|owner| (pod, owner))) else {
        return Ok(EvictionVerdict::Allowed);
    };
    let instances: Api<Cached<Instances>> = Api::namespaced(context.client.clone(), namespace);
    let kept = instances.get_opt(&name).await.map_err(while_trying("get the VirtualMachineInstance"))?;
    let kept = kept.filter(|kept| kept.meta().uid.as_ref() == Some(&uid));
    let vmi = match kept.as_ref().map(|kept| kept.read().or_else(|problem| essentials(kept).ok_or(problem))).transpose()
    {
        Ok(vmi) => vmi,
        // Whether its guest may be powered down is not known.
        Err(problem) => {
            let message = format!("VMI \"{namespace}/{name}\": {problem}; correct the object, or delete it");
            return Ok(EvictionVerdict::Refused { message, evacuate: None });
        }
    };
    let usual = context.settings.borrow().config.eviction_strategy.clone();
    let verdict = decide(&pod, vmi.as_ref(), &usual);
    if let EvictionVerdict::Refused { evacuate: Some(node), .. } = &verdict
        && !is_dry_run(request)
    {
        mark(&instances, &name, &uid, node).await?;
    }
    Ok(verdict)
}

/// Of an instance that cannot be read as a whole as much as the answer depends on, if that can be: a drain does not wait for
/// what has nothing to do with it.
fn essentials(kept: &Cached<Instances>) -> Option<VirtualMachineInstance> {
    let raw = kept.raw();
    let spec = json!({"evictionStrategy": raw["spec"]["evictionStrategy"], "domain": {"devices": {}}});
    let status = json!({"phase": raw["status"]["phase"], "evacuationNodeName": raw["status"]["evacuationNodeName"]});
    serde_json::from_value(json!({"metadata": raw["metadata"], "spec": spec, "status": status})).ok()
}

/// Name and UID of the instance that a launcher pod was made for.
fn owner(pod: &Pod) -> Option<(String, String)> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(label::COMPONENT).filter(|component| *component == "virt-launcher")?;
    let owners = pod.metadata.owner_references.iter().flatten();
    let owner =
        owners.into_iter().find(|owner| owner.controller == Some(true) && owner.kind == "VirtualMachineInstance")?;
    Some((owner.name.clone(), owner.uid.clone()))
}

/// An eviction may have it in its own options as well.
fn is_dry_run(request: &Request) -> bool {
    let options = request.object.as_ref().map(|eviction| &eviction.data["deleteOptions"]["dryRun"]);
    request.dry_run || options.and_then(|dry_run| dry_run.as_array()).is_some_and(|stages| !stages.is_empty())
}

/// Asks whichever controller looks after such instances to take this one away from its node.
async fn mark(instances: &Api<Cached<Instances>>, name: &str, uid: &str, node: &str) -> Result<(), ReconcileError> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = json!({ "metadata": { "uid": uid }, "status": { "evacuationNodeName": node } });
    match instances.patch(name, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(while_trying("ask the VirtualMachineInstance to leave its node")(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use garboard_api::cluster::Emulation;
    use kube::client::Body;
    use kube::core::DynamicObject;
    use kube::core::admission::AdmissionReview;
    use serde_json::Value;

    use super::*;
    use crate::settings::{Defaults, Settings};

    /// What the eviction of an instance's pod is answered, code and message, and how often the instance was written.
    async fn answer(vmi: Value) -> (bool, u16, String, usize) {
        let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "u",
            "controller": true});
        let metadata = json!({"name": "pod", "labels": {"kubevirt.io": "virt-launcher"}, "ownerReferences": [owner]});
        let pod =
            json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}});
        let written = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&written);
        let serve = move |request: http::Request<Body>| {
            *counted.lock().unwrap() += usize::from(request.method() == http::Method::PATCH);
            let object = if request.uri().path().contains("/pods/") { &pod } else { &vmi };
            std::future::ready(Ok::<_, tower::BoxError>(http::Response::new(Body::from(
                object.to_string().into_bytes(),
            ))))
        };
        let client = kube::Client::new(tower::service_fn(serve), "ns");
        let defaults = Defaults { emulation: Emulation::Refused, image_pull_policy: "Never".to_owned() };
        let (_keeps, settings) = tokio::sync::watch::channel(Settings::of([], "garboard", &defaults));
        let (context, _no_events) = Context::new(client, "launcher:1".to_owned(), settings, "garboard".to_owned(), "1");
        let response = evict(&context, &eviction()).await;
        let written = *written.lock().unwrap();
        (response.allowed, response.result.code, response.result.message, written)
    }

    fn eviction() -> Request {
        let review: AdmissionReview<DynamicObject> = serde_json::from_value(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "eviction",
                "name": "pod", "namespace": "ns", "operation": "CREATE", "userInfo": {"username": "me"},
                "object": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "pod"}}, "dryRun": false,
            },
        }))
        .unwrap();
        review.try_into().unwrap()
    }

    fn unreadable(strategy: Value) -> Value {
        json!({
            "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
            "spec": {"evictionStrategy": strategy, "domain": {"memory": {"guest": "1e1.5"}, "devices": {}}},
            "status": {"phase": "Running"},
        })
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_judged_by_its_strategy() {
        let (allowed, ..) = answer(unreadable(json!("None"))).await;
        assert!(allowed, "a drain does not wait for a field that it does not depend on");
        let (allowed, code, message, written) = answer(unreadable(json!("LiveMigrate"))).await;
        assert_eq!((allowed, code, written), (false, TOO_MANY_REQUESTS, 0));
        assert!(message.starts_with("VMI \"ns/vm\" has the evictionStrategy LiveMigrate"), "{message}");
        let (allowed, _, message, written) = answer(unreadable(json!("External"))).await;
        assert_eq!((allowed, written), (false, 1), "{message}");
        assert_eq!(message, "Eviction triggered evacuation of VMI \"ns/vm\"");
    }

    #[tokio::test]
    async fn without_a_strategy_that_can_be_read_the_guest_is_kept() {
        let (allowed, code, message, _) = answer(unreadable(json!(5))).await;
        assert_eq!((allowed, code), (false, TOO_MANY_REQUESTS));
        assert!(message.starts_with("VMI \"ns/vm\": the VirtualMachineInstance cannot be read: spec."), "{message}");
        assert!(message.ends_with("; correct the object, or delete it"), "{message}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_eviction_waits_for_an_api_server_that_does_not_answer() {
        let EvictionVerdict::Refused { message, evacuate: None } = in_time(std::future::pending()).await else {
            panic!("allowed");
        };
        assert!(message.contains("does not answer in time"), "{message}");
    }
}
