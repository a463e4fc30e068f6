//! What a guest agent reports, in KubeVirt's shapes (`staging/src/kubevirt.io/api/core/v1/types.go`). All of it is the guest's
//! claim; its launcher has escaped and bounded it.

use axum::Json;
use axum::response::{IntoResponse, Response};
use garboard_protocol::control::{ControlReply, ControlRequest};
use garboard_protocol::guest::{GuestFileSystem, GuestReport, GuestSubject, GuestUser};
use garboard_protocol::text::printable;
use garboard_subresources::instance;
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::Reading;
use serde_json::{Value, json};

use super::instance::{LONGEST_REASON, instance as get_instance, place, unanswered, unexpected};
use super::server::Serving;
use crate::nodes::control::{Requester, ask};

/// The version of the kinds below.
const VERSION: &str = "kubevirt.io/v1";

/// Asks the guest agent, and answers with what it reports.
pub(super) async fn read(
    serving: &Serving,
    call: &Call<'_>,
    by: &Requester,
    what: Reading,
) -> Result<Response, Refusal> {
    let vmi = get_instance(serving, call).await?;
    instance::may_read(&vmi)?;
    let place = place(&vmi)?;
    let _turn = serving.turn_to_ask(&place.pod_uid).await?;
    let about = match what {
        Reading::GuestOsInfo => GuestSubject::Info,
        Reading::UserList => GuestSubject::Users,
        Reading::FilesystemList => GuestSubject::FileSystems,
    };
    let request = ControlRequest::Guest { about };
    let (reply, _) = ask(&serving.nodes, &place, by, request).await.map_err(unanswered)?;
    match reply {
        ControlReply::Guest(report) => Ok(Json(body(what, &report)).into_response()),
        ControlReply::Denied { reason } => Err(Refusal::ConflictAsError(printable(&reason, LONGEST_REASON))),
        ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Err(unexpected()),
    }
}

fn body(what: Reading, report: &GuestReport) -> Value {
    let users = || report.users.iter().map(user).collect::<Vec<_>>();
    let file_systems = || report.file_systems.iter().map(file_system).collect::<Vec<_>>();
    match what {
        Reading::GuestOsInfo => info(report, users(), file_systems()),
        Reading::UserList => list("VirtualMachineInstanceGuestOSUserList", users()),
        Reading::FilesystemList => list("VirtualMachineInstanceFileSystemList", file_systems()),
    }
}

fn list(kind: &str, items: Vec<Value>) -> Value {
    json!({ "apiVersion": VERSION, "kind": kind, "metadata": {}, "items": items })
}

fn info(report: &GuestReport, users: Vec<Value>, file_systems: Vec<Value>) -> Value {
    let guest = &report.guest;
    let commands = report.commands.iter().map(|each| json!({ "name": each.name, "enabled": each.enabled }));
    let timezone = report
        .timezone
        .as_ref()
        .map(|found| format!("{}, {}", found.zone.as_deref().unwrap_or_default(), found.offset_seconds));
    without_nothing(json!({
        "apiVersion": VERSION,
        "kind": "VirtualMachineInstanceGuestAgentInfo",
        "guestAgentVersion": guest.agent_version,
        "supportedCommands": commands.collect::<Vec<_>>(),
        "hostname": guest.hostname,
        "os": without_nothing(json!({
            "name": guest.system.name,
            "kernelRelease": guest.kernel,
            "version": guest.system.version,
            "prettyName": guest.os,
            "versionId": guest.system.version_id,
            "kernelVersion": guest.system.kernel_version,
            "machine": guest.system.machine,
            "id": guest.system.id,
        })),
        "timezone": timezone,
        "userList": users,
        "fsInfo": { "disks": file_systems },
        "fsFreezeStatus": report.frozen.map(|frozen| if frozen { "frozen" } else { "thawed" }),
    }))
}

fn user(user: &GuestUser) -> Value {
    without_nothing(json!({ "userName": user.user, "domain": user.domain, "loginTime": user.login_time_seconds }))
}

fn file_system(found: &GuestFileSystem) -> Value {
    let disks = found.disks.iter().map(|disk| without_nothing(json!({ "serial": disk.serial, "busType": disk.bus })));
    without_nothing(json!({
        "diskName": found.name,
        "mountPoint": found.mountpoint,
        "fileSystemType": found.kind,
        "usedBytes": found.used_bytes,
        "totalBytes": found.total_bytes,
        "disk": disks.collect::<Vec<_>>(),
    }))
}

/// An object without the fields that the guest did not report.
fn without_nothing(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

#[cfg(test)]
mod tests {
    use garboard_protocol::control::{GuestStatus, GuestSystem};
    use garboard_protocol::guest::{GuestCommand, GuestFileSystemDisk, GuestTimezone};

    use super::*;

    fn report() -> GuestReport {
        let text = |value: &str| Some(value.to_owned());
        let system = GuestSystem {
            id: text("debian"),
            name: text("Debian GNU/Linux"),
            version: text("12 (bookworm)"),
            version_id: text("12"),
            kernel_version: text("#1 SMP"),
            machine: text("x86_64"),
        };
        let guest = GuestStatus {
            hostname: text("barque"),
            os: text("Debian GNU/Linux 12 (bookworm)"),
            kernel: text("6.1.0"),
            agent_version: text("7.2.22"),
            system,
            missing_commands: Vec::new(),
        };
        let disks = vec![GuestFileSystemDisk { bus: "virtio".into(), serial: text("root") }];
        let file_system = GuestFileSystem {
            name: "vda1".into(),
            mountpoint: "/".into(),
            kind: "ext4".into(),
            used_bytes: Some(1),
            total_bytes: None,
            disks,
        };
        GuestReport {
            guest,
            commands: vec![GuestCommand { name: "guest-ping".into(), enabled: true }],
            timezone: Some(GuestTimezone { zone: text("UTC"), offset_seconds: 0 }),
            users: vec![GuestUser { user: "root".into(), domain: None, login_time_seconds: 1.5 }],
            file_systems: vec![file_system],
            frozen: Some(false),
        }
    }

    #[test]
    fn bodies_have_the_fields_of_kubevirt_and_none_that_is_unknown() {
        let users = json!([{"userName": "root", "loginTime": 1.5}]);
        let disk = json!({"serial": "root", "busType": "virtio"});
        let file_systems =
            json!([{"diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4", "usedBytes": 1, "disk": [disk]}]);
        let expected = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceGuestAgentInfo",
            "guestAgentVersion": "7.2.22", "supportedCommands": [{"name": "guest-ping", "enabled": true}],
            "hostname": "barque",
            "os": {"name": "Debian GNU/Linux", "kernelRelease": "6.1.0", "version": "12 (bookworm)",
                "prettyName": "Debian GNU/Linux 12 (bookworm)", "versionId": "12", "kernelVersion": "#1 SMP",
                "machine": "x86_64", "id": "debian"},
            "timezone": "UTC, 0", "userList": users, "fsInfo": {"disks": file_systems}, "fsFreezeStatus": "thawed",
        });
        assert_eq!(body(Reading::GuestOsInfo, &report()), expected);
        let lists = [
            (Reading::UserList, "VirtualMachineInstanceGuestOSUserList", users),
            (Reading::FilesystemList, "VirtualMachineInstanceFileSystemList", file_systems),
        ];
        for (what, kind, items) in lists {
            let expected = json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {}, "items": items});
            assert_eq!(body(what, &report()), expected);
        }
        let empty = body(Reading::GuestOsInfo, &GuestReport::default());
        assert_eq!((empty.get("hostname"), &empty["os"], empty.get("fsFreezeStatus")), (None, &json!({}), None));
    }

    /// The paths of fields that a document has and its type does not.
    fn undescribed(document: &Value, schema: &Value, types: &Value, at: &str) -> Vec<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            return undescribed(document, &types[name], types, at);
        }
        match document {
            Value::Object(fields) => fields
                .iter()
                .flat_map(|(name, value)| match schema["properties"].get(name) {
                    Some(schema) => undescribed(value, schema, types, &format!("{at}.{name}")),
                    None => vec![format!("{at}.{name}")],
                })
                .collect(),
            Value::Array(elements) => {
                elements.iter().flat_map(|element| undescribed(element, &schema["items"], types, at)).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        }
    }

    #[test]
    fn each_field_of_an_answer_is_described_in_openapi() {
        let document =
            garboard_subresources::open_api::v3_of(garboard_subresources::group::Group::KubeVirt, "v1", "0.1.0");
        let types = &document["components"]["schemas"];
        for (what, name) in [
            (Reading::GuestOsInfo, "v1.VirtualMachineInstanceGuestAgentInfo"),
            (Reading::UserList, "v1.VirtualMachineInstanceGuestOSUserList"),
            (Reading::FilesystemList, "v1.VirtualMachineInstanceFileSystemList"),
        ] {
            assert_eq!(undescribed(&body(what, &report()), &types[name], types, ""), [] as [String; 0], "{name}");
        }
    }
}
