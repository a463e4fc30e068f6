//! What a caller has to be allowed. Pure.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

use crate::caller::Caller;
use crate::route::Call;

/// The question whether a caller may make a call. The subresource is the first segment after the object's name, which is what
/// API servers read from a path themselves (`k8s.io/apiserver/pkg/endpoints/request`, `RequestInfo`): roles that let a request
/// through there let it through here.
#[must_use]
pub fn review(call: &Call<'_>, caller: &Caller) -> SubjectAccessReview {
    let first = call.route.subresource.split('/').next().unwrap_or_default();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        group: Some(call.group.name().to_owned()),
        version: Some(call.version.to_owned()),
        namespace: Some(call.namespace.to_owned()),
        resource: Some(call.route.resource.plural().to_owned()),
        subresource: some(first),
        name: some(call.name),
        verb: Some(call.route.verb().to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(caller.user.clone()),
        uid: caller.uid.clone(),
        groups: Some(caller.groups.clone()),
        extra: (!caller.extra.is_empty()).then(|| caller.extra.clone()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::GROUP;
    use crate::group::OWN_GROUP;
    use crate::route::{Endpoint, endpoint};

    #[test]
    fn the_question_names_the_exact_subresource() {
        let ada = Caller { user: "ada".to_owned(), groups: vec!["dev".to_owned()], ..Caller::default() };
        let asked = |method, tail| {
            let path = format!("/apis/{GROUP}/v1/namespaces/n/{tail}");
            let Ok(Endpoint::Call(call)) = endpoint(method, &path) else { panic!("{path}") };
            serde_json::to_value(review(&call, &ada)).unwrap()["spec"].clone()
        };
        let spec = asked("PUT", "virtualmachines/a/start");
        let attributes = json!({"group": GROUP, "version": "v1", "namespace": "n", "resource": "virtualmachines",
            "subresource": "start", "name": "a", "verb": "update"});
        assert_eq!(
            (&spec["resourceAttributes"], &spec["user"], &spec["groups"]),
            (&attributes, &json!("ada"), &json!(["dev"]))
        );
        let spec = asked("GET", "virtualmachineinstances/a/portforward/22/tcp");
        let attributes = &spec["resourceAttributes"];
        assert_eq!((&attributes["subresource"], &attributes["verb"]), (&json!("portforward"), &json!("get")));
        let spec = asked("PUT", "virtualmachines/a/evacuate/cancel");
        assert_eq!(spec["resourceAttributes"]["subresource"], "evacuate");
        let spec = asked("PUT", "expand-vm-spec");
        let attributes = &spec["resourceAttributes"];
        assert_eq!((attributes.get("subresource"), attributes.get("name")), (None, None));
    }

    #[test]
    fn a_right_to_read_everything_is_none_to_change_a_machine_by_qmp() {
        let ada = Caller { user: "ada".to_owned(), ..Caller::default() };
        let table = [
            ("GET", "qmp-read", "qmp-read", "get"),
            ("GET", "qmp-read/query-block", "qmp-read", "get"),
            ("GET", "qmp-write", "qmp-write", "update"),
            ("PUT", "qmp-write/stop", "qmp-write", "update"),
            ("GET", "qmp-dangerous", "qmp-dangerous", "update"),
            ("GET", "screendump", "screendump", "get"),
            ("GET", "plan", "plan", "get"),
            ("GET", "plan/facts", "plan", "get"),
            ("GET", "logs/serial", "logs", "get"),
        ];
        for (method, tail, subresource, verb) in table {
            let path = format!("/apis/{OWN_GROUP}/v1/namespaces/n/virtualmachineinstances/a/{tail}");
            let Ok(Endpoint::Call(call)) = endpoint(method, &path) else { panic!("{path}") };
            let attributes = review(&call, &ada).spec.resource_attributes.unwrap();
            assert_eq!(attributes.group.as_deref(), Some(OWN_GROUP));
            assert_eq!(
                (attributes.subresource.as_deref(), attributes.verb.as_deref()),
                (Some(subresource), Some(verb))
            );
        }
    }

    #[test]
    fn a_start_by_get_needs_the_verb_of_a_change() {
        let ada = Caller { user: "ada".to_owned(), ..Caller::default() };
        for verb in ["start", "stop"] {
            let path = format!("/apis/{GROUP}/v1alpha2/namespaces/n/virtualmachines/a/{verb}");
            let Ok(Endpoint::Call(call)) = endpoint("GET", &path) else { panic!("{path}") };
            let attributes = review(&call, &ada).spec.resource_attributes.unwrap();
            assert_eq!((attributes.verb.as_deref(), attributes.version.as_deref()), (Some("update"), Some("v1alpha2")));
        }
    }
}
