use garboard_protocol::testing::INSTANCE as VMI;
pub(crate) use garboard_protocol::testing::running as report;
use serde_json::json;

use super::*;

pub(crate) fn vmi(status: serde_json::Value) -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "default", "uid": VMI, "resourceVersion": "7"},
        "spec": {"domain": {"cpu": {"cores": 2}, "devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "volumes": [{"name": "root", "containerDisk": {"image": "i"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "kept"}}, {"name": "away", "containerDisk": {"image": "j"}}]},
        "status": status,
    }))
    .unwrap()
}

pub(crate) fn scheduled() -> serde_json::Value {
    json!({"phase": "Scheduled", "nodeName": "node-1", "activePods": {"pod": "node-1"},
        "conditions": [{"type": "Ready", "status": "False"}]})
}

pub(crate) fn ended(cause: ExitCause) -> Status {
    let message = cause.message();
    Status {
        phase: control::ReportedPhase::Failed,
        ended: Some(Ended { cause, message, report: None, at_ms: 5_000 }),
        ..report(9)
    }
}

fn next(report: &Status, vmi: &VirtualMachineInstance) -> Option<VirtualMachineInstanceStatus> {
    let addresses = ["10.244.1.7".to_owned(), "fd00::7".to_owned()];
    let claims =
        serde_json::from_value(json!({"kept": {"claimName": "kept", "capacity": {"storage": "1Gi"}}})).unwrap();
    let now = Timestamp::from_second(60).unwrap();
    next_status(&Seen { report, addresses: &addresses, claims: &claims, vmi, now })
}

fn with(mut vmi: VirtualMachineInstance, status: VirtualMachineInstanceStatus) -> VirtualMachineInstance {
    vmi.status = Some(status);
    vmi
}

fn kinds(status: &VirtualMachineInstanceStatus) -> Vec<&str> {
    status.conditions.iter().map(|one| one.r#type.as_str()).collect()
}

#[test]
fn a_running_machine_is_described() {
    let status = next(&report(1), &vmi(scheduled())).unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let written = serde_json::to_value(&status).unwrap();
    assert_eq!(written["phaseTransitionTimestamps"][0]["phaseTransitionTimestamp"], "1970-01-01T00:00:01Z");
    assert_eq!(
        written["interfaces"],
        json!([{"infoSource": "domain", "ipAddress": "10.244.1.7", "ipAddresses": ["10.244.1.7", "fd00::7"],
            "linkState": "up", "mac": "02:00:00:00:00:01", "name": "default", "podInterfaceName": "eth0", "queueCount": 2}])
    );
    assert_eq!(written["machine"]["type"], "pc-q35-7.2");
    assert_eq!(written["memory"]["guestCurrent"], "512Mi");
    assert_eq!(written["memory"]["memoryOverhead"], "55Mi");
    let claim = json!({"claimName": "kept", "capacity": {"storage": "1Gi"}});
    assert_eq!(
        written["volumeStatus"],
        json!([{"name": "away", "target": ""}, {"name": "data", "target": "sda", "persistentVolumeClaimInfo": claim},
            {"name": "root", "target": "vda"}])
    );
    assert_eq!(written["currentCPUTopology"], json!({"cores": 2, "sockets": 1, "threads": 1}));
    assert_eq!(kinds(&status), ["Ready"], "what is the controller's stays, and nothing is added");
}

#[test]
fn what_the_next_start_keeps_is_kept_if_a_plan_would_take_it() {
    let stored = json!({"version": 1, "machineType": "pc-q35-7.2", "cpu": "max", "pci": {"ports": [], "devices": {}},
        "macs": {}, "diskSerials": {}});
    let running = next(&Status { stored: Some(stored.clone()), ..report(1) }, &vmi(scheduled())).unwrap();
    assert_eq!(running.stored_machine, Some(stored.clone()));
    let mut newer = stored.clone();
    newer["version"] = json!(99);
    for lie in [json!({"machineType": 7}), newer] {
        let lying = Status { stored: Some(lie), ..report(2) };
        assert_eq!(next(&lying, &with(vmi(scheduled()), running.clone())), None, "what was stored stays");
    }
}

#[test]
fn a_supervisor_that_was_replaced_is_shown_and_one_without_a_report_of_itself_too() {
    let of = |version: &str, started_at_ms| {
        Some(control::SupervisorInfo { version: version.to_owned(), started_at_ms, executed_at_ms: None })
    };
    let first = next(&Status { supervisor: of("1.0.0", 1999), ..report(1) }, &vmi(scheduled())).unwrap();
    let written = serde_json::to_value(&first.supervisor).unwrap();
    assert_eq!(written, json!({"version": "1.0.0", "startedAt": "1970-01-01T00:00:01Z"}));
    let again = next(&Status { supervisor: of("1.0.0", 7000), ..report(2) }, &with(vmi(scheduled()), first)).unwrap();
    assert_ne!(again.supervisor, None);
    let older = next(&Status { supervisor: None, ..report(3) }, &with(vmi(scheduled()), again)).unwrap();
    assert_eq!(older.supervisor, None, "the report of the one before it is not true of it");
}

#[test]
fn the_same_report_again_changes_nothing() {
    let before = vmi(scheduled());
    let status = next(&report(1), &before).unwrap();
    assert_eq!(next(&report(2), &with(before, status)), None);
}

#[test]
fn phases_never_go_back() {
    for phase in ["Succeeded", "Failed"] {
        let mut status = scheduled();
        status["phase"] = json!(phase);
        assert_eq!(next(&report(1), &vmi(status.clone())), None);
        assert_eq!(next(&ended(ExitCause::GuestPanic), &vmi(status)), None);
    }
    assert_eq!(next(&Status { phase: control::ReportedPhase::Scheduled, ..report(1) }, &vmi(scheduled())), None);
}

#[test]
fn a_supervisor_that_has_just_started_again_takes_nothing_away() {
    let paused = Status { paused: Some(PauseReason::PausedByUser), ..report(1) };
    let running = with(vmi(scheduled()), next(&paused, &vmi(scheduled())).unwrap());
    let fresh = Status { machine: String::new(), memory_bytes: 0, vcpus: 0, interfaces: Vec::new(), ..report(2) };
    assert_eq!(next(&fresh, &running), None);
    assert_eq!(unpaused(&fresh), None);
}

#[test]
fn conditions_come_and_go() {
    let guest = garboard_protocol::control::GuestStatus { os: Some("Debian 12".into()), ..Default::default() };
    let busy = Status {
        paused: Some(PauseReason::PausedIOError),
        pause_message: Some("no space".into()),
        guest: Some(guest),
        software_emulation: true,
        ..report(1)
    };
    let first = with(vmi(scheduled()), next(&busy, &vmi(scheduled())).unwrap());
    let status = first.status.as_ref().unwrap();
    assert_eq!(kinds(status), ["Ready", "Paused", "AgentConnected", "SoftwareEmulation"]);
    assert_eq!(status.conditions[1].reason.as_deref(), Some("PausedIOError"));
    assert_eq!(status.conditions[1].message.as_deref(), Some("VMI was paused, low-level IO error detected: no space"));
    assert_eq!(status.guest_os_info.as_ref().unwrap().pretty_name.as_deref(), Some("Debian 12"));
    assert_eq!(next(&busy, &first), None, "the time of a condition alone is no change");

    let other = next(&Status { paused: Some(PauseReason::PausedByUser), pause_message: None, ..busy }, &first).unwrap();
    assert_eq!(other.conditions[1].last_transition_time, status.conditions[1].last_transition_time);
    let silent = Status { unresponsive: true, ended_helper: Some("passt".into()), ..report(2) };
    let silent = next(&silent, &first).unwrap();
    assert_eq!(kinds(&silent), ["Ready", "garboard.dev/Unresponsive", "garboard.dev/NetworkLost"]);
    let calm = next(&report(3), &first).unwrap();
    assert_eq!(kinds(&calm), ["Ready"]);
    assert_eq!(calm.guest_os_info, None);
}

#[test]
fn an_agent_that_lacks_a_command_is_not_supported_until_it_has_it_or_goes() {
    let with_agent = |commands: &[&str]| {
        let missing_commands = commands.iter().map(|command| (*command).to_owned()).collect();
        let guest = control::GuestStatus { missing_commands, ..Default::default() };
        Status { guest: Some(guest), ..report(1) }
    };
    let lacking = next(&with_agent(&["guest-get-users", "guest-get-time"]), &vmi(scheduled())).unwrap();
    assert_eq!(kinds(&lacking), ["Ready", "AgentConnected", "AgentVersionNotSupported"]);
    let message = lacking.conditions[2].message.as_deref().unwrap();
    assert!(message.ends_with(": guest-get-users, guest-get-time"), "{message}");
    let before = with(vmi(scheduled()), lacking);
    assert_eq!(kinds(&next(&with_agent(&[]), &before).unwrap()), ["Ready", "AgentConnected"]);
    assert_eq!(kinds(&next(&report(2), &before).unwrap()), ["Ready"]);
}

#[test]
fn the_credentials_of_the_guest_are_a_condition_that_another_supervisor_leaves_until_it_has_tried() {
    let tried = |synchronized, message: &str| {
        let credentials = control::CredentialsStatus { synchronized, message: message.to_owned() };
        Status { access_credentials: Some(credentials), ..report(1) }
    };
    let found = |vmi: &VirtualMachineInstance| {
        let status = vmi.status.as_ref().unwrap();
        let found = conditions::find(&status.conditions, VmiConditionType::AccessCredentialsSynchronized);
        found.map(|each| (each.status.clone(), each.reason.clone(), each.message.clone()))
    };
    let mut now = vmi(scheduled());
    let steps = [
        (tried(false, "Guest agent is offline"), ("False", Some("Guest agent is offline")), Some(EventType::Warning)),
        (tried(false, "the guest refused it"), ("False", Some("the guest refused it")), None),
        (tried(true, ""), ("True", None), Some(EventType::Normal)),
        (Status { supervisor_pid: 8, memory_bytes: 1 << 30, ..report(2) }, ("True", None), None),
    ];
    for (report, (status, message), event) in steps {
        let next = next(&report, &now).unwrap();
        let reasons = [Reason::AccessCredentialsSyncFailed, Reason::AccessCredentialsSyncSuccess];
        let events = events(now.status.as_ref(), &next).into_iter().filter(|each| reasons.contains(&each.reason));
        assert_eq!(events.map(|each| each.kind).collect::<Vec<_>>(), Vec::from_iter(event));
        now = with(now, next);
        assert_eq!(found(&now), Some((status.to_owned(), None, message.map(str::to_owned))));
    }
    assert_eq!(found(&with(vmi(scheduled()), next(&ended(ExitCause::GuestShutdown), &now).unwrap())), None);
}

#[test]
fn frozen_file_systems_are_reported_until_they_are_thawed() {
    let frozen = with(vmi(scheduled()), next(&Status { frozen: true, ..report(1) }, &vmi(scheduled())).unwrap());
    assert_eq!(frozen.status.as_ref().unwrap().fs_freeze_status.as_deref(), Some("frozen"));
    for after in [report(2), ended(ExitCause::ForceStopped)] {
        assert_eq!(next(&after, &frozen).unwrap().fs_freeze_status, None);
    }
}

#[test]
fn an_end_is_reported_with_its_cause() {
    let running = with(vmi(scheduled()), next(&report(1), &vmi(scheduled())).unwrap());
    let table = [
        (ExitCause::GuestShutdown, "Succeeded", None),
        (ExitCause::ForceStopped, "Succeeded", None),
        (ExitCause::GuestPanic, "Failed", Some("GuestPanic")),
        (ExitCause::OutOfMemory { limit_bytes: Some(1) }, "Failed", Some("OutOfMemory")),
        (ExitCause::NotStarted { message: "no disk".into() }, "Failed", Some("NotStarted")),
    ];
    for (cause, phase, reason) in table {
        let status = next(&ended(cause.clone()), &running).unwrap();
        assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some(phase), reason));
        let ended = status.conditions.iter().find(|one| one.r#type == "garboard.dev/Ended").unwrap();
        assert_eq!(ended.message, Some(message(&cause, &cause.message())));
        assert_eq!(status.phase_transition_timestamps.len(), 2);
        assert!(status.interfaces.len() == 1, "the last addresses stay for a diagnosis");
    }
    let never_ran = Status { machine: String::new(), ..ended(ExitCause::NotStarted { message: "no disk".into() }) };
    assert_eq!(next(&never_ran, &vmi(scheduled())).unwrap().phase.as_deref(), Some("Failed"));
}

#[test]
fn the_event_of_an_end_begins_with_its_cause() {
    let running = with(vmi(scheduled()), next(&report(1), &vmi(scheduled())).unwrap());
    for cause in garboard_protocol::testing::causes() {
        let status = next(&ended(cause.clone()), &running).unwrap();
        let events = events(running.status.as_ref(), &status);
        let [InstanceEvent { kind, reason: Reason::Stopped, note }] = events.as_slice() else { panic!("{events:?}") };
        let text = message(&cause, &cause.message());
        assert_eq!(Account::read(note), Account { reason: cause.reason(), message: &text });
        let is_forced = cause == ExitCause::GracePeriodExceeded;
        assert_eq!(*kind == EventType::Normal, cause.is_success() || is_forced, "{note}");
    }
}

#[test]
fn a_machine_that_qemu_could_not_be_started_with_has_another_event() {
    let reasons = |before: Phase, cause: ExitCause| -> Vec<(Reason, EventType)> {
        let status = next(&ended(cause), &vmi(scheduled())).unwrap();
        let mut old = scheduled();
        old["phase"] = json!(before.name());
        events(vmi(old).status.as_ref(), &status).into_iter().map(|event| (event.reason, event.kind)).collect()
    };
    let (failed, stopped) = ((Reason::SyncFailed, EventType::Warning), (Reason::Stopped, EventType::Warning));
    let not_started = || ExitCause::NotStarted { message: "no disk".into() };
    for before in [Phase::Pending, Phase::Scheduling, Phase::Scheduled] {
        assert_eq!(reasons(before, not_started()), [failed, stopped], "{before:?}");
        assert_eq!(reasons(before, ExitCause::QemuFailed { code: 1 }), [failed, stopped], "{before:?}");
        assert_eq!(reasons(before, ExitCause::GuestPanic), [stopped], "it was started: {before:?}");
    }
    assert_eq!(reasons(Phase::Running, ExitCause::QemuFailed { code: 1 }), [stopped]);
    let status = next(&ended(not_started()), &vmi(scheduled())).unwrap();
    let recorded = events(vmi(scheduled()).status.as_ref(), &status);
    assert_eq!(recorded[0].note, message(&not_started(), &not_started().message()));
}

/// An event is of the change: not of each report that a run goes on, or is over.
#[test]
fn a_start_has_an_event_and_another_one_where_kvm_is_slow() {
    let reasons = |before: Phase, report: &Status| -> Vec<Reason> {
        let status = next(report, &vmi(scheduled())).unwrap();
        let mut old = scheduled();
        old["phase"] = json!(before.name());
        events(vmi(old).status.as_ref(), &status).into_iter().map(|event| event.reason).collect()
    };
    let emulated = Status { software_emulation: true, ..report(1) };
    let interpreted = Status { interpreted_by_kvm: true, ..report(1) };
    for before in [Phase::Pending, Phase::Scheduling, Phase::Scheduled] {
        assert_eq!(reasons(before, &report(1)), [Reason::Created, Reason::Started]);
        assert_eq!(reasons(before, &emulated), [Reason::Created, Reason::Started]);
        let slow = [Reason::Created, Reason::Started, Reason::KvmInterpretsGuestCode];
        assert_eq!(reasons(before, &interpreted), slow);
    }
    assert!(reasons(Phase::Running, &interpreted).is_empty());
    let over = ended(ExitCause::GuestShutdown);
    assert_eq!(reasons(Phase::Scheduled, &over), [Reason::Stopped], "it ended before it was seen to run");
    assert!(reasons(Phase::Succeeded, &over).is_empty());
    let all = [report(1), emulated, interpreted, over];
    assert!(all.iter().flat_map(|report| reasons(Phase::Pending, report)).all(Reason::is_of_event));
}

#[test]
fn a_pause_and_its_end_have_an_event_each_and_one_that_storage_caused_is_a_warning() {
    let status_of = |report: &Status| next(report, &vmi(scheduled())).unwrap();
    let runs = status_of(&report(1));
    for (reason, kind) in
        [(PauseReason::PausedByUser, EventType::Normal), (PauseReason::PausedIOError, EventType::Warning)]
    {
        let paused = status_of(&Status { paused: Some(reason), ..report(2) });
        let recorded = |before, after| -> Vec<(Reason, EventType)> {
            events(Some(before), after).into_iter().map(|event| (event.reason, event.kind)).collect()
        };
        assert_eq!(recorded(&runs, &paused), [(Reason::Paused, kind)]);
        assert!(recorded(&paused, &paused).is_empty());
        assert_eq!(recorded(&paused, &runs), [(Reason::Unpaused, EventType::Normal)]);
    }
}

#[test]
fn the_link_of_a_card_is_what_its_supervisor_reports_and_of_an_earlier_one_as_it_was_plugged_at_the_start() {
    let state = |specified: serde_json::Value, reported: Option<Link>| {
        let (mut vmi, mut report) = (vmi(scheduled()), report(1));
        vmi.spec.domain.devices.interfaces[0].state = serde_json::from_value(specified).unwrap();
        report.interfaces[0].link = reported;
        next(&report, &vmi).unwrap().interfaces[0].link_state.clone().unwrap()
    };
    for (specified, reported, expected) in [
        (json!("down"), None, "down"),
        (json!("up"), None, "up"),
        (json!(null), None, "up"),
        (json!("down"), Some(Link::Up), "up"),
        (json!("up"), Some(Link::Down), "down"),
        (json!(null), Some(Link::Down), "down"),
    ] {
        assert_eq!(state(specified.clone(), reported), expected, "{specified} {reported:?}");
    }
}

#[test]
fn the_system_that_the_agent_names_is_reported_field_by_field() {
    let text = |value: &str| Some(value.to_owned());
    let guest = control::GuestStatus {
        os: text("Debian GNU/Linux 12 (bookworm)"),
        kernel: text("6.1.0-35-cloud-amd64"),
        system: control::GuestSystem {
            id: text("debian"),
            name: text("Debian GNU/Linux"),
            version: text("12 (bookworm)"),
            version_id: text("12"),
            kernel_version: text("#1 SMP"),
            machine: text("x86_64"),
        },
        ..control::GuestStatus::default()
    };
    let status = next(&Status { guest: Some(guest), ..report(1) }, &vmi(scheduled())).unwrap();
    let written = serde_json::to_value(status.guest_os_info).unwrap();
    let expected = json!({
        "id": "debian", "name": "Debian GNU/Linux", "prettyName": "Debian GNU/Linux 12 (bookworm)",
        "version": "12 (bookworm)", "versionId": "12", "kernelRelease": "6.1.0-35-cloud-amd64",
        "kernelVersion": "#1 SMP", "machine": "x86_64",
    });
    assert_eq!(written, expected);
}

#[test]
fn cards_that_only_the_guest_has_have_no_name() {
    let mut seen = report(1);
    let only_inside = InterfaceStatus {
        interface_name: Some("docker0".into()),
        addresses: vec!["172.17.0.1".into()],
        info_source: "guest-agent".into(),
        ..InterfaceStatus::default()
    };
    seen.interfaces.push(only_inside);
    let status = next(&seen, &vmi(scheduled())).unwrap();
    let card = &status.interfaces[1];
    assert_eq!((card.name.as_deref(), card.ip_address.as_deref()), (None, Some("172.17.0.1")));
    assert_eq!((card.pod_interface_name.as_deref(), card.mac.as_deref()), (None, None));
    assert_eq!((card.link_state.as_deref(), card.queue_count), (None, None), "only QEMU's own cards have them");
}

#[test]
fn the_gate_follows_the_processors() {
    assert_eq!(unpaused(&report(1)), Some(true));
    assert_eq!(unpaused(&Status { paused: Some(PauseReason::PausedByUser), ..report(1) }), Some(false));
    assert_eq!(unpaused(&Status { phase: control::ReportedPhase::Scheduled, ..report(1) }), None);
    assert_eq!(unpaused(&ended(ExitCause::GuestShutdown)), None);
}
