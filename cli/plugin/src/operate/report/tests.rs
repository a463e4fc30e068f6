use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::operate::emulation::EmulationSetting;

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, ready: &str, state: Value) -> Pod {
    typed(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": "node-1", "containers": []},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "c", "image": "garboard/node:0.1.0", "imageID": "", "ready": false, "restartCount": 4, "state": state}],
        },
    }))
}

fn node(name: &str) -> Node {
    typed(json!({
        "metadata": {
            "name": name,
            "labels": {"kubevirt.io/schedulable": "true", "kubernetes.io/os": "linux"},
            "annotations": {"kubevirt.io/heartbeat": "2026-01-01T00:00:00Z"},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"devices.kubevirt.io/tun": "1k", "devices.kubevirt.io/kvm": "1000"},
        },
    }))
}

fn well() -> Installation {
    let names = vec!["virtualmachines.kubevirt.io".to_owned(), "virtualmachineinstances.kubevirt.io".to_owned()];
    let template = |image: &str| json!({"spec": {"containers": [{"name": "c", "image": image}], "nodeSelector": {"kubernetes.io/os": "linux"}}});
    Installation {
        namespace: "garboard".to_owned(),
        wanted_definitions: names.clone(),
        established: names,
        controller: Some(typed(json!({
            "metadata": {"generation": 1},
            "spec": {"replicas": 2, "selector": {}, "template": template(&format!("garboard/controller:{VERSION}"))},
            "status": {"readyReplicas": 2, "updatedReplicas": 2, "observedGeneration": 1},
        }))),
        controllers: vec![pod("garboard-controller-a", "True", json!({"running": {}}))],
        agent: Some(typed(json!({
            "spec": {"selector": {}, "template": template(&format!("garboard/node:{VERSION}"))},
            "status": {"desiredNumberScheduled": 1, "numberReady": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0},
        }))),
        agents: vec![pod("garboard-node-a", "True", json!({"running": {}}))],
        dashboard: None,
        dashboards: Vec::new(),
        nodes: vec![node("node-1")],
        emulation: EmulationSetting::default(),
        machines: vec!["Running".to_owned(), "Stopped".to_owned(), "Running".to_owned()],
        interpreting: BTreeSet::new(),
        outdated: 0,
        stopped: None,
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

fn troubles(found: &Installation) -> String {
    judge(found, now()).troubles().join("\n")
}

#[test]
fn a_healthy_installation_has_a_line_for_each_part() {
    let report = judge(&well(), now());
    assert!(report.well && report.is_up(), "{report:?}");
    let lines: Vec<String> = report.parts.iter().map(|part| format!("{}: {}", part.name, part.summary)).collect();
    assert_eq!(
        lines,
        [
            "definitions: 2 of 2 established".to_owned(),
            format!("controller: 2 of 2 ready on node-1, garboard/controller:{VERSION}"),
            format!("agents: 1 of 1 ready, garboard/node:{VERSION}"),
            "nodes: 1 of 1 take machines, 1 with KVM".to_owned(),
            "machines: 2 Running, 1 Stopped".to_owned(),
        ]
    );
}

#[test]
fn nodes_whose_kvm_interprets_guest_code_are_counted_and_are_no_trouble() {
    let nodes = |names: &[&str]| {
        let interpreting = names.iter().map(|name| (*name).to_owned()).collect();
        let report =
            judge(&Installation { nodes: vec![node("node-1"), node("node-2")], interpreting, ..well() }, now());
        assert!(report.well, "{report:?}");
        report.parts.into_iter().find(|part| part.name == "nodes").unwrap().summary
    };
    let of_all = nodes(&["node-1", "node-2"]);
    assert!(of_all.starts_with("2 of 2 take machines, 2 with KVM that interprets guest code"), "{of_all}");
    let of_one = nodes(&["node-2", "gone"]);
    assert!(of_one.contains("2 with KVM, 1 of them with KVM that interprets guest code"), "{of_one}");
}

#[test]
fn outdated_supervisors_are_counted_and_a_roll_out_that_has_stopped_is_trouble() {
    let rolling = judge(&Installation { outdated: 2, ..well() }, now());
    assert!(rolling.well);
    let summary = &rolling.parts.last().unwrap().summary;
    assert_eq!(summary, "2 Running, 1 Stopped; 2 with a supervisor of another image");
    let stopped = judge(&Installation { outdated: 2, stopped: Some("ns/vm: why".into()), ..well() }, now());
    assert!(!stopped.well && stopped.is_up(), "machines are served all the same");
    assert!(stopped.troubles()[0].starts_with("no supervisor is replaced: ns/vm: why -> "), "{:?}", stopped.troubles());
}

#[test]
fn a_cluster_without_garboard_is_reported_as_such() {
    let report = judge(&Installation { nodes: vec![node("a")], ..Installation::default() }, now());
    assert!(!report.well && !report.installed && !report.is_up());
    assert_eq!(report.troubles(), ["Garboard is not installed here -> kubectl garboard cluster install"]);
}

#[test]
fn the_dashboard_is_a_part_where_it_was_chosen() {
    let deployment = |replicas: i32, ready: i32| -> Option<Deployment> {
        Some(typed(json!({
            "metadata": {"name": "garboard-dashboard", "generation": 1},
            "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {"readyReplicas": ready, "updatedReplicas": ready, "observedGeneration": 1},
        })))
    };
    let part = |found: &Installation| judge(found, now()).parts.into_iter().find(|part| part.name == "dashboard");
    assert_eq!(part(&well()), None);
    let serving = part(&Installation { dashboard: deployment(1, 1), ..well() }).unwrap();
    assert!(serving.well && serving.summary == "1 of 1 ready", "{serving:?}");
    let starting = judge(&Installation { dashboard: deployment(1, 0), ..well() }, now());
    assert!(!starting.is_up() && starting.progress().contains("dashboard: 0 of 1 ready"), "{starting:?}");
    let idle = part(&Installation { dashboard: deployment(0, 0), ..well() }).unwrap();
    assert_eq!(idle.troubles[0].remedy, "kubectl -n garboard scale deployment/garboard-dashboard --replicas=1");
}

#[test]
fn each_trouble_has_its_sentence_and_its_remedy() {
    let mut scaled = well();
    scaled.controller.as_mut().unwrap().spec.as_mut().unwrap().replicas = Some(0);
    assert!(troubles(&scaled).contains("scaled to nothing"));

    let mut half = well();
    half.controller.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = Some(1);
    assert!(troubles(&half).contains("1 of 2 are ready"));

    let mut pulling = well();
    for reason in ["ImagePullBackOff", "ErrImageNeverPull"] {
        pulling.agents = vec![pod("garboard-node-a", "False", json!({"waiting": {"reason": reason}}))];
        assert!(
            troubles(&pulling).contains("image garboard/node:0.1.0 cannot be had -> load the image"),
            "{}",
            troubles(&pulling)
        );
    }

    let mut crashing = well();
    crashing.agents = vec![pod("garboard-node-a", "False", json!({"waiting": {"reason": "CrashLoopBackOff"}}))];
    assert!(troubles(&crashing).contains("repeatedly (4 times)"));

    let mut gone = well();
    gone.agent = None;
    assert!(troubles(&gone).contains("node agents are not there"));

    let mut half_gone = well();
    half_gone.established.pop();
    assert!(troubles(&half_gone).contains("virtualmachineinstances.kubevirt.io is not there"));
}

#[test]
fn a_node_says_why_it_takes_no_machines() {
    let with = |change: &dyn Fn(&mut Node)| {
        let mut found = well();
        change(&mut found.nodes[0]);
        troubles(&found)
    };
    let unlabelled = with(&|node| {
        node.metadata.labels.as_mut().unwrap().insert("kubevirt.io/schedulable".into(), "false".into()).map_or((), drop)
    });
    assert!(unlabelled.contains("has not set the label"), "{unlabelled}");
    let silent = with(&|node| {
        let annotations = node.metadata.annotations.as_mut().unwrap();
        annotations.insert("kubevirt.io/heartbeat".into(), "2025-12-31T23:50:00Z".into());
    });
    assert!(silent.contains("no heartbeat for 11 min"), "{silent}");
    let connected = |value: &str| {
        with(&|node| {
            let annotations = node.metadata.annotations.as_mut().unwrap();
            annotations.insert("garboard.dev/connected-controllers".into(), value.into());
        })
    };
    let alone = connected("0 2026-01-01T00:00:00Z");
    assert!(alone.contains("the agent of node-1 is connected to no controller"), "{alone}");
    assert_eq!(connected("2 2026-01-01T00:00:00Z"), "");
    assert_eq!(connected("0 2025-12-31T00:00:00Z"), "", "an agent of a version before has taken its place");
    let lost = with(&|node| node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "Unknown".into());
    assert!(lost.contains("node-1 is not ready"), "{lost}");
    let without_kvm = with(&|node| {
        node.status.as_mut().unwrap().allocatable.as_mut().unwrap().remove("devices.kubevirt.io/kvm");
    });
    assert!(without_kvm.contains("--emulation"), "{without_kvm}");
    let mut emulated = well();
    emulated.emulation.object = Some(("garboard".into(), "kubevirt".into()));
    emulated.nodes[0].status.as_mut().unwrap().allocatable.as_mut().unwrap().remove("devices.kubevirt.io/kvm");
    // The argument would not count.
    let reported = troubles(&emulated);
    assert!(
        reported.contains("kubectl -n garboard patch kubevirt kubevirt") && !reported.contains("--emulation"),
        "{reported}"
    );
    emulated.emulation.allowed = true;
    assert_eq!(troubles(&emulated), "");
}

/// The same limit as the controller's, ten minutes.
#[test]
fn an_agent_is_silent_from_the_limit_on() {
    let silent_since = |heartbeat: &str| {
        let mut found = well();
        let annotations = found.nodes[0].metadata.annotations.as_mut().unwrap();
        annotations.insert("kubevirt.io/heartbeat".into(), heartbeat.into());
        troubles(&found)
    };
    assert_eq!(silent_since("2025-12-31T23:51:01Z"), "");
    let reported = silent_since("2025-12-31T23:51:00Z");
    assert!(reported.contains("no heartbeat for 10 min"), "{reported}");
}

#[test]
fn another_release_is_named() {
    let mut found = well();
    let template = &mut found.controller.as_mut().unwrap().spec.as_mut().unwrap().template;
    template.spec.as_mut().unwrap().containers[0].image = Some("garboard/controller:0.0.1".into());
    let report = judge(&found, now());
    assert!(report.parts[1].summary.contains("garboard/controller:0.0.1 (this program is"), "{report:?}");
    let template = &mut found.controller.as_mut().unwrap().spec.as_mut().unwrap().template;
    let pinned = format!("r.example:5000/garboard/controller:{VERSION}@sha256:{}", "a".repeat(64));
    template.spec.as_mut().unwrap().containers[0].image = Some(pinned.clone());
    let summary = judge(&found, now()).parts[1].summary.clone();
    assert!(summary.ends_with(&pinned), "a digest is no other release: {summary}");
}
