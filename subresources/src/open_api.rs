//! The group in OpenAPI, versions 2 and 3: enough for an API server to list the paths and for clients to find them. No body is
//! described: KubeVirt's clients have the types compiled in. Pure.

use serde_json::{Map, Value, json};

use crate::GROUP;
use crate::route::{Method, Resource, VERSIONS};
use crate::routes::{Action, Route, routes};

/// A path of a route, with the names of its parameters in order.
struct Path {
    text: String,
    parameters: Vec<&'static str>,
}

/// The paths of a route in a version. A port is forwarded with and without a protocol.
fn paths(version: &str, route: &Route) -> Vec<Path> {
    let base = format!("/apis/{GROUP}/{version}/namespaces/{{namespace}}/{}", route.resource.plural());
    if route.resource == Resource::ExpandVmSpec {
        return vec![Path { text: base, parameters: vec!["namespace"] }];
    }
    let text = format!("{base}/{{name}}/{}", route.subresource);
    if route.action != Action::Forward {
        return vec![Path { text, parameters: vec!["namespace", "name"] }];
    }
    let port = Path { text: format!("{text}/{{port}}"), parameters: vec!["namespace", "name", "port"] };
    let protocol = Path {
        text: format!("{text}/{{port}}/{{protocol}}"),
        parameters: vec!["namespace", "name", "port", "protocol"],
    };
    vec![port, protocol]
}

/// The operation of a path, without its parameters.
fn operation(version: &str, route: &Route, path: &Path) -> Map<String, Value> {
    let suffix = if path.parameters.contains(&"protocol") { "-protocol" } else { "" };
    let name = format!("{version}-{}{suffix}", route.name().replace('/', "-"));
    let responses = json!({
        "200": { "description": "OK" }, "202": { "description": "Accepted" }, "401": { "description": "Unauthorized" },
    });
    Map::from_iter([("operationId".to_owned(), json!(name)), ("responses".to_owned(), responses)])
}

const fn method(route: &Route) -> &'static str {
    match route.method {
        Method::Get => "get",
        Method::Put => "put",
    }
}

/// Every path of a version, with its operation as `finish` completes it.
fn described(version: &str, finish: impl Fn(&mut Map<String, Value>, &Path)) -> Map<String, Value> {
    let mut all = Map::new();
    for route in routes(version).iter().filter(|route| route.is_served()) {
        for path in paths(version, route) {
            let mut operation = operation(version, route, &path);
            finish(&mut operation, &path);
            all.insert(path.text, json!({ method(route): operation }));
        }
    }
    all
}

/// `/openapi/v2`: Swagger 2.0, of all versions.
#[must_use]
pub fn v2(version: &str) -> Value {
    let finish = |operation: &mut Map<String, Value>, path: &Path| {
        let parameter = |name: &&str| json!({ "name": name, "in": "path", "required": true, "type": "string" });
        operation.insert("consumes".to_owned(), json!(["*/*"]));
        operation.insert("produces".to_owned(), json!(["application/json"]));
        operation.insert("parameters".to_owned(), path.parameters.iter().map(parameter).collect());
    };
    let paths: Map<String, Value> = VERSIONS.iter().flat_map(|served| described(served, finish)).collect();
    json!({ "swagger": "2.0", "info": { "title": "Garboard", "version": version }, "paths": paths })
}

/// `/openapi/v3`: where the document of each version is.
#[must_use]
pub fn v3() -> Value {
    let entry = |served: &&str| {
        let path = format!("apis/{GROUP}/{served}");
        let url = format!("/openapi/v3/{path}");
        (path, json!({ "serverRelativeURL": url }))
    };
    json!({ "paths": VERSIONS.iter().map(entry).collect::<Map<_, _>>() })
}

/// `/openapi/v3/apis/subresources.kubevirt.io/VERSION`: `OpenAPI` 3.0.
#[must_use]
pub fn v3_of(served: &str, version: &str) -> Value {
    let paths = described(served, |operation, path| {
        let parameter =
            |name: &&str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        operation.insert("parameters".to_owned(), path.parameters.iter().map(parameter).collect());
    });
    json!({
        "openapi": "3.0.0", "info": { "title": "Garboard", "version": version }, "paths": paths,
        "components": { "schemas": {} },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::route::{Endpoint, endpoint};

    /// The method and the path of each operation, with a value for each parameter.
    fn operations(document: &Value) -> Vec<(String, String, Value)> {
        let of_path = |(path, item): (&String, &Value)| {
            let (method, operation) = item.as_object().unwrap().iter().next().unwrap();
            let path = path.replace("{namespace}", "n").replace("{name}", "a").replace("{port}", "80");
            (method.to_uppercase(), path.replace("{protocol}", "udp"), operation.clone())
        };
        document["paths"].as_object().unwrap().iter().map(of_path).collect()
    }

    #[test]
    fn a_document_of_each_version_has_just_the_paths_that_are_served() {
        let mut all = 0;
        for version in VERSIONS {
            let document = v3_of(version, "0.1.0");
            assert!(document["openapi"].as_str().unwrap().starts_with("3.0"), "{document}");
            let mut found = BTreeSet::new();
            for (method, path, operation) in operations(&document) {
                let Ok(Endpoint::Call(call)) = endpoint(&method, &path) else { panic!("{method} {path}") };
                assert!(call.route.is_served() && call.version == version, "{path}");
                let parameters = operation["parameters"].as_array().unwrap();
                assert!(parameters.iter().all(|each| each["schema"]["type"] == "string"), "{operation}");
                found.insert(call.route.name());
                all += 1;
            }
            let served = routes(version).iter().filter(|route| route.is_served());
            assert_eq!(found, served.map(Route::name).collect(), "{version}");
        }
        assert_eq!(operations(&v2("0.1.0")).len(), all, "version 2 has them all");
    }

    #[test]
    fn parameters_are_those_of_the_path_and_operations_have_names_of_their_own() {
        for document in VERSIONS.map(|version| v3_of(version, "0.1.0")).into_iter().chain([v2("0.1.0")]) {
            let mut names = BTreeSet::new();
            for (path, item) in document["paths"].as_object().unwrap() {
                let operation = item.as_object().unwrap().values().next().unwrap();
                let parameters = operation["parameters"].as_array().unwrap();
                assert_eq!(path.matches('{').count(), parameters.len(), "{path}");
                assert!(
                    parameters.iter().all(|each| path.contains(&format!("{{{}}}", each["name"].as_str().unwrap())))
                );
                assert!(names.insert(operation["operationId"].to_string()), "{path}");
            }
        }
    }

    #[test]
    fn the_list_of_documents_leads_to_each() {
        let listed = v3();
        for version in VERSIONS {
            let url = listed["paths"][format!("apis/{GROUP}/{version}")]["serverRelativeURL"].as_str().unwrap();
            assert_eq!(endpoint("GET", url), Ok(Endpoint::OpenApi3Of(version)));
        }
    }
}
