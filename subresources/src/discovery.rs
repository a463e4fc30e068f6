//! What API servers and clients ask before they use the group. Pure.

use serde_json::{Value, json};

use crate::group::Group;
use crate::routes::Route;

/// `/`: the list of paths.
#[must_use]
pub fn root() -> Value {
    let fixed = ["/apis", "/healthz", "/openapi/v2", "/openapi/v3"].map(str::to_owned);
    let mut paths = Vec::from(fixed);
    for group in Group::ALL {
        let name = group.name();
        paths.push(format!("/apis/{name}"));
        for version in group.versions() {
            paths.extend([format!("/apis/{name}/{version}"), format!("/openapi/v3/apis/{name}/{version}")]);
        }
    }
    json!({ "paths": paths })
}

/// `/apis`: the list of groups.
#[must_use]
pub fn groups() -> Value {
    let without_kind = |each: Group| {
        let mut group = group(each);
        if let Some(fields) = group.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        group
    };
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": Group::ALL.map(without_kind) })
}

/// `/apis/subresources.kubevirt.io`: the group with its versions. The preferred one is what `virtctl version` asks.
#[must_use]
pub fn group(group: Group) -> Value {
    let name = group.name();
    let version = |version: &&str| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name,
        "versions": group.versions().iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": group.versions().first().map(version),
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
    })
}

/// `/apis/subresources.kubevirt.io/VERSION`: the routes that are served. Two of one subresource are one entry with the verbs of both.
#[must_use]
pub fn resources(group: Group, version: &str) -> Value {
    let mut listed: Vec<(String, Vec<&str>)> = Vec::new();
    for route in group.routes(version).iter().filter(|route: &&Route| route.is_served()) {
        let (name, verb) = (route.name(), route.method.verb());
        match listed.iter_mut().find(|(each, _)| *each == name) {
            Some((_, verbs)) if verbs.contains(&verb) => {}
            Some((_, verbs)) => verbs.push(verb),
            None => listed.push((name, vec![verb])),
        }
    }
    let entry = |(name, verbs): (String, Vec<&str>)| json!({ "name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": verbs });
    let resources: Vec<Value> = listed.into_iter().map(entry).collect();
    let version = format!("{}/{version}", group.name());
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GROUP;
    use crate::route::endpoint;

    #[test]
    fn the_preferred_version_is_v1_and_only_what_is_served_is_listed() {
        assert_eq!(group(Group::KubeVirt)["preferredVersion"]["groupVersion"], "subresources.kubevirt.io/v1");
        let list = resources(Group::KubeVirt, "v1alpha3");
        let names: Vec<&str> =
            list["resources"].as_array().unwrap().iter().map(|each| each["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"virtualmachines/start") && names.contains(&"expand-vm-spec"));
        assert!(!names.contains(&"virtualmachines/migrate"));
        assert_eq!(list["groupVersion"], "subresources.kubevirt.io/v1alpha3");
        assert_eq!(groups()["groups"][0]["name"], GROUP);
        let first = resources(Group::KubeVirt, "v1alpha2");
        let methods: Vec<String> = first["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|each| format!("{} {}", each["name"], each["verbs"]))
            .collect();
        assert_eq!(methods, [r#""virtualmachines/start" ["get"]"#, r#""virtualmachines/stop" ["get"]"#]);
    }

    #[test]
    fn a_subresource_of_our_group_is_listed_once_with_all_its_verbs() {
        let list = resources(Group::Garboard, "v1");
        let each = |entry: &Value| format!("{} {}", entry["name"].as_str().unwrap(), entry["verbs"]);
        let listed: Vec<String> = list["resources"].as_array().unwrap().iter().map(each).collect();
        let expected = [
            r#"virtualmachineinstances/qmp-read ["get"]"#,
            r#"virtualmachineinstances/qmp-write ["get","update"]"#,
            r#"virtualmachineinstances/qmp-dangerous ["get","update"]"#,
            r#"virtualmachineinstances/screendump ["get"]"#,
            r#"virtualmachineinstances/plan ["get"]"#,
            r#"virtualmachineinstances/logs ["get"]"#,
        ];
        assert_eq!(
            (listed, &list["groupVersion"]),
            (Vec::from(expected.map(str::to_owned)), &json!("subresources.garboard.dev/v1"))
        );
    }

    #[test]
    fn each_path_of_the_list_is_answered() {
        for path in root()["paths"].as_array().unwrap() {
            let path = path.as_str().unwrap();
            assert!(endpoint("GET", path).is_ok(), "{path}");
        }
    }
}
