//! What API servers and clients ask before they use the group. Pure.

use serde_json::{Value, json};

use crate::GROUP;
use crate::route::VERSIONS;
use crate::routes::{Route, routes};

/// `/`: the list of paths.
#[must_use]
pub fn root() -> Value {
    let fixed = ["/apis", "/healthz", "/openapi/v2", "/openapi/v3"].map(str::to_owned);
    let mut paths = Vec::from(fixed);
    paths.push(format!("/apis/{GROUP}"));
    for version in VERSIONS {
        paths.extend([format!("/apis/{GROUP}/{version}"), format!("/openapi/v3/apis/{GROUP}/{version}")]);
    }
    json!({ "paths": paths })
}

/// `/apis`: the list of groups.
#[must_use]
pub fn groups() -> Value {
    let mut group = group();
    if let Some(fields) = group.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

/// `/apis/subresources.kubevirt.io`: the group with its versions. The preferred one is what `virtctl version` asks.
#[must_use]
pub fn group() -> Value {
    let version = |version: &&str| json!({ "groupVersion": format!("{GROUP}/{version}"), "version": version });
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": VERSIONS.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": version(&VERSIONS[0]),
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
    })
}

/// `/apis/subresources.kubevirt.io/VERSION`: the routes that are served.
#[must_use]
pub fn resources(version: &str) -> Value {
    let served = routes(version).iter().filter(|route| route.is_served());
    let resources: Vec<Value> = served
        .map(|route: &Route| {
            json!({
                "name": route.name(), "singularName": "", "namespaced": true, "kind": "", "verbs": [route.method.verb()],
            })
        })
        .collect();
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"), "resources": resources })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::endpoint;

    #[test]
    fn the_preferred_version_is_v1_and_only_what_is_served_is_listed() {
        assert_eq!(group()["preferredVersion"]["groupVersion"], "subresources.kubevirt.io/v1");
        let list = resources("v1alpha3");
        let names: Vec<&str> =
            list["resources"].as_array().unwrap().iter().map(|each| each["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"virtualmachines/start") && names.contains(&"expand-vm-spec"));
        assert!(!names.contains(&"virtualmachines/migrate"));
        assert_eq!(list["groupVersion"], "subresources.kubevirt.io/v1alpha3");
        assert_eq!(groups()["groups"][0]["name"], GROUP);
        let first = resources("v1alpha2");
        let methods: Vec<String> = first["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|each| format!("{} {}", each["name"], each["verbs"]))
            .collect();
        assert_eq!(methods, [r#""virtualmachines/start" ["get"]"#, r#""virtualmachines/stop" ["get"]"#]);
    }

    #[test]
    fn each_path_of_the_list_is_answered() {
        for path in root()["paths"].as_array().unwrap() {
            let path = path.as_str().unwrap();
            assert!(endpoint("GET", path).is_ok(), "{path}");
        }
    }
}
