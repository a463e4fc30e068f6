//! From what was found to what the API server answers its client.

use garboard_api::Fault;
use garboard_api::fault::{MOST_LISTED, in_one_line};
use kube::core::Status;
use kube::core::admission::AdmissionResponse;
use kube::core::response::{StatusCause, StatusDetails};

/// HTTP's status for an object that was understood and is not right.
const UNPROCESSABLE: u16 = 422;
const FORBIDDEN: u16 = 403;

/// A refusal with its causes: code 422, reason `Invalid`. What KubeVirt's clients compare has its text, and ours is a warning beside it.
pub(super) fn refuse(response: AdmissionResponse, faults: &[Fault]) -> AdmissionResponse {
    let causes = faults.iter().take(MOST_LISTED).map(|fault| StatusCause {
        reason: fault.code.reason().to_owned(),
        message: fault.sent_text().unwrap_or_else(|| cause(fault)),
        field: fault.field.clone(),
    });
    let details = StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: causes.collect(),
        retry_after_seconds: 0,
    };
    let text = |fault: &Fault| fault.sent_text().unwrap_or_else(|| fault.to_string());
    let status = Status::failure(&in_one_line(faults, text), "Invalid").with_code(UNPROCESSABLE).with_details(details);
    let explained: Vec<Fault> = faults.iter().filter(|fault| fault.sent.is_some()).cloned().collect();
    warn(denied(response, status), &explained)
}

/// A refusal for who asks, not for what is asked.
pub(super) fn forbid(response: AdmissionResponse, message: &str) -> AdmissionResponse {
    let status = Status::failure(message, "Forbidden").with_code(FORBIDDEN);
    denied(response, status)
}

/// kubectl shows a cause as `field: message`: the path is added where the field is spelt in KubeVirt's own way.
fn cause(fault: &Fault) -> String {
    if fault.field == fault.path.as_str() {
        Fault { path: garboard_api::FieldPath::root(), ..fault.clone() }.to_string()
    } else {
        fault.to_string()
    }
}

pub(super) fn denied(mut response: AdmissionResponse, status: Status) -> AdmissionResponse {
    response.allowed = false;
    response.result = status;
    response
}

/// Adds warnings, which `kubectl` shows beside a refusal, too. The API server cuts them at 256 characters each, and all at 4096.
pub(super) fn warn(mut response: AdmissionResponse, warnings: &[Fault]) -> AdmissionResponse {
    let texts = warnings.iter().take(MOST_LISTED).map(ToString::to_string);
    let all: Vec<String> = response.warnings.take().unwrap_or_default().into_iter().chain(texts).collect();
    response.warnings = Some(all).filter(|all| !all.is_empty());
    response
}

#[cfg(test)]
mod tests {
    use garboard_api::{FaultCode, FieldPath, SentText};

    use super::*;

    #[test]
    fn faults_are_one_line_and_the_eleventh_is_counted() {
        let faults: Vec<Fault> = (0..12)
            .map(|number| {
                let path = FieldPath::from("spec.x").index(number);
                Fault::new(path, FaultCode::Invalid, "no").instead("write 1")
            })
            .collect();
        let table = [
            (1, "spec.x[0]: no; write 1".to_owned()),
            (2, "spec.x[0]: no; write 1, spec.x[1]: no; write 1".to_owned()),
            (12, {
                let first = (0..10).map(|number| format!("spec.x[{number}]: no; write 1")).collect::<Vec<_>>();
                format!("{}, and 2 more validation errors", first.join(", "))
            }),
        ];
        for (count, text) in table {
            assert_eq!(refuse(AdmissionResponse::invalid(""), &faults[..count]).result.message, text);
        }
        let response = refuse(AdmissionResponse::invalid(""), &faults);
        assert_eq!((response.result.code, response.result.reason.as_str()), (422, "Invalid"));
        assert_eq!(response.result.details.map(|details| details.causes.len()), Some(10));
    }

    #[test]
    fn what_clients_compare_is_sent_as_kubevirts_text_with_ours_beside_it() {
        let at = |path: &str| Fault::new(FieldPath::from(path), FaultCode::Invalid, "no").instead("write 1");
        let known = warn(AdmissionResponse::invalid(""), &[at("spec.w")]);
        let response = refuse(known, &[at("spec.x").sent(SentText::Conflict), at("spec.y")]);
        let sent = "VM field(s) spec.x conflicts with selected instance type";
        assert_eq!(response.result.message, format!("{sent}, spec.y: no; write 1"));
        let causes = response.result.details.map(|details| details.causes).unwrap_or_default();
        let shown: Vec<(&str, &str)> =
            causes.iter().map(|cause| (cause.field.as_str(), cause.message.as_str())).collect();
        assert_eq!(shown, [("spec.x", sent), ("spec.y", "no; write 1")]);
        assert_eq!(response.warnings.unwrap_or_default(), ["spec.w: no; write 1", "spec.x: no; write 1"]);
    }
}
