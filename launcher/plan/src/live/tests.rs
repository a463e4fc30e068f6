use serde_json::json;

use super::*;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

#[test]
fn an_argv_is_read_in_both_of_its_forms() {
    let argv = owned(&[
        "/usr/bin/qemu",
        "-S",
        "-blockdev",
        r#"{"driver":"qcow2","node-name":"top","file":{"driver":"file","node-name":"top-file"}}"#,
        "-blockdev",
        "driver=raw,node-name=base,file.driver=file,file.node-name=base-file,file.filename=/a,,node-name=x",
        "-chardev",
        "socket,id=monitor,fd=10,server=on,wait=off",
        "-netdev",
        r#"{"type":"tap","id":"net0"}"#,
        "-netdev",
        "tap,id=net1,fds=3:4",
        "-device",
        r#"{"driver":"virtio-blk-pci","id":"disk"}"#,
        "-device",
        "virtio-rng-pci,id=rng,rng=rng0",
        "-device",
        "pvpanic",
        "-add-fd",
        "fd=1,set=1,opaque=id",
    ]);
    let held = argv::held_by(&argv);
    assert_eq!(held.block_nodes, set(&["base", "base-file", "top", "top-file"]));
    assert_eq!(held.devices, set(&["disk", "rng"]));
    assert_eq!(held.chardevs, set(&["monitor"]));
    assert_eq!(held.netdevs, set(&["net0", "net1"]));
}

#[test]
fn what_qemu_reports_is_taken_over_and_what_is_new_is_returned() {
    let drive = |is_open, medium: Option<&str>| {
        [("cd".to_owned(), Drive { is_open, medium: medium.map(str::to_owned) })].into_iter().collect()
    };
    let held = HeldByQemu {
        block_nodes: set(&["root", "cd"]),
        devices: set(&["root", "cd", "nic"]),
        chardevs: set(&["monitor"]),
        netdevs: set(&["net0"]),
        drives: drive(false, Some("cd")),
    };
    let mut live = LivePlan { version: LIVE_VERSION, held: held.clone(), pending: Vec::new() };
    assert!(live.observe(HeldByQemu { netdevs: BTreeSet::new(), ..held.clone() }).is_empty(), "network backends stay");
    let observed = HeldByQemu { block_nodes: set(&["root", "new"]), drives: drive(true, None), ..held };
    let difference = live.observe(observed.clone());
    assert_eq!(difference.missing, ["block node cd"]);
    assert_eq!(difference.added, ["block node new"]);
    assert_eq!(difference.changed, ["drive cd: open, medium none"]);
    assert_eq!(live.held, observed);
}

#[test]
fn a_network_backend_comes_and_goes_by_commands_that_were_done() {
    let mut live = LivePlan::default();
    let add = Change::of("netdev_add", &json!({"type": "user", "id": "net7"}));
    let remove = Change::of("netdev_del", &json!({"id": "net7"}));
    for (change, outcome, is_held) in [
        (&add, Outcome::Refused, false),
        (&add, Outcome::Done, true),
        (&remove, Outcome::Refused, true),
        (&remove, Outcome::Done, false),
    ] {
        live.intend(change.clone());
        assert_eq!(live.pending.len(), 1);
        live.settle(change, outcome);
        assert_eq!((live.held.netdevs.contains("net7"), live.pending.len()), (is_held, 0), "{change} {outcome:?}");
    }
    live.settle(&add, Outcome::Done);
    assert!(live.held.netdevs.is_empty(), "what was not begun is not settled");
}

#[test]
fn a_change_keeps_names_and_no_other_argument() {
    let change = Change::of("object-add", &json!({"qom-type": "secret", "id": "key", "data": "PASSWORD"}));
    assert_eq!(change.to_string(), "object-add key");
    assert_eq!(Change::of("blockdev-add", &json!({"node-name": "n", "driver": "file"})).to_string(), "blockdev-add n");
    assert_eq!(Change::of("system_reset", &json!({})).to_string(), "system_reset");
    assert!(Change::of("device_add", &json!({"id": "x".repeat(9000)})).to_string().len() < 200);
}

#[test]
fn a_document_of_a_later_build_is_read_as_far_as_it_is_supported() {
    let later = json!({"version": 9, "held": {"devices": ["nic"], "jobs": ["backup"]}, "pending": [
        {"command": "device_add", "subject": "d", "since": 7}], "more": true});
    let live: LivePlan = serde_json::from_value(later).unwrap();
    assert_eq!((live.version, live.held.devices, live.pending.len()), (9, set(&["nic"]), 1));
}
