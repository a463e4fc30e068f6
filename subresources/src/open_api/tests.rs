//! Documents have the paths that are served, each type that they name, and no other.

use std::collections::BTreeMap;

use super::*;
use crate::GROUP;
use crate::options::{EvacuateCancelOptions, FreezeOptions, PauseOptions, RestartOptions, StartOptions, StopOptions};
use crate::route::{Endpoint, endpoint};
use crate::routes::{FIRST_VERSION, OWN_ROUTES, ROUTES};

/// One of a path.
struct Operation {
    method: String,
    /// With a value for each parameter.
    path: String,
    written: String,
    operation: Value,
}

fn operations(document: &Value) -> Vec<Operation> {
    let of_path = |(path, item): (&String, &Value)| {
        let (method, operation) = item.as_object().unwrap().iter().next().unwrap();
        let written = path.clone();
        let path = path.replace("{namespace}", "n").replace("{name}", "a").replace("{port}", "80");
        let path = path.replace("{protocol}", "udp").replace("{command}", "query-block").replace("{part}", "facts");
        Operation { method: method.to_uppercase(), path, written, operation: operation.clone() }
    };
    document["paths"].as_object().unwrap().iter().map(of_path).collect()
}

/// Each version of each group.
fn versions() -> Vec<(Group, &'static str)> {
    let of_group = |group: Group| group.versions().iter().map(move |version| (group, *version));
    Group::ALL.into_iter().flat_map(of_group).collect()
}

/// The document of each version, and that of all.
fn documents() -> Vec<Value> {
    versions().into_iter().map(|(group, version)| v3_of(group, version, "0.1.0")).chain([v2("0.1.0")]).collect()
}

#[test]
fn a_document_of_each_version_has_just_the_paths_that_are_served() {
    let mut all = 0;
    for (group, version) in versions() {
        let document = v3_of(group, version, "0.1.0");
        assert!(document["openapi"].as_str().unwrap().starts_with("3.0"), "{document}");
        let mut found = BTreeSet::new();
        for Operation { method, path, .. } in operations(&document) {
            let Ok(Endpoint::Call(call)) = endpoint(&method, &path) else { panic!("{method} {path}") };
            assert!(call.route.is_served() && call.version == version && call.group == group, "{path}");
            found.insert(call.route.name());
            all += 1;
        }
        let served = group.routes(version).iter().filter(|route| route.is_served());
        assert_eq!(found, served.map(Route::name).collect(), "{version}");
    }
    assert_eq!(operations(&v2("0.1.0")).len(), all, "version 2 has them all");
}

#[test]
fn parameters_are_those_of_the_path_and_operations_have_names_of_their_own() {
    for document in documents() {
        let mut names = BTreeSet::new();
        for Operation { written, operation, .. } in operations(&document) {
            let parameters = operation["parameters"].as_array().unwrap();
            let of_path: Vec<&Value> = parameters.iter().filter(|each| each["in"] == "path").collect();
            assert_eq!(written.matches('{').count(), of_path.len(), "{written}");
            for parameter in of_path {
                let name = format!("{{{}}}", parameter["name"].as_str().unwrap());
                let kind = if parameter["type"].is_string() { parameter } else { &parameter["schema"] };
                assert!(written.contains(&name) && kind["type"] == "string" && parameter["required"] == true);
            }
            assert!(names.insert(operation["operationId"].to_string()), "{written}");
        }
    }
}

#[test]
fn operations_have_the_names_of_kubevirt() {
    let all = operations(&v2("0.1.0"));
    let name = |tail: &str| {
        let path = format!("/apis/{GROUP}/{tail}");
        let found = all.iter().find(|each| each.path == path).unwrap_or_else(|| panic!("{path}"));
        found.operation["operationId"].as_str().unwrap().to_owned()
    };
    let table = [
        ("v1/namespaces/n/virtualmachines/a/start", "v1Start"),
        ("v1alpha3/namespaces/n/virtualmachineinstances/a/vnc/screenshot", "v1alpha3VNCScreenshot"),
        ("v1/namespaces/n/virtualmachines/a/portforward/80", "v1vm-PortForward"),
        ("v1/namespaces/n/virtualmachineinstances/a/portforward/80/udp", "v1vmi-PortForwardWithProtocol"),
        ("v1/namespaces/n/virtualmachines/a/evacuate/cancel", "v1vm-evacuatecancel"),
        ("v1/namespaces/n/expand-vm-spec", "v1ExpandSpec"),
    ];
    for (tail, expected) in table {
        assert_eq!(name(tail), expected);
    }
}

#[test]
fn each_type_that_is_named_is_there_and_each_that_is_there_is_named() {
    for document in documents() {
        let types = document.get("definitions").unwrap_or(&document["components"]["schemas"]);
        let there: BTreeSet<String> = types.as_object().unwrap().keys().cloned().collect();
        let mut wanted = BTreeSet::new();
        named(&document, &mut wanted);
        assert_eq!(there, wanted);
    }
    let whole = v2("0.1.0");
    let every: BTreeSet<String> = definitions::all("").keys().cloned().collect();
    assert_eq!(whole["definitions"].as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>(), every);
    let first = v3_of(Group::KubeVirt, FIRST_VERSION, "0.1.0");
    assert_eq!(first["components"]["schemas"].as_object().unwrap().len(), 1, "a start by GET has no options");
}

#[test]
fn bodies_and_answers_have_their_types() {
    let two = operations(&v2("0.1.0"));
    let three = operations(&v3_of(Group::KubeVirt, "v1", "0.1.0"));
    let find = |all: &[Operation], tail: &str| {
        let path = format!("/apis/{GROUP}/v1/namespaces/n/{tail}");
        all.iter().find(|each| each.path == path).unwrap_or_else(|| panic!("{path}")).operation.clone()
    };
    let stop = find(&two, "virtualmachines/a/stop");
    let body = stop["parameters"].as_array().unwrap().iter().find(|each| each["in"] == "body").unwrap();
    assert_eq!((&body["schema"]["$ref"], &body["required"]), (&json!("#/definitions/v1.StopOptions"), &json!(false)));
    assert_eq!(stop["responses"]["202"]["description"], "Accepted");
    let stop = find(&three, "virtualmachines/a/stop");
    assert_eq!(stop["requestBody"]["content"]["*/*"]["schema"]["$ref"], "#/components/schemas/v1.StopOptions");
    let users = find(&three, "virtualmachineinstances/a/userlist");
    assert_eq!(
        users["responses"]["200"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/v1.VirtualMachineInstanceGuestOSUserList"
    );
    assert_eq!(users.get("requestBody"), None);
    let picture = find(&two, "virtualmachineinstances/a/vnc/screenshot");
    assert_eq!(picture["produces"], json!(["image/png"]));
    let by_get = operations(&v2("0.1.0")).into_iter().filter(|each| each.method == "GET");
    for Operation { path, operation, .. } in by_get {
        assert!(operation["parameters"].as_array().unwrap().iter().all(|each| each["in"] != "body"), "{path}");
    }
}

#[test]
fn a_plan_has_parts_and_logs_have_parts_alone() {
    let all = operations(&v3_of(Group::Garboard, "v1", "0.1.0"));
    let of = |tail: &str| {
        let written = format!("/virtualmachineinstances/{{name}}/{tail}");
        let found = all.iter().find(|each| each.written.ends_with(&written))?;
        let media = found.operation["responses"]["200"]["content"].as_object()?.keys().next()?.clone();
        Some((found.operation["operationId"].as_str()?.to_owned(), media))
    };
    let some = |name: &str, media: &str| Some((name.to_owned(), media.to_owned()));
    assert_eq!(of("plan"), some("v1Plan", "application/json"));
    assert_eq!(of("plan/{part}"), some("v1PlanPart", "application/json"));
    assert_eq!(of("logs/{part}"), some("v1LogsPart", "text/plain"));
    assert_eq!(of("logs"), None);
}

#[test]
fn parameters_of_the_query_are_listed_with_their_types() {
    let expected: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::from([
        ("console", vec![("preserveSession", "boolean"), ("view", "boolean"), ("position", "string")]),
        ("vnc", vec![("preserveSession", "boolean")]),
        ("vnc/screenshot", vec![("moveCursor", "boolean")]),
        ("screendump", vec![("moveCursor", "boolean")]),
        ("qmp-read/query-block", vec![("arguments", "string")]),
    ]);
    for document in documents() {
        for Operation { path, operation, .. } in operations(&document) {
            let parameters = operation["parameters"].as_array().unwrap();
            let of_query = parameters.iter().filter(|each| each["in"] == "query");
            let listed: Vec<(&str, &str)> = of_query
                .map(|each| {
                    let kind = each["type"].as_str().or(each["schema"]["type"].as_str());
                    assert_eq!(each["required"], false, "{path}");
                    (each["name"].as_str().unwrap(), kind.unwrap())
                })
                .collect();
            let subresource = path.split_once("/virtualmachineinstances/a/").map(|(_, subresource)| subresource);
            let expected = subresource.and_then(|name| expected.get(name)).cloned().unwrap_or_default();
            assert_eq!(listed, expected, "{path}");
        }
    }
}

#[test]
fn options_have_the_fields_that_are_read() {
    let read: [(&str, Value); 6] = [
        (definitions::START_OPTIONS, serde_json::to_value(StartOptions::default()).unwrap()),
        (definitions::STOP_OPTIONS, serde_json::to_value(StopOptions::default()).unwrap()),
        (definitions::RESTART_OPTIONS, serde_json::to_value(RestartOptions::default()).unwrap()),
        (definitions::PAUSE_OPTIONS, serde_json::to_value(PauseOptions::default()).unwrap()),
        (definitions::FREEZE_TIMEOUT, serde_json::to_value(FreezeOptions::default()).unwrap()),
        (definitions::EVACUATE_CANCEL_OPTIONS, serde_json::to_value(EvacuateCancelOptions::default()).unwrap()),
    ];
    let all = definitions::all("");
    assert_eq!(all[definitions::UNPAUSE_OPTIONS]["properties"], all[definitions::PAUSE_OPTIONS]["properties"]);
    for (name, options) in read {
        let read: BTreeSet<&String> = options.as_object().unwrap().keys().collect();
        let listed = all[name]["properties"].as_object().unwrap().keys();
        // Every client may say what it sends.
        let listed: BTreeSet<&String> = listed.filter(|key| !["apiVersion", "kind"].contains(&key.as_str())).collect();
        assert_eq!(listed, read, "{name}");
    }
}

#[test]
fn each_served_route_is_described_and_each_row_is_of_a_route() {
    for route in ROUTES.iter().chain(OWN_ROUTES).filter(|route| route.is_served()) {
        assert!(operations::ALL.iter().any(|row| row.subresource == route.subresource), "{}", route.name());
    }
    for row in operations::ALL {
        assert!(ROUTES.iter().chain(OWN_ROUTES).any(|route| route.subresource == row.subresource), "{row:?}");
    }
}

#[test]
fn the_list_of_documents_leads_to_each() {
    let listed = v3();
    for (group, version) in versions() {
        let entry = &listed["paths"][format!("apis/{}/{version}", group.name())];
        let url = entry["serverRelativeURL"].as_str().unwrap();
        assert_eq!(endpoint("GET", url), Ok(Endpoint::OpenApi3Of(group, version)));
    }
}
