//! The answers: objects are read afresh, something is decided, and it is applied.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use garboard_api::metadata::annotation;
use garboard_api::{VirtualMachine, VirtualMachineInstance};
use garboard_log::otlp;
use garboard_subresources::options::{self, LONGEST_BODY, RestartOptions, StartOptions, StopOptions};
use garboard_subresources::power::{self, Change, Machine, Part};
use garboard_subresources::qmp::Command;
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::{Call, Endpoint, Method, endpoint};
use garboard_subresources::routes::Action;
use garboard_subresources::{discovery, expand, guestfs, open_api, version};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use super::server::Serving;
use super::{evacuation, forward, guest, instance, not_here, qmp, record, refused, screenshot, stream};
use crate::context::FIELD_MANAGER;
use crate::nodes::control::Requester;
use crate::pod;
use crate::sizes;

/// The API server's answer to a JSON patch whose `test` fails (`k8s.io/apimachinery/pkg/api/errors`, status 422).
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

/// HTTP's status for a change that a webhook refuses, and for a JSON patch that does not apply.
const INVALID: u16 = 422;

/// How often a change is tried again whose object was changed after it was read.
const ATTEMPTS: usize = 3;

/// Answers what was admitted.
pub(super) async fn answer(State(serving): State<Serving>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let (method, path) = (head.method.clone(), head.uri.path().to_owned());
    let endpoint = match endpoint(method.as_str(), &path) {
        Ok(Endpoint::Call(call)) => {
            let answered = match axum::body::to_bytes(body, LONGEST_BODY).await {
                Ok(body) => called(&serving, &call, head, &body).await,
                Err(_) => Err(Refusal::TooLarge(LONGEST_BODY)),
            };
            let response = answered.unwrap_or_else(|refusal| refused(&refusal, Some(&call)));
            tracing::debug!(%method, path, status = response.status().as_u16(), "request answered");
            return response;
        }
        Ok(endpoint) => endpoint,
        Err(_) => return refused(&Refusal::NoSuchPath, None),
    };
    let document = match endpoint {
        Endpoint::Root => discovery::root(),
        Endpoint::Groups => discovery::groups(),
        Endpoint::Group(group) => discovery::group(group),
        Endpoint::Resources(group, version) => discovery::resources(group, version),
        Endpoint::Version => version::info(&serving.context.build()),
        Endpoint::OpenApi2 => open_api::v2(serving.context.version),
        Endpoint::OpenApi3 => open_api::v3(),
        Endpoint::OpenApi3Of(group, version) => open_api::v3_of(group, version, serving.context.version),
        Endpoint::Health => return serving.health.answer().await,
        Endpoint::Profiler(what) => return (StatusCode::FORBIDDEN, what.switched_off()).into_response(),
        Endpoint::Guestfs => return libguestfs(&serving),
        Endpoint::Call(_) => return refused(&Refusal::NoSuchPath, None),
    };
    Json(document).into_response()
}

/// The image of libguestfs tools. KubeVirt's clients show a text, and of any other body of an error at this path nothing.
fn libguestfs(serving: &Serving) -> Response {
    let settings = serving.context.settings.borrow();
    match guestfs::info(settings.guestfs_image()) {
        Ok(info) => Json(info).into_response(),
        Err(message) => (StatusCode::NOT_IMPLEMENTED, message).into_response(),
    }
}

async fn called(serving: &Serving, call: &Call<'_>, head: Parts, body: &Bytes) -> Result<Response, Refusal> {
    let by = head.extensions.get::<Requester>().cloned().unwrap_or_default();
    let is_power = matches!(call.route.action, Action::Start | Action::Stop);
    let is_change_by_get = is_power && call.route.method == Method::Get;
    if is_change_by_get && head.uri.query().is_some_and(|query| !query.is_empty()) {
        let message = "a start or stop by GET has no parameters; its options are those of PUT in v1, in the body";
        return Err(Refusal::BadRequest(message.to_owned()));
    }
    match call.route.action {
        Action::Start => {
            let options: StartOptions = options::read(body)?;
            let dry_run = options::is_dry_run(options.dry_run.as_ref())?;
            power(serving, call, &by, dry_run, |machine| power::start(machine, &options)).await
        }
        Action::Stop => {
            let options: StopOptions = options::read(body)?;
            let dry_run = options::is_dry_run(options.dry_run.as_ref())?;
            power(serving, call, &by, dry_run, |machine| power::stop(machine, &options)).await
        }
        Action::Restart => {
            let options: RestartOptions = options::read(body)?;
            let dry_run = options::is_dry_run(options.dry_run.as_ref())?;
            power(serving, call, &by, dry_run, |machine| power::restart(machine, &options)).await
        }
        Action::ExpandSpec => {
            let vm = machine(serving, call).await?;
            expanded(serving, vm, Refusal::Internal).await
        }
        Action::ExpandVmSpec => {
            let vm = expand::carried(call.namespace, body)?;
            expanded(serving, vm, Refusal::BadRequest).await
        }
        Action::Ask(question) => instance::change(serving, call, &by, question, body).await,
        Action::Read(what) => guest::read(serving, call, &by, what).await,
        Action::Screenshot => screenshot::take(serving, call, &by, head.uri.query()).await,
        Action::Open(which) => stream::open(serving, call, &by, which, head).await,
        Action::Qmp(level) => qmp::session(serving, call, &by, level, head).await,
        Action::QmpCommand(level) => {
            let command = Command::read(call, head.uri.query(), body)?;
            qmp::command(serving, call, &by, level, command).await
        }
        Action::Show(shown) => record::show(serving, call, &by, shown).await,
        Action::Forward => forward::open(serving, call, &by.user, head).await,
        Action::CancelEvacuation => evacuation::cancel(serving, call, body).await,
        Action::Refuse(what) => Err(not_here::refusal(serving, call, what).await),
    }
}

/// A machine with what it names written out; `refusal` makes the answer for what does not exist or fit.
async fn expanded(
    serving: &Serving,
    mut vm: VirtualMachine,
    refusal: fn(String) -> Refusal,
) -> Result<Response, Refusal> {
    let (client, config) = (&serving.context.client, serving.context.settings.borrow().config.clone());
    sizes::infer(client, &mut vm).await.map_err(internal)?.map_err(|fault| refusal(fault.to_string()))?;
    let (sizing, _) = sizes::find(client, &vm).await.map_err(internal)?;
    Ok(Json(expand::expanded(&vm, &sizing, &config, refusal)?).into_response())
}

/// A request to start or stop a machine.
struct PowerRequest<'a> {
    serving: &'a Serving,
    call: &'a Call<'a>,
    by: &'a Requester,
    dry_run: bool,
}

async fn power(
    serving: &Serving,
    call: &Call<'_>,
    by: &Requester,
    dry_run: bool,
    decide: impl Fn(&Machine<'_>) -> Result<Change, Refusal>,
) -> Result<Response, Refusal> {
    let instances: Api<VirtualMachineInstance> = Api::namespaced(serving.context.client.clone(), call.namespace);
    let request = PowerRequest { serving, call, by, dry_run };
    let mut attempts = 0..ATTEMPTS;
    loop {
        let vm = machine(serving, call).await?;
        let vmi = instances.get_opt(call.name).await.map_err(internal)?;
        let change = decide(&Machine { vm: &vm, vmi: vmi.as_ref() })?;
        let change = Change { patch: change.patch.map(|patch| traced(patch, &vm)), ..change };
        if let (Some(longer), Some(vmi), false) = (&change.longer, &vmi, dry_run) {
            instance::prolong(serving, vmi, by, longer.seconds).await?;
        }
        match apply(&request, &change, vmi.as_ref()).await {
            // Another writer was faster, most often the controller: it is decided anew, on what is there now.
            Err(Refusal::Conflict(_)) if attempts.next().is_some() => {}
            Err(refusal) => return Err(refusal),
            Ok(()) => {
                tracing::info!(dry_run, end_within_s = change.end_within, "machine change written");
                return Ok(StatusCode::ACCEPTED.into_response());
            }
        }
    }
}

/// A change of a machine's specification, with the trace of the request for it. A JSON patch adds an annotation only where there are some.
fn traced((part, mut patch): (Part, Value), vm: &VirtualMachine) -> (Part, Value) {
    let has_annotations = vm.metadata.annotations.as_ref().is_some_and(|all| !all.is_empty());
    let trace = otlp::annotation(&tracing::Span::current()).filter(|_| part == Part::Spec && has_annotations);
    if let (Some(trace), Value::Array(operations)) = (trace, &mut patch) {
        let path = format!("/metadata/annotations/{}", annotation::TRACE.replace('/', "~1"));
        operations.push(json!({ "op": "add", "path": path, "value": trace }));
    }
    (part, patch)
}

pub(super) async fn machine(serving: &Serving, call: &Call<'_>) -> Result<VirtualMachine, Refusal> {
    let machines: Api<VirtualMachine> = Api::namespaced(serving.context.client.clone(), call.namespace);
    machines.get_opt(call.name).await.map_err(internal)?.ok_or(Refusal::NotFound)
}

async fn apply(
    request: &PowerRequest<'_>,
    change: &Change,
    vmi: Option<&VirtualMachineInstance>,
) -> Result<(), Refusal> {
    let PowerRequest { serving, call, dry_run, .. } = *request;
    // Before the stop: from then on the controller deletes the pod, with the time that it finds there.
    if let Some(longer) = &change.longer {
        write_time(request, json_patch(longer.instance_patch.clone())?).await.map_err(conflict)?;
    }
    if let Some((part, patch)) = &change.patch {
        let machines: Api<VirtualMachine> = Api::namespaced(serving.context.client.clone(), call.namespace);
        let (patch, params) = (json_patch(patch.clone())?, patch_params(dry_run));
        let patched = match part {
            Part::Spec => machines.patch(call.name, &params, &patch).await,
            Part::Status => machines.patch_status(call.name, &params, &patch).await,
        };
        patched.map_err(conflict)?;
    }
    if let (Some(seconds), Some(vmi)) = (change.end_within, vmi) {
        end_within(request, vmi, seconds).await?;
    }
    // Last: a stop that was refused, or did not reach the guest, leaves the time as it is, and may be asked for again.
    if let Some(patch) = &change.instance_patch {
        match write_time(request, json_patch(patch.clone())?).await {
            // A controller of an earlier version may answer the webhook. The pod is ended at the shorter time all the same.
            Err(kube::Error::Api(status)) if status.code == INVALID && !status.message.contains(TEST_FAILED) => {
                tracing::warn!(error = %status.message, "the shorter time was not written into the instance");
            }
            outcome => outcome.map_err(conflict)?,
        }
    }
    Ok(())
}

/// Gives the guest of an instance so many seconds: deletes its pod with them, or, where that is being deleted already, has its supervisor
/// see to it. An API server shortens the time of such a pod, and its kubelet goes on as it began.
async fn end_within(request: &PowerRequest<'_>, vmi: &VirtualMachineInstance, seconds: i64) -> Result<(), Refusal> {
    let PowerRequest { serving, call, by, dry_run } = *request;
    let Some(name) = pod::name(vmi) else { return Ok(()) };
    let pods: Api<Pod> = Api::namespaced(serving.context.client.clone(), call.namespace);
    let mut attempts = 0..ATTEMPTS;
    loop {
        let Some(pod) = pods.get_opt(&name).await.map_err(internal)? else { return Ok(()) };
        let is_ending = pod.metadata.deletion_timestamp.is_some();
        // As it was looked at: the controller may begin its deletion meanwhile, with more time.
        let resource_version = pod.metadata.resource_version.filter(|_| !is_ending);
        let params = DeleteParams {
            dry_run,
            grace_period_seconds: u32::try_from(seconds).ok(),
            preconditions: Some(Preconditions { uid: pod.metadata.uid, resource_version }),
            ..DeleteParams::default()
        };
        match pods.delete(&name, &params).await {
            Ok(_) if is_ending && !dry_run => {
                return instance::hasten(serving, vmi, by, u64::try_from(seconds).unwrap_or(0)).await;
            }
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() && attempts.next().is_some() => {}
            Err(error) => return Err(conflict(error)),
        }
    }
}

/// Writes the time of a stop into the instance. In one that is gone there is nothing to stop.
async fn write_time(request: &PowerRequest<'_>, patch: Patch<()>) -> kube::Result<()> {
    let PowerRequest { serving, call, dry_run, .. } = *request;
    let instances: Api<VirtualMachineInstance> = Api::namespaced(serving.context.client.clone(), call.namespace);
    match instances.patch(call.name, &patch_params(dry_run), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// A decided JSON patch, as the API server is sent it.
pub(super) fn json_patch(patch: Value) -> Result<Patch<()>, Refusal> {
    serde_json::from_value(patch).map(Patch::Json).map_err(|error| Refusal::Internal(error.to_string()))
}

/// The parameters of a patch: it is the controller's, and a dry run stores nothing.
pub(super) fn patch_params(dry_run: bool) -> PatchParams {
    PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

pub(super) fn internal(error: kube::Error) -> Refusal {
    Refusal::Internal(error.to_string())
}

/// A machine that changed after it was read is a conflict; anything else that the API server refuses is an error.
pub(super) fn conflict(error: kube::Error) -> Refusal {
    let kube::Error::Api(status) = &error else { return internal(error) };
    if status.is_not_found() {
        Refusal::NotFound
    } else if status.is_conflict() || status.message.contains(TEST_FAILED) {
        Refusal::Conflict(status.message.clone())
    } else {
        internal(error)
    }
}
