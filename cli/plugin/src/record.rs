//! The record of a machine that runs, part by part: the subresources `plan` and `logs` of our own group. Nothing of it goes through the pod,
//! where more could be done than to read.

use garboard_protocol::part::RecordPart;
use garboard_protocol::pod::LAUNCHER_PROGRAM;

use crate::failure::Failure;
use crate::find::{CONTAINER, Running};
use crate::kubectl::Kubectl;
use crate::subresource::{LOGS, PLAN};

/// The subresource that has a part, and what follows it.
const fn place(part: RecordPart) -> (&'static str, Option<&'static str>) {
    match part {
        RecordPart::Plan => (PLAN, None),
        RecordPart::Facts => (PLAN, Some("facts")),
        RecordPart::Options => (PLAN, Some("options")),
        RecordPart::Qmp => (LOGS, Some("qmp")),
        RecordPart::Qemu => (LOGS, Some("qemu")),
        RecordPart::Serial => (LOGS, Some("serial")),
        RecordPart::Exit => (LOGS, Some("exit")),
    }
}

/// A part of the record of a machine. A controller that is too old for it is not passed by: the refusal says what would have to be done.
pub(crate) fn read(kubectl: &Kubectl, machine: &Running, part: RecordPart) -> Result<Vec<u8>, Failure> {
    let (verb, tail) = place(part);
    let outcome = machine.subresource(verb).get(kubectl, tail);
    let Err(failure @ Failure::NotServed(_)) = &outcome else { return outcome };
    let (namespace, file) = (&machine.namespace, part.file());
    Err(Failure::Other(format!(
        "{failure}. Until then, with the right to create pods/exec and the machine's pod for POD: \
         kubectl exec -n {namespace} POD -c {CONTAINER} -- {LAUNCHER_PROGRAM} --show {file}"
    )))
}

#[cfg(test)]
mod tests {
    use garboard_subresources::record::Part;
    use garboard_subresources::route::{Endpoint, endpoint};
    use garboard_subresources::routes::Action;

    use super::*;

    fn machine() -> Running {
        Running { namespace: "tenant".to_owned(), name: "hello".to_owned() }
    }

    #[test]
    fn each_part_is_asked_for_at_a_path_that_the_controller_serves() {
        for part in RecordPart::ALL {
            let (verb, tail) = place(part);
            let below = tail.map(|tail| format!("/{tail}")).unwrap_or_default();
            let path = machine().subresource(verb).path() + &below;
            let Ok(Endpoint::Call(call)) = endpoint("GET", &path) else { panic!("{path}") };
            let Action::Show(shown) = call.route.action else { panic!("{path}") };
            let served: Part = Part::of(shown, &call).unwrap();
            assert_eq!(format!("{served:?}"), format!("{part:?}"), "{path}");
        }
    }

    /// With a kubectl that answers as the API server's client does.
    #[cfg(unix)]
    #[test]
    fn a_part_is_one_get_and_what_is_left_out_is_no_part_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let seen = directory.path().join("seen");
        let script = format!(
            "case $1 in config) exit ;; esac\necho \"$@\" >>'{}'\necho 'Warning: garboard: the first 7 bytes are left out' >&2\nprintf 'a\\nb'",
            seen.display()
        );
        let kubectl = Kubectl::played(directory.path(), &script);
        assert_eq!(read(&kubectl, &machine(), RecordPart::Serial).unwrap(), b"a\nb");
        let path = "/apis/subresources.garboard.dev/v1/namespaces/tenant/virtualmachineinstances/hello/logs/serial";
        assert_eq!(std::fs::read_to_string(seen).unwrap(), format!("get --raw {path}\n"));
    }

    #[cfg(unix)]
    #[test]
    fn a_controller_without_it_is_named_with_the_old_way_and_a_user_without_the_right_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let answers = |stderr: &str| {
            let kubectl = Kubectl::played(directory.path(), &format!("echo '{stderr}' >&2; exit 1"));
            read(&kubectl, &machine(), RecordPart::Plan).unwrap_err()
        };
        let old = answers("Error from server (NotFound): the server could not find the requested resource").to_string();
        let way = "kubectl exec -n tenant POD -c launcher -- /usr/bin/garboard-launcher --show plan.json";
        assert!(old.contains("does not serve virtualmachineinstances/plan") && old.ends_with(way), "{old}");
        let refused = answers(
            "Error from server (Forbidden): virtualmachineinstances.subresources.garboard.dev \"hello\" is forbidden: User \"bob\" cannot get resource \"virtualmachineinstances/plan\" in API group \"subresources.garboard.dev\" in the namespace \"tenant\"",
        );
        assert!(matches!(&refused, Failure::Forbidden(text) if text.contains("virtualmachineinstances/plan")));
        assert!(!refused.to_string().contains("exec"), "{refused}");
        let missing = answers("Error from server (NotFound): this run has no exit.json yet");
        assert_eq!(missing, Failure::NotFound("this run has no exit.json yet".to_owned()));
    }
}
