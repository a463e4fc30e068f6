//! The types of bodies and answers. Pure.

use serde_json::{Map, Value, json};

pub(super) const START_OPTIONS: &str = "v1.StartOptions";
pub(super) const STOP_OPTIONS: &str = "v1.StopOptions";
pub(super) const RESTART_OPTIONS: &str = "v1.RestartOptions";
pub(super) const PAUSE_OPTIONS: &str = "v1.PauseOptions";
pub(super) const UNPAUSE_OPTIONS: &str = "v1.UnpauseOptions";
pub(super) const FREEZE_TIMEOUT: &str = "v1.FreezeUnfreezeTimeout";
pub(super) const EVACUATE_CANCEL_OPTIONS: &str = "v1.EvacuateCancelOptions";
pub(super) const VIRTUAL_MACHINE: &str = "v1.VirtualMachine";
pub(super) const GUEST_AGENT_INFO: &str = "v1.VirtualMachineInstanceGuestAgentInfo";
pub(super) const USER_LIST: &str = "v1.VirtualMachineInstanceGuestOSUserList";
pub(super) const FILE_SYSTEM_LIST: &str = "v1.VirtualMachineInstanceFileSystemList";
/// The arguments of a command of QMP.
pub(super) const QMP_ARGUMENTS: &str = "dev.garboard.v1.QmpArguments";
/// Its reply.
pub(super) const QMP_REPLY: &str = "dev.garboard.v1.QmpReply";
/// The plan of a machine, or a part of what it was made from.
pub(super) const PLAN: &str = "dev.garboard.v1.Plan";
const GUEST_OS: &str = "v1.VirtualMachineInstanceGuestOSInfo";
const COMMAND: &str = "v1.GuestAgentCommandInfo";
const USER: &str = "v1.VirtualMachineInstanceGuestOSUser";
const FILE_SYSTEM: &str = "v1.VirtualMachineInstanceFileSystem";
const FILE_SYSTEMS: &str = "v1.VirtualMachineInstanceFileSystemInfo";
const FILE_SYSTEM_DISK: &str = "v1.VirtualMachineInstanceFileSystemDisk";
/// The name that KubeVirt has for Kubernetes' `Status`. An API server's own is another, and is not replaced by this one.
pub(super) const STATUS: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.Status";

/// Every type by its name; `at` is where types are in the document.
pub(super) fn all(at: &str) -> Map<String, Value> {
    let options = options().into_iter();
    let guest = guest(at).into_iter();
    let whole = [(VIRTUAL_MACHINE, virtual_machine()), (STATUS, status())];
    let types = options.chain(guest).chain(whole).chain(qmp()).chain([(PLAN, plan())]);
    types.map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn whole(description: &str) -> Value {
    json!({ "type": "integer", "format": "int64", "description": description })
}

fn object(description: &str, required: &[&str], properties: Value) -> Value {
    let mut schema = json!({ "type": "object", "description": description, "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Adds what every kind of Kubernetes has.
fn kind(mut schema: Value) -> Value {
    schema["properties"]["apiVersion"] = text("The version of the API.");
    schema["properties"]["kind"] = text("The kind.");
    schema
}

/// The bodies of requests: each has the fields of its structure in [`crate::options`].
fn options() -> [(&'static str, Value); 7] {
    let dry_run = json!({
        "type": "array", "items": { "type": "string" }, "description": "`All`: the request is judged, and nothing is done.",
    });
    let only_dry_run = |description| kind(object(description, &[], json!({ "dryRun": dry_run })));
    let paused = json!({ "type": "boolean", "description": "The guest's vCPUs stay stopped until `unpause`." });
    let start = json!({ "dryRun": dry_run, "paused": paused });
    let grace = whole("Seconds that the guest has to shut down, less or more than its own; 366 days at most.");
    let stop = json!({ "dryRun": dry_run, "gracePeriod": grace });
    let at_once = whole("0: the guest is ended at once. There is no other value.");
    let restart = json!({ "dryRun": dry_run, "gracePeriodSeconds": at_once });
    let node = text("The node that the instance was to leave when the caller looked.");
    let cancel = json!({ "dryRun": dry_run, "evacuationNodeName": node });
    let thaw = text("After how long file systems are thawed unasked, such as `5m0s`; `0s`: never.");
    [
        (START_OPTIONS, kind(object("Options of a start.", &[], start))),
        (STOP_OPTIONS, kind(object("Options of a stop.", &[], stop))),
        (RESTART_OPTIONS, kind(object("Options of a restart.", &[], restart))),
        (PAUSE_OPTIONS, only_dry_run("Options of a pause.")),
        (UNPAUSE_OPTIONS, only_dry_run("Options of the end of a pause.")),
        (EVACUATE_CANCEL_OPTIONS, kind(object("Options of a cancelled evacuation.", &[], cancel))),
        (FREEZE_TIMEOUT, object("Options of a freeze.", &[], json!({ "unfreezeTimeout": thaw }))),
    ]
}

/// A machine; its parts are in the document of `kubevirt.io/v1`.
fn virtual_machine() -> Value {
    let part = |description: &str| json!({ "type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true });
    let properties = json!({
        "metadata": part("ObjectMeta of Kubernetes."), "spec": part("VirtualMachineSpec of kubevirt.io/v1."),
        "status": part("VirtualMachineStatus of kubevirt.io/v1."),
    });
    kind(object("A VirtualMachine of kubevirt.io/v1.", &["spec"], properties))
}

/// A command of QMP: what it takes and what it gives is in the schema of the QEMU that is asked (`query-qmp-schema`).
fn qmp() -> [(&'static str, Value); 2] {
    let any = |description: &str| json!({ "description": description, "x-kubernetes-preserve-unknown-fields": true });
    let arguments = json!({
        "type": "object", "description": "The arguments of the command.", "x-kubernetes-preserve-unknown-fields": true,
    });
    let reply = object("What QEMU replied.", &["return"], json!({ "return": any("Its result.") }));
    [(QMP_ARGUMENTS, arguments), (QMP_REPLY, reply)]
}

/// A plan: its fields are those of the launcher's version.
fn plan() -> Value {
    let description = "What was executed for the machine, or what its planner was given.";
    json!({ "type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true })
}

/// What a guest agent reports.
fn guest(at: &str) -> [(&'static str, Value); 9] {
    let reference = |name: &str| json!({ "$ref": format!("{at}{name}") });
    let list = |name: &str| json!({ "type": "array", "items": reference(name) });
    let items = |description, name| {
        let properties = json!({ "metadata": { "type": "object" }, "items": list(name) });
        kind(object(description, &["items"], properties))
    };
    let info = json!({
        "guestAgentVersion": text("The version of the agent."), "supportedCommands": list(COMMAND),
        "hostname": text("The guest's name."), "os": reference(GUEST_OS), "timezone": text("Name and offset in seconds."),
        "userList": list(USER), "fsInfo": reference(FILE_SYSTEMS), "fsFreezeStatus": text("`frozen` or `thawed`."),
    });
    let seconds = json!({ "type": "number", "format": "double", "description": "Since 1970, seconds." });
    let user = json!({ "userName": text("The user."), "domain": text("Its domain."), "loginTime": seconds });
    let file_system = json!({
        "diskName": text("The name in the guest."), "mountPoint": text("Where it is."), "fileSystemType": text("Its type."),
        "usedBytes": whole("Bytes in use."), "totalBytes": whole("Bytes of it all."), "disk": list(FILE_SYSTEM_DISK),
    });
    let disk = json!({ "serial": text("The disk's serial number."), "busType": text("Its bus.") });
    let command = json!({ "name": text("The command."), "enabled": { "type": "boolean" } });
    let described = ["diskName", "mountPoint", "fileSystemType"];
    [
        (GUEST_AGENT_INFO, kind(object("What the guest agent reports.", &[], info))),
        (USER_LIST, items("Users who are logged in.", USER)),
        (FILE_SYSTEM_LIST, items("File systems that are mounted.", FILE_SYSTEM)),
        (GUEST_OS, object("The guest's system.", &[], guest_os())),
        (COMMAND, object("A command of the agent.", &["name"], command)),
        (USER, object("A user.", &["userName"], user)),
        (FILE_SYSTEM, object("A file system.", &described, file_system)),
        (FILE_SYSTEMS, object("File systems.", &["disks"], json!({ "disks": list(FILE_SYSTEM) }))),
        (FILE_SYSTEM_DISK, object("A disk of a file system.", &["busType"], disk)),
    ]
}

fn guest_os() -> Value {
    let names = ["name", "kernelRelease", "version", "prettyName", "versionId", "kernelVersion", "machine", "id"];
    names.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect::<Map<_, _>>().into()
}

fn status() -> Value {
    let cause =
        object("A fault.", &[], json!({ "field": text("Where."), "message": text("What."), "reason": text("Why.") }));
    let details = json!({
        "name": text("The object."), "group": text("Its group."), "kind": text("Its kind."), "uid": text("Its UID."),
        "causes": { "type": "array", "items": cause }, "retryAfterSeconds": whole("When to try again."),
    });
    let properties = json!({
        "metadata": { "type": "object" }, "status": text("`Failure`."), "message": text("For people."),
        "reason": text("For programs."), "code": whole("The status of HTTP."),
        "details": object("What it is about.", &[], details),
    });
    kind(object("Status of Kubernetes: why a request was not carried out.", &[], properties))
}
