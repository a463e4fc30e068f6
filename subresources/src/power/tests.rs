//! The table of KubeVirt's start, stop and restart.

use super::*;

fn vm(strategy: &str, requests: &[&str]) -> VirtualMachine {
    let requests: Vec<Value> = requests.iter().map(|action| json!({ "action": action })).collect();
    let spec = match strategy {
        "true" | "false" => json!({ "running": strategy == "true" }),
        name => json!({ "runStrategy": name }),
    };
    let status = json!({ "stateChangeRequests": requests });
    let metadata = json!({ "name": "a", "resourceVersion": "7" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
}

/// An instance in a phase; `-` is one without a status, nothing is none.
fn vmi(phase: &str) -> Option<VirtualMachineInstance> {
    let status = if phase == "-" { json!({}) } else { json!({ "phase": phase }) };
    let value =
        json!({ "metadata": { "uid": "u" }, "spec": { "terminationGracePeriodSeconds": 60 }, "status": status });
    (!phase.is_empty()).then(|| serde_json::from_value(value).unwrap())
}

/// What it comes to: `N s, then` where the guest is given more time before, the value that is written, `+N` for a pod that is deleted
/// within N seconds, or code and message.
fn outcome_of(outcome: Result<Change, Refusal>) -> String {
    let change = match outcome {
        Ok(change) => change,
        Err(refusal) => {
            let message = refusal.status(None).message.unwrap();
            return format!("{}: {}", refusal.code(), message.split(": ").last().unwrap());
        }
    };
    let written = change.patch.map(|(part, patch)| {
        let last = patch.as_array().unwrap().iter().rfind(|each| each["op"] != "remove").unwrap();
        match part {
            Part::Spec => last["value"].to_string().replace('"', ""),
            Part::Status => {
                let actions = last["value"].as_array().unwrap().iter();
                actions.map(|one| one["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(",")
            }
        }
    });
    let ending = change.end_within.map(|seconds| format!("+{seconds}")).unwrap_or_default();
    let longer = change.longer.map(|longer| format!("{} s, then ", longer.seconds)).unwrap_or_default();
    format!("{longer}{}{ending}", written.unwrap_or_default())
}

fn on(
    strategy: &str,
    phase: &str,
    requests: &[&str],
    decide: impl Fn(&Machine<'_>) -> Result<Change, Refusal>,
) -> String {
    let (vm, vmi) = (vm(strategy, requests), vmi(phase));
    outcome_of(decide(&Machine { vm: &vm, vmi: vmi.as_ref() }))
}

#[test]
fn a_start_is_a_strategy_or_a_request() {
    let table = [
        ("Halted", "", &[][..], "Always"),
        ("false", "", &[], "true"),
        ("Halted", "Running", &[], "409: VM is already running"),
        ("Halted", "Pending", &[], "409: VM is already running"),
        ("Halted", "-", &[], "Always"),
        ("Halted", "Unknown", &[], "Always"),
        ("Always", "", &[], "409: Always does not support manual start requests"),
        ("Once", "Succeeded", &[], "409: Once does not support manual start requests"),
        ("Manual", "", &[], "Start"),
        ("Manual", "Succeeded", &[], "Stop,Start"),
        ("Manual", "Failed", &[], "Stop,Start"),
        ("Manual", "", &["Start"], "409: stop/start already underway"),
        ("RerunOnFailure", "", &[], "Start"),
        ("RerunOnFailure", "Succeeded", &[], "Stop,Start"),
        ("RerunOnFailure", "Failed", &[], "409: RerunOnFailure does not support starting VM from failed state"),
        ("WaitAsReceiver", "", &[], "409: runStrategy WaitAsReceiver is not supported; write another one"),
    ];
    for (strategy, phase, requests, expected) in table {
        let outcome = on(strategy, phase, requests, |machine| start(machine, &StartOptions::default()));
        assert_eq!(outcome, expected, "{strategy} {phase} {requests:?}");
    }
}

#[test]
fn a_paused_start_is_a_request_also_of_a_halted_machine() {
    let (vm, paused) = (vm("Halted", &[]), StartOptions { paused: true, dry_run: None });
    let change = start(&Machine { vm: &vm, vmi: None }, &paused).unwrap();
    let (part, patch) = change.patch.unwrap();
    assert_eq!(part, Part::Status);
    assert_eq!(patch[1]["value"], json!([{ "action": "Start", "data": { "paused": "true" } }]));
}

#[test]
fn a_stop_is_a_strategy_or_a_request_and_may_hurry() {
    let not_running = "409: VM is not running";
    let too_long = "400: gracePeriod has to be less or equal to 31622400, which are 366 days";
    let table = [
        ("Always", "Running", &[][..], None, "Halted"),
        ("true", "Running", &[], None, "false"),
        ("Always", "", &[], None, "Halted"),
        ("Once", "Running", &[], Some(5), "Halted+5"),
        ("Always", "Running", &[], Some(0), "Halted+1"),
        ("Always", "Running", &[], Some(60), "Halted"),
        ("Always", "Running", &[], Some(61), "61 s, then Halted"),
        ("Always", "", &[], Some(61), "Halted"),
        ("Manual", "Running", &[], Some(3600), "3600 s, then Stop"),
        ("Always", "Running", &[], Some(31_622_401), too_long),
        ("Always", "Running", &[], Some(-1), "400: gracePeriod has to be greater or equal to 0"),
        ("Manual", "Running", &[], None, "Stop"),
        ("Manual", "Running", &["Start"], None, "Stop"),
        ("Manual", "Running", &["Stop"], Some(3), "Stop+3"),
        ("Manual", "", &[], None, not_running),
        ("Manual", "Succeeded", &[], None, not_running),
        ("RerunOnFailure", "Failed", &[], None, not_running),
        ("Halted", "", &[], None, not_running),
        ("Halted", "Running", &[], None, "409: Halted only supports manual stop requests with a shorter graceperiod"),
        ("Halted", "Running", &[], Some(5), "+5"),
        (
            "Halted",
            "Running",
            &[],
            Some(60),
            "409: Halted only supports manual stop requests with a shorter graceperiod",
        ),
        (
            "Halted",
            "Running",
            &[],
            Some(61),
            "409: Halted only supports manual stop requests with a shorter graceperiod",
        ),
    ];
    for (strategy, phase, requests, grace_period, expected) in table {
        let options = StopOptions { grace_period, dry_run: None };
        let outcome = on(strategy, phase, requests, |machine| stop(machine, &options));
        assert_eq!(outcome, expected, "{strategy} {phase} {requests:?} {grace_period:?}");
    }
}

#[test]
fn a_stop_with_a_time_of_its_own_writes_it_into_the_instance() {
    let (vm, path) = (vm("Always", &[]), "/spec/terminationGracePeriodSeconds");
    let patch = |own: Option<i64>, grace_period: Option<i64>| {
        let mut vmi = vmi("Running").unwrap();
        vmi.spec.termination_grace_period_seconds = own;
        let options = StopOptions { grace_period, dry_run: None };
        stop(&Machine { vm: &vm, vmi: Some(&vmi) }, &options).unwrap().instance_patch
    };
    let test = |path: &str, value: Value| json!({ "op": "test", "path": path, "value": value });
    let (uid, own) = (test("/metadata/uid", json!("u")), test(path, json!(60)));
    let add = json!({ "op": "add", "path": path, "value": 0 });
    assert_eq!(patch(Some(60), Some(0)), Some(json!([uid, own, add])));
    assert_eq!(patch(None, Some(0)), Some(json!([uid, add])));
    for unchanged in [None, Some(60)] {
        assert_eq!(patch(Some(60), unchanged), None);
    }
    let options = StopOptions { grace_period: Some(90), dry_run: None };
    let running = vmi("Running").unwrap();
    let change = stop(&Machine { vm: &vm, vmi: Some(&running) }, &options).unwrap();
    let add = json!({ "op": "add", "path": path, "value": 90 });
    assert_eq!(change.longer.unwrap().instance_patch, json!([uid, own, add]));
    assert_eq!((change.instance_patch, change.end_within), (None, None), "the pod goes as it goes without a stop");
    let restarted = RestartOptions { grace_period_seconds: Some(0), dry_run: None };
    let running = vmi("Running");
    let change = restart(&Machine { vm: &vm, vmi: running.as_ref() }, &restarted).unwrap();
    assert_eq!((change.instance_patch, change.end_within), (None, Some(1)));
}

#[test]
fn an_instance_that_is_being_deleted_gets_no_more_time_and_may_get_less() {
    let (vm, mut vmi) = (vm("Manual", &[]), vmi("Running").unwrap());
    vmi.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-26T00:00:00Z")).unwrap();
    for (grace_period, expected) in
        [(Some(61), "409: it is being deleted"), (Some(60), "Stop"), (Some(5), "Stop+5"), (None, "Stop")]
    {
        let options = StopOptions { grace_period, dry_run: None };
        let outcome = outcome_of(stop(&Machine { vm: &vm, vmi: Some(&vmi) }, &options));
        assert_eq!(outcome, expected, "{grace_period:?}");
    }
}

#[test]
fn a_restart_is_a_stop_and_a_start() {
    let table = [
        ("Always", "Running", &[][..], None, "Stop,Start"),
        ("Manual", "Running", &[], Some(0), "Stop,Start+1"),
        ("RerunOnFailure", "Failed", &[], None, "Stop,Start"),
        ("Manual", "Running", &["Stop"], None, "409: stop/start already underway"),
        ("Manual", "Running", &[], Some(5), "400: For force restart, only gracePeriod=0 is supported for now"),
        ("Manual", "Running", &[], Some(-5), "400: gracePeriod has to be greater or equal to 0"),
        ("Manual", "", &[], None, "409: Halted"),
        ("Halted", "Running", &[], None, "409: RunStategy Halted does not support manual restart requests"),
        ("Once", "Running", &[], None, "409: RunStategy Once does not support manual restart requests"),
    ];
    for (strategy, phase, requests, grace_period_seconds, expected) in table {
        let options = RestartOptions { grace_period_seconds, dry_run: None };
        let outcome = on(strategy, phase, requests, |machine| restart(machine, &options));
        assert_eq!(outcome, expected, "{strategy} {phase} {requests:?} {grace_period_seconds:?}");
    }
}

#[test]
fn a_patch_tests_what_was_decided_on_and_forgets_starts_that_failed() {
    let mut machine = vm("Manual", &[]);
    let patch =
        |vm: &VirtualMachine| start(&Machine { vm, vmi: None }, &StartOptions::default()).unwrap().patch.unwrap().1;
    assert_eq!(patch(&machine)[0], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" }));
    machine.status.as_mut().unwrap().start_failure = Some(garboard_api::v1::VirtualMachineStartFailure::default());
    assert_eq!(patch(&machine)[2], json!({ "op": "remove", "path": "/status/startFailure" }));
    machine.status = None;
    assert_eq!(patch(&machine)[0]["path"], "/status");
    let halted = vm("Halted", &[]);
    let (_, patch) = start(&Machine { vm: &halted, vmi: None }, &StartOptions::default()).unwrap().patch.unwrap();
    assert_eq!(patch[0], json!({ "op": "test", "path": "/spec/runStrategy", "value": "Halted" }));
}

#[test]
fn a_machine_whose_volumes_need_hands_is_not_started_and_one_whose_volumes_move_is_not_restarted() {
    let with = |condition: &str, status: &str| {
        let mut machine = vm("Manual", &[]);
        let condition = json!({ "type": condition, "status": status });
        machine.status.as_mut().unwrap().conditions = vec![serde_json::from_value(condition).unwrap()];
        machine
    };
    let running = vmi("Running");
    let starts = |vm: &VirtualMachine| outcome_of(start(&Machine { vm, vmi: None }, &StartOptions::default()));
    let restarts =
        |vm: &VirtualMachine| outcome_of(restart(&Machine { vm, vmi: running.as_ref() }, &RestartOptions::default()));
    let failed = "409: a volume migration failed, and its volumes have to be put right by hand";
    assert_eq!(starts(&with("ManualRecoveryRequired", "True")), failed);
    let goes_on =
        "409: its volumes are being copied to other claims, and would be half there; restart it when they are";
    assert_eq!(restarts(&with("VolumesChange", "True")), goes_on);
    assert_eq!(restarts(&with("VolumesChange", "False")), "Stop,Start");
    assert_eq!(starts(&with("VolumesChange", "True")), "Start");
}
