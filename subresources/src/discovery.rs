//! What API servers and clients ask before they use the group. Pure.

use serde_json::{Value, json};

use crate::GROUP;
use crate::route::VERSIONS;
use crate::routes::{Action, ROUTES};

/// `/`: the list of paths.
#[must_use]
pub fn root() -> Value {
    let mut paths = vec!["/apis".to_owned(), format!("/apis/{GROUP}"), "/healthz".to_owned(), "/openapi/v2".to_owned()];
    paths.extend(VERSIONS.iter().map(|version| format!("/apis/{GROUP}/{version}")));
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
    let served = ROUTES.iter().filter(|route| route.action != Action::NotServed);
    let resources: Vec<Value> = served
        .map(|route| {
            json!({
                "name": route.name(), "singularName": "", "namespaced": true, "kind": "", "verbs": [route.method.verb()],
            })
        })
        .collect();
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"), "resources": resources })
}

/// `/openapi/v2`: enough of Swagger 2.0 for an API server to list the paths. None has a body that a client would have to know.
#[must_use]
pub fn open_api(version: &str) -> Value {
    let mut paths = serde_json::Map::new();
    for served in VERSIONS {
        for route in ROUTES.iter().filter(|route| route.action != Action::NotServed) {
            let object = if route.subresource.is_empty() { "" } else { "/{name}" };
            let below = if route.subresource.is_empty() { String::new() } else { format!("/{}", route.subresource) };
            let path =
                format!("/apis/{GROUP}/{served}/namespaces/{{namespace}}/{}{object}{below}", route.resource.plural());
            let method = if route.method.verb() == "get" { "get" } else { "put" };
            let name = |name: &str| json!({ "name": name, "in": "path", "required": true, "type": "string" });
            let parameters: Vec<Value> = ["namespace", "name"]
                .iter()
                .filter(|each| path.contains(&format!("{{{each}}}")))
                .map(|each| name(each))
                .collect();
            let responses = json!({ "200": { "description": "OK" }, "202": { "description": "Accepted" }, "401": { "description": "Unauthorized" } });
            paths.insert(path, json!({ method: { "operationId": format!("{served}-{}", route.name().replace('/', "-")),
                "consumes": ["*/*"], "produces": ["application/json"], "parameters": parameters, "responses": responses } }));
        }
    }
    json!({ "swagger": "2.0", "info": { "title": "Garboard", "version": version }, "paths": paths })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn every_path_that_is_served_is_described() {
        let served = ROUTES.iter().filter(|route| route.action != Action::NotServed).count();
        let described = open_api("0.1.0");
        let paths = described["paths"].as_object().unwrap();
        assert_eq!(paths.len(), served * VERSIONS.len());
        assert!(
            paths.contains_key("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}/start")
        );
    }
}
