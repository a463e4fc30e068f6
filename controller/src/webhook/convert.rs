//! Conversion: objects of an older version of the API, which API servers have converted as they are written and read. The controller
//! says so in the definitions ([`crate::certificates`]); what is converted is `garboard_api::versions`'.

use garboard_api::versions;
use kube::core::Status;
use kube::core::conversion::{ConversionRequest, ConversionResponse};
use serde_json::Value;

/// Converts every object of a request, or none.
#[must_use]
pub fn convert(request: ConversionRequest) -> ConversionResponse {
    let target = request.desired_api_version.as_str();
    let converted: Result<Vec<Value>, _> =
        request.objects.iter().map(|object| versions::convert(object, target)).collect();
    let response = ConversionResponse::for_request(request);
    match converted {
        Ok(objects) => response.success(objects),
        Err(error) => response.failure(Status::failure(&error.to_string(), "Invalid")),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::conversion::ConversionReview;
    use serde_json::json;

    use super::*;

    /// What is answered to objects, as an API server reads it.
    fn answer(to: &str, objects: &Value) -> Value {
        let review: ConversionReview = serde_json::from_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": { "uid": "u-1", "desiredAPIVersion": to, "objects": objects },
        }))
        .unwrap();
        let request = ConversionRequest::from_review(review).unwrap();
        serde_json::to_value(convert(request).into_review()).unwrap()
    }

    #[test]
    fn objects_are_answered_in_their_order_with_the_uid_of_the_request() {
        let object = |name: &str| {
            json!({ "apiVersion": "kubevirt.io/v1alpha2", "kind": "VirtualMachineInstance", "metadata": { "name": name },
                "spec": { "domain": { "devices": { "disks": [{ "name": "d", "volumeName": name }] } } } })
        };
        let answer = answer("kubevirt.io/v1", &json!([object("a"), object("b")]));
        assert_eq!(answer["kind"], "ConversionReview");
        assert_eq!(
            (&answer["response"]["uid"], &answer["response"]["result"]["status"]),
            (&json!("u-1"), &json!("Success"))
        );
        let disks =
            |index: usize| answer["response"]["convertedObjects"][index]["spec"]["domain"]["devices"]["disks"].clone();
        assert_eq!((disks(0), disks(1)), (json!([{ "name": "a" }]), json!([{ "name": "b" }])));
    }

    #[test]
    fn a_version_that_is_not_served_fails_the_request() {
        let answer = answer("kubevirt.io/v9", &json!([{ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine" }]));
        assert_eq!(answer["response"]["result"]["status"], "Failure");
        assert_eq!(answer["response"]["convertedObjects"], json!([]));
    }
}
