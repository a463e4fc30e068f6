use serde_json::json;

use super::*;

/// Cards whose backends are `net-ID`.
fn cards(links: &[(&str, LinkState)]) -> BTreeMap<String, Card> {
    let card = |&(id, link): &(&str, LinkState)| (id.to_owned(), Card { netdev: format!("net-{id}"), link });
    links.iter().map(card).collect()
}

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
        cards: cards(&[("nic", LinkState::Up)]),
    };
    let mut live = LivePlan { version: LIVE_VERSION, held: held.clone(), pending: Vec::new() };
    assert!(live.observe(HeldByQemu { netdevs: BTreeSet::new(), ..held.clone() }).is_empty(), "network backends stay");
    let observed = HeldByQemu { block_nodes: set(&["root", "new"]), drives: drive(true, None), ..held };
    let difference = live.observe(HeldByQemu { cards: BTreeMap::new(), ..observed.clone() });
    assert_eq!(difference.missing, ["block node cd"]);
    assert_eq!(difference.added, ["block node new"]);
    assert_eq!(difference.changed, ["drive cd: open, medium none"]);
    assert_eq!(live.held, observed, "the links stay");
}

#[test]
fn a_link_is_as_the_last_command_that_was_done_left_it() {
    let held = HeldByQemu {
        devices: set(&["nic-a", "nic-b"]),
        netdevs: set(&["net-nic-a", "net-nic-b"]),
        cards: cards(&[("nic-a", LinkState::Up), ("nic-b", LinkState::Down)]),
        ..HeldByQemu::default()
    };
    let mut live = LivePlan { version: LIVE_VERSION, held, pending: Vec::new() };
    let set_link = |name: &str, up: bool| Change::of("set_link", &json!({"name": name, "up": up}));
    let line = |line: &str| Change::of("human-monitor-command", &json!({"command-line": line}));
    let (up, down) = (LinkState::Up, LinkState::Down);
    for (change, outcome, [a, b]) in [
        (set_link("nic-a", false), Outcome::Refused, [up, down]),
        (set_link("nic-a", false), Outcome::Done, [down, down]),
        (set_link("nic-b", true), Outcome::Done, [down, up]),
        // By the backend, which is the other end of the cable.
        (set_link("net-nic-a", true), Outcome::Done, [up, up]),
        (set_link("nothing", false), Outcome::Done, [up, up]),
        (line(" set_link  nic-a off "), Outcome::Done, [down, up]),
        (line("set_link nic-a on"), Outcome::Done, [up, up]),
        (line("set_link nic-a off now"), Outcome::Done, [up, up]),
        (line("info network"), Outcome::Done, [up, up]),
        (Change::of("netdev_del", &json!({"id": "net-nic-b"})), Outcome::Done, [up, down]),
    ] {
        live.intend(change.clone());
        live.settle(&change, outcome);
        assert_eq!(live.held.cards, cards(&[("nic-a", a), ("nic-b", b)]), "{change:?} {outcome:?}");
    }
}

#[test]
fn a_card_that_was_taken_away_has_no_link_and_one_that_comes_back_has() {
    let held = |devices: &[&str]| HeldByQemu { devices: set(devices), ..HeldByQemu::default() };
    let with_cards = HeldByQemu { cards: cards(&[("nic", LinkState::Up)]), ..held(&["nic"]) };
    let mut live = LivePlan { version: LIVE_VERSION, held: with_cards, pending: Vec::new() };
    assert_eq!(live.observe(held(&[])).changed, ["card nic: link down"]);
    let plug = Change::of("set_link", &json!({"name": "nic", "up": true}));
    live.intend(plug.clone());
    live.settle(&plug, Outcome::Done);
    assert_eq!(live.held.cards, cards(&[("nic", LinkState::Down)]), "there is none to plug");
    assert_eq!(live.observe(held(&["nic"])).changed, ["card nic: link up"]);
    assert!(live.observe(held(&["nic"])).is_empty());
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
    let cards = json!({"nic": {"netdev": "net", "link": "sideways"}});
    let later = json!({"version": 9, "held": {"devices": ["nic"], "jobs": ["backup"], "cards": cards}, "pending": [
        {"command": "set_link", "subject": "d", "link": "sideways", "since": 7}], "more": true});
    let live: LivePlan = serde_json::from_value(later).unwrap();
    assert_eq!((live.version, live.held.devices, live.held.cards), (9, set(&["nic"]), BTreeMap::new()));
    assert_eq!(live.pending, [Change { command: "set_link".into(), subject: Some("d".into()), link: None }]);
}
