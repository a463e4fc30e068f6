//! `expand-spec` and `expand-vm-spec`: the VirtualMachine that a request carries, and what is answered (KubeVirt's
//! `pkg/virt-api/rest/expand.go`). Pure.

use std::borrow::Cow;

use garboard_api::fault::{MOST_LISTED, in_one_line};
use garboard_api::instancetype::{self, Sizing};
use garboard_api::{ClusterConfig, Fault, Kind, VirtualMachine, schema};
use serde_json::{Value, json};

use crate::body::unread;
use crate::instance::bad;
use crate::refusal::{Cause, Refusal};

const KIND: &str = Kind::VirtualMachine.name();
/// KubeVirt's message for what is none.
const NOT_VALID: &str = "Object is not a valid VirtualMachine";
/// The longest text of a fault, in characters: a path has the names that the request wrote.
const LONGEST_CAUSE: usize = 400;

/// The VirtualMachine of `expand-vm-spec`, in the namespace of the path. It may leave out its kind.
///
/// # Errors
/// The body is empty, no JSON, of another kind, names another namespace, or has fields that are wrong or that nothing reads.
pub fn carried(namespace: &str, body: &[u8]) -> Result<VirtualMachine, Refusal> {
    if body.trim_ascii().is_empty() {
        return Err(bad("empty request body"));
    }
    let document: Value = serde_json::from_slice(body).map_err(|error| unread(&error))?;
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    if !kind.is_empty() && kind != KIND {
        let message = format!("it is of the kind {}; write {KIND}, or leave the kind out", shortened(kind));
        let cause = Cause { field: "kind".to_owned(), message: message.clone() };
        return Err(Refusal::BadObject { message: format!("{NOT_VALID}: kind: {message}"), causes: vec![cause] });
    }
    let inspection = schema::inspect_as(Kind::VirtualMachine, document);
    if !inspection.faults.is_empty() {
        return Err(invalid(&inspection.faults));
    }
    let mut vm: VirtualMachine =
        serde_json::from_value(inspection.rest).map_err(|error| bad(&format!("{NOT_VALID}: {error}")))?;
    match vm.metadata.namespace.as_deref() {
        None | Some("") => vm.metadata.namespace = Some(namespace.to_owned()),
        Some(own) if own == namespace => {}
        Some(_) => return Err(bad(&format!("VM namespace must be empty or {namespace}"))),
    }
    Ok(vm)
}

/// `virtctl` prints the message alone: it has the faults, too.
fn invalid(faults: &[Fault]) -> Refusal {
    let text = |fault: &Fault| shortened(&fault.to_string());
    let message = format!("{NOT_VALID}: {}", in_one_line(faults, text));
    let cause = |fault: &Fault| Cause { field: shortened(&fault.field), message: text(fault) };
    Refusal::BadObject { message, causes: faults.iter().take(MOST_LISTED).map(cause).collect() }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST_CAUSE).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The answer: the machine with its instancetype and its preference in its template. One that names neither is its own expansion. A
/// message is KubeVirt's, word for word, where its clients compare it.
///
/// # Errors
/// One of the two was not found, or they do not fit; `refusal` makes the answer of the route.
pub fn expanded(
    vm: &VirtualMachine,
    sizing: &Sizing,
    config: &ClusterConfig,
    refusal: fn(String) -> Refusal,
) -> Result<Value, Refusal> {
    let message = |faults: &[Fault]| {
        let text = |fault: &Fault| shortened(&fault.sent_text().unwrap_or_else(|| fault.to_string()));
        faults.iter().take(MOST_LISTED).map(text).collect::<Vec<String>>().join(", ")
    };
    if !sizing.is_complete(vm) {
        return Err(refusal(message(&sizing.missing)));
    }
    let names_any = vm.spec.instancetype.is_some() || vm.spec.preference.is_some();
    let whole = if names_any {
        Cow::Owned(instancetype::expanded(vm, sizing, config).map_err(|faults| refusal(message(&faults)))?)
    } else {
        Cow::Borrowed(vm)
    };
    let mut document = serde_json::to_value(&*whole).map_err(|error| Refusal::Internal(error.to_string()))?;
    document["apiVersion"] = json!(garboard_api::v1::API_VERSION);
    document["kind"] = json!(KIND);
    Ok(document)
}

#[cfg(test)]
mod tests {
    use garboard_api::{FaultCode, FieldPath, SentText};

    use super::*;

    fn vm(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let domain = json!({"cpu": {"cores": 2}, "devices": {}, "memory": {"guest": "64Mi"}});
        let mut vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "a", "creationTimestamp": null},
            "spec": {"runStrategy": "Halted", "template": {"metadata": {}, "spec": {"domain": domain}}}, "status": {},
        });
        change(&mut vm);
        vm.to_string().into_bytes()
    }

    #[test]
    fn a_machine_is_taken_with_its_kind_or_without_and_is_of_the_namespace_of_the_path() {
        let bodies = [
            vm(|_| {}),
            vm(|vm| drop(vm.as_object_mut().unwrap().remove("kind"))),
            vm(|vm| vm["kind"] = json!("")),
            vm(|vm| drop(vm.as_object_mut().unwrap().remove("apiVersion"))),
            vm(|vm| vm["metadata"]["namespace"] = json!("n")),
            vm(|vm| vm["status"]["later"] = json!(1)),
        ];
        for body in bodies {
            let vm = carried("n", &body).unwrap();
            assert_eq!(vm.metadata.namespace.as_deref(), Some("n"));
            let config = ClusterConfig::default();
            let answer = expanded(&vm, &Sizing::default(), &config, Refusal::BadRequest).unwrap();
            assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!("VirtualMachine"), &json!("kubevirt.io/v1")));
            assert_eq!(answer["spec"]["template"]["spec"]["domain"]["cpu"]["cores"], 2);
        }
    }

    #[test]
    fn what_is_no_machine_of_the_namespace_is_refused() {
        let table: [(Vec<u8>, &str); 7] = [
            (Vec::new(), "empty request body"),
            (b" \n".to_vec(), "empty request body"),
            (b"this is {{".to_vec(), "Can not unmarshal Request body to struct, error: "),
            (b"[]".to_vec(), "Object is not a valid VirtualMachine: "),
            (br#"{"stringField": "test", "intField": 10}"#.to_vec(), "Object is not a valid VirtualMachine: "),
            (vm(|vm| vm["kind"] = json!("Pod")), "Object is not a valid VirtualMachine: kind: it is of the kind Pod"),
            (vm(|vm| vm["metadata"]["namespace"] = json!("m")), "VM namespace must be empty or n"),
        ];
        for (body, text) in table {
            let refusal = carried("n", &body).unwrap_err();
            let message = refusal.status(None).message.unwrap();
            assert!(refusal.code() == 400 && message.starts_with(text), "{message}");
        }
    }

    #[test]
    fn each_wrong_field_is_a_cause() {
        let body = vm(|vm| {
            vm["spec"]["template"]["spec"]["domain"]["cpus"] = json!({"cores": 2});
            vm["spec"]["runStrategy"] = json!(true);
        });
        let refusal = carried("n", &body).unwrap_err();
        let status = serde_json::to_value(refusal.status(None)).unwrap();
        assert_eq!((refusal.code(), &status["reason"]), (400, &json!("BadRequest")));
        let causes = status["details"]["causes"].as_array().unwrap();
        let mut fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["spec.runStrategy", "spec.template.spec.domain.cpus"]);
        let message = status["message"].as_str().unwrap();
        for cause in causes {
            assert!(message.contains(cause["message"].as_str().unwrap()), "{message}: {cause}");
        }
    }

    #[test]
    fn an_answer_has_a_bound_however_much_is_wrong() {
        let body = vm(|vm| {
            let spec = vm["spec"].as_object_mut().unwrap();
            spec.extend((0..50).map(|number| ("x".repeat(5000) + &number.to_string(), json!(1))));
        });
        let Refusal::BadObject { message, causes } = carried("n", &body).unwrap_err() else { panic!("not refused so") };
        assert_eq!(causes.len(), MOST_LISTED);
        assert!(
            message.ends_with(", and 40 more validation errors") && message.len() < 5000,
            "{} {message:.80}",
            message.len()
        );
    }

    #[test]
    fn what_a_machine_names_is_written_out_or_refused_as_the_route_has_it() {
        let config = ClusterConfig::default();
        let body = vm(|vm| {
            vm["spec"]["instancetype"] = json!({"name": "u1.small"});
            vm["spec"]["template"]["spec"]["domain"] = json!({"devices": {}});
        });
        let mut vm: VirtualMachine = carried("n", &body).unwrap();
        let mut sizing = Sizing::default();
        assert_eq!(expanded(&vm, &sizing, &config, Refusal::BadRequest).unwrap_err().code(), 400, "it was not found");
        assert_eq!(expanded(&vm, &sizing, &config, Refusal::Internal).unwrap_err().code(), 500);
        let resource = "virtualmachineclusterinstancetypes.instancetype.kubevirt.io".to_owned();
        let absent = Fault::new(FieldPath::from("spec.instancetype.name"), FaultCode::NotFound, "it does not exist");
        let named = SentText::NoObject { resource, name: "u1.small".to_owned() };
        let missing = Sizing { missing: vec![absent.sent(named)], ..Sizing::default() };
        let message = expanded(&vm, &missing, &config, Refusal::BadRequest).unwrap_err().status(None).message;
        let known = "virtualmachineclusterinstancetypes.instancetype.kubevirt.io \"u1.small\" not found";
        assert_eq!(message.as_deref(), Some(known));
        let size = json!({"cpu": {"guest": 3}, "memory": {"guest": "2Gi"}});
        sizing.take(instancetype::Role::Instancetype, &size).unwrap();
        let answer = expanded(&vm, &sizing, &config, Refusal::BadRequest).unwrap();
        assert_eq!(answer["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"], 3);
        assert_eq!(answer["spec"]["instancetype"], Value::Null);
        let cpu = &mut vm.spec.template.spec.as_mut().unwrap().domain.cpu;
        cpu.get_or_insert_default().sockets = Some(1);
        let refusal = expanded(&vm, &sizing, &config, Refusal::BadRequest).unwrap_err();
        let message = refusal.status(None).message.unwrap();
        let known = "VM field(s) spec.template.spec.domain.cpu.sockets conflicts with selected instance type";
        assert_eq!(message, known);
    }
}
