//! The group in OpenAPI, versions 2 and 3: paths, parameters, and the types of bodies and answers, by KubeVirt's names
//! (`api/openapi-spec/swagger.json`), so that a generated client has the functions and classes that its users know. Pure.

mod definitions;
mod operations;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use self::definitions::STATUS;
use self::operations::{Answer, Described};
use crate::group::Group;
use crate::route::{Method, Resource};
use crate::routes::{Action, Route, Shown};

/// The two forms of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Swagger 2.0.
    Two,
    /// `OpenAPI` 3.0.
    Three,
}

impl Form {
    /// Where the types are.
    const fn definitions(self) -> &'static str {
        match self {
            Self::Two => "#/definitions/",
            Self::Three => "#/components/schemas/",
        }
    }

    fn reference(self, name: &str) -> Value {
        json!({ "$ref": format!("{}{name}", self.definitions()) })
    }

    /// A parameter of the path or the query.
    fn parameter(self, name: &str, place: &str, kind: &str) -> Value {
        let is_required = place == "path";
        match self {
            Self::Two => json!({ "name": name, "in": place, "required": is_required, "type": kind }),
            Self::Three => json!({ "name": name, "in": place, "required": is_required, "schema": { "type": kind } }),
        }
    }

    /// An answer: what it means, and its content of a media type, if it has one.
    fn response(self, description: &str, content: Option<(&str, Value)>) -> Value {
        let mut response = json!({ "description": description });
        match (self, content) {
            (_, None) => {}
            (Self::Two, Some((_, schema))) => response["schema"] = schema,
            (Self::Three, Some((media, schema))) => response["content"] = json!({ media: { "schema": schema } }),
        }
        response
    }

    fn put_body(self, operation: &mut Value, name: &str, is_required: bool) {
        let schema = self.reference(name);
        match self {
            Self::Two => {
                let body = json!({ "name": "body", "in": "body", "required": is_required, "schema": schema });
                if let Some(parameters) = operation["parameters"].as_array_mut() {
                    parameters.push(body);
                }
            }
            Self::Three => {
                operation["requestBody"] =
                    json!({ "required": is_required, "content": { "*/*": { "schema": schema } } });
            }
        }
    }
}

/// A path of a route, with the names of its parameters in order.
struct Path {
    text: String,
    parameters: Vec<&'static str>,
}

/// The paths of a route in a version. A port is forwarded with and without a protocol, and a plan is there with and without what it was made
/// from.
fn paths(group: Group, version: &str, route: &Route) -> Vec<Path> {
    let base = format!("/apis/{}/{version}/namespaces/{{namespace}}/{}", group.name(), route.resource.plural());
    if route.resource == Resource::ExpandVmSpec {
        return vec![Path { text: base, parameters: vec!["namespace"] }];
    }
    let text = format!("{base}/{{name}}/{}", route.subresource);
    if matches!(route.action, Action::QmpCommand(_)) {
        return vec![Path { text: format!("{text}/{{command}}"), parameters: vec!["namespace", "name", "command"] }];
    }
    if let Action::Show(shown) = route.action {
        let part = Path { text: format!("{text}/{{part}}"), parameters: vec!["namespace", "name", "part"] };
        let whole = (shown == Shown::Plan).then(|| Path { text, parameters: vec!["namespace", "name"] });
        return whole.into_iter().chain([part]).collect();
    }
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

/// The operation of a path.
fn operation(form: Form, version: &str, route: &Route, path: &Path) -> Value {
    let described = Described::of(route);
    let has = |name: &str| path.parameters.contains(&name);
    let suffix = match (has("protocol"), has("part")) {
        (true, _) => "WithProtocol",
        (false, true) => "Part",
        (false, false) => "",
    };
    let of_path = path.parameters.iter().map(|name| form.parameter(name, "path", "string"));
    // What is changed by `PUT` has its arguments in the body.
    let of_query = described.query.iter().filter(|_| route.method == Method::Get);
    let of_query = of_query.map(|(name, kind)| form.parameter(name, "query", kind));
    let mut operation = json!({
        "operationId": format!("{version}{}{suffix}", described.operation(route)),
        "parameters": of_path.chain(of_query).collect::<Vec<_>>(),
        "responses": responses(form, described.answer),
    });
    // A start or stop by `GET` has no options.
    if let Some(name) = described.body.filter(|_| route.method == Method::Put) {
        form.put_body(&mut operation, name, route.resource == Resource::ExpandVmSpec);
    }
    if form == Form::Two {
        operation["consumes"] = json!(["*/*"]);
        operation["produces"] = json!([described.answer.media()]);
    }
    operation
}

fn responses(form: Form, answer: Answer) -> Value {
    let failed = form.response("Error", Some(("application/json", form.reference(STATUS))));
    let (code, succeeded) = match answer {
        Answer::Accepted => ("202", form.response("Accepted", None)),
        Answer::Done => ("200", form.response("OK", None)),
        Answer::Stream => ("101", form.response("Switching Protocols", None)),
        Answer::Picture => {
            let bytes = json!({ "type": "string", "format": "binary" });
            ("200", form.response("OK", Some((answer.media(), bytes))))
        }
        Answer::Text => {
            let text = json!({ "type": "string" });
            ("200", form.response("OK", Some((answer.media(), text))))
        }
        Answer::Typed(name) => ("200", form.response("OK", Some((answer.media(), form.reference(name))))),
    };
    json!({ code: succeeded, "401": form.response("Unauthorized", None), "default": failed })
}

const fn method(route: &Route) -> &'static str {
    match route.method {
        Method::Get => "get",
        Method::Put => "put",
    }
}

/// Every path of a version, with its operation.
fn described(form: Form, group: Group, version: &str) -> Map<String, Value> {
    let served = group.routes(version).iter().filter(|route| route.is_served());
    let of_route = |route: &Route| {
        let each = paths(group, version, route).into_iter();
        each.map(|path| {
            let operation = operation(form, version, route, &path);
            (path.text, json!({ method(route): operation }))
        })
        .collect::<Vec<_>>()
    };
    served.flat_map(of_route).collect()
}

/// The types that these paths name, and those that they name in turn.
fn types(form: Form, paths: &Map<String, Value>) -> Map<String, Value> {
    let mut all = definitions::all(form.definitions());
    let mut types = Map::new();
    let mut wanted = BTreeSet::new();
    paths.values().for_each(|path| named(path, &mut wanted));
    while let Some(name) = wanted.pop_first() {
        if let Some(definition) = all.remove(&name) {
            named(&definition, &mut wanted);
            types.insert(name, definition);
        }
    }
    types
}

/// Collects the names of types to which a document refers.
fn named(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let reference = fields.get("$ref").and_then(Value::as_str).and_then(|text| text.rsplit('/').next());
            names.extend(reference.map(str::to_owned));
            fields.values().for_each(|field| named(field, names));
        }
        Value::Array(elements) => elements.iter().for_each(|element| named(element, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `/openapi/v2`: Swagger 2.0, of all versions.
#[must_use]
pub fn v2(version: &str) -> Value {
    let of_group = |group: Group| group.versions().iter().flat_map(move |served| described(Form::Two, group, served));
    let paths: Map<String, Value> = Group::ALL.into_iter().flat_map(of_group).collect();
    let types = types(Form::Two, &paths);
    let info = json!({ "title": "Garboard", "version": version });
    json!({ "swagger": "2.0", "info": info, "paths": paths, "definitions": types })
}

/// `/openapi/v3`: where the document of each version is.
#[must_use]
pub fn v3() -> Value {
    let entry = |group: Group, served: &str| {
        let path = format!("apis/{}/{served}", group.name());
        let url = format!("/openapi/v3/{path}");
        (path, json!({ "serverRelativeURL": url }))
    };
    let of_group = |group: Group| group.versions().iter().map(move |served| entry(group, served));
    json!({ "paths": Group::ALL.into_iter().flat_map(of_group).collect::<Map<_, _>>() })
}

/// `/openapi/v3/apis/subresources.kubevirt.io/VERSION`: `OpenAPI` 3.0.
#[must_use]
pub fn v3_of(group: Group, served: &str, version: &str) -> Value {
    let paths = described(Form::Three, group, served);
    let types = types(Form::Three, &paths);
    let info = json!({ "title": "Garboard", "version": version });
    json!({ "openapi": "3.0.0", "info": info, "paths": paths, "components": { "schemas": types } })
}

#[cfg(test)]
mod tests;
