use serde_json::{Value, json};

use super::*;

fn vmi(change: impl Fn(&mut Value)) -> VirtualMachineInstance {
    let mut vmi = json!({
        "metadata": {"name": "vm", "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "name": "vm", "uid": "of-vm"}]},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
        },
        "status": {"phase": "Running", "activePods": {"of-pod": "node-1"}},
    });
    change(&mut vmi);
    serde_json::from_value(vmi).unwrap()
}

fn pod(change: impl Fn(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"uid": "of-pod"}, "spec": {"containers": []},
        "status": {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

/// The code of a refusal and its text; 0 for none.
fn outcome<T>(result: Result<T, Refusal>) -> (u16, String) {
    result.map_or_else(|refusal| (refusal.code(), format!("{refusal:?}")), |_| (0, String::new()))
}

/// What is changed, and the code and text of the refusal.
type Row<'a> = (&'a dyn Fn(&mut Value), u16, &'a str);

#[test]
fn a_port_and_a_protocol_are_read() {
    let read = |parameters: &[&str]| target(parameters).map(|target| (target.port, target.protocol.name()));
    assert_eq!(read(&["22"]), Ok((22, "tcp")));
    assert_eq!(read(&["65535", "tcp"]), Ok((65535, "tcp")));
    assert_eq!(read(&["53", "udp"]), Ok((53, "udp")));
    let refused: [&[&str]; 9] =
        [&[], &[""], &["0"], &["65536"], &["+22"], &["-1"], &["ssh"], &["22", "sctp"], &["22", "UDP"]];
    for parameters in refused {
        assert_eq!(outcome(target(parameters)).0, 400, "{parameters:?}");
    }
}

#[test]
fn a_guest_has_to_run_and_to_have_an_interface() {
    let table: [Row<'_>; 7] = [
        (&|_| {}, 0, ""),
        (&|vmi| vmi["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]), 409, "VMI is paused"),
        (&|vmi| vmi["status"]["phase"] = json!("Scheduled"), 400, "VMI is not running"),
        (&|vmi| vmi["spec"]["domain"]["devices"]["interfaces"] = json!([]), 400, "no network interfaces are present"),
        (&|vmi| vmi["spec"]["networks"] = json!([]), 400, "no network interfaces are present"),
        (
            &|vmi| vmi["spec"]["networks"] = json!([{"name": "default", "multus": {"networkName": "lan"}}]),
            400,
            "no network interfaces are present",
        ),
        (
            &|vmi| vmi["spec"]["domain"]["devices"]["interfaces"][0]["state"] = json!("absent"),
            400,
            "no network interfaces are present",
        ),
    ];
    for (change, code, text) in table {
        let found = outcome(may_forward(&vmi(change)));
        assert!(found.0 == code && found.1.contains(text), "{found:?}, not {code} {text}");
    }
}

#[test]
fn a_machine_has_the_instance_that_it_owns() {
    let vm = |uid: &str| -> VirtualMachine {
        serde_json::from_value(json!({"metadata": {"name": "vm", "uid": uid}, "spec": {"runStrategy": "Always",
            "template": {"spec": {"domain": {"devices": {}}}}}}))
        .unwrap()
    };
    let vmi = vmi(|_| {});
    assert!(instance_of(&vm("of-vm"), Some(&vmi)).is_ok());
    for (vm, vmi) in [(vm("of-vm"), None), (vm("another"), Some(&vmi))] {
        let (code, text) = outcome(instance_of(&vm, vmi));
        assert!(code == 409 && text.contains("VMI is not started"), "{text}");
    }
}

#[test]
fn the_pods_own_addresses_are_dialled() {
    let of = |change: &dyn Fn(&mut Value)| addresses(&vmi(|_| {}), &pod(change));
    let both: Vec<IpAddr> = vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()];
    assert_eq!(of(&|_| {}), Ok(both.clone()));
    assert_eq!(of(&|pod| pod["status"]["podIPs"] = Value::Null), Ok(both[..1].to_vec()));
}

#[test]
fn what_a_guest_reports_of_itself_is_not_dialled() {
    let liar = vmi(|vmi| {
        vmi["status"]["interfaces"] =
            json!([{"name": "default", "ipAddress": "10.96.0.1", "ipAddresses": ["10.96.0.1"]}]);
    });
    let dialled = addresses(&liar, &pod(|_| {})).unwrap();
    assert!(!dialled.contains(&"10.96.0.1".parse().unwrap()), "{dialled:?}");
}

#[test]
fn another_pod_and_the_nodes_network_are_refused() {
    let table: [Row<'_>; 5] = [
        (&|pod| pod["metadata"]["uid"] = json!("of-another-pod"), 500, "not the one"),
        (&|pod| pod["metadata"] = json!({}), 500, "not the one"),
        (&|pod| pod["spec"]["hostNetwork"] = json!(true), 400, "shares the network of its node"),
        (&|pod| pod["status"] = json!({}), 400, "no network interfaces are present"),
        (&|pod| pod["status"] = json!({"podIP": "vm.example"}), 400, "no network interfaces are present"),
    ];
    for (change, code, text) in table {
        let found = outcome(addresses(&vmi(|_| {}), &pod(change)));
        assert!(found.0 == code && found.1.contains(text), "{found:?}, not {code} {text}");
    }
}

#[test]
fn an_address_that_no_pod_has_is_not_dialled() {
    let special = [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.7",
        "::10.0.0.7",
        "fe80::1",
        "ff02::1",
    ];
    for address in special {
        let lying = pod(|pod| pod["status"] = json!({"podIP": address, "podIPs": [{"ip": address}]}));
        assert_eq!(outcome(addresses(&vmi(|_| {}), &lying)).0, 400, "{address}");
    }
}

#[test]
fn a_guest_that_is_not_reached_has_a_hint_where_its_ports_are_listed() {
    let listed = vmi(|vmi| {
        let ports = json!([{"port": 22}, {"port": 53, "protocol": "UDP"}]);
        vmi["spec"]["domain"]["devices"]["interfaces"][0]["ports"] = ports;
    });
    let text = |vmi: &VirtualMachineInstance, port, protocol| {
        format!("{:?}", unreached(vmi, Target { port, protocol }, "connection refused"))
    };
    for (port, protocol, has_hint) in
        [(22, Protocol::Tcp, false), (53, Protocol::Udp, false), (53, Protocol::Tcp, true), (80, Protocol::Tcp, true)]
    {
        let found = text(&listed, port, protocol);
        assert_eq!(found.contains("lists the ports"), has_hint, "{found}");
    }
    let all = text(&vmi(|_| {}), 80, Protocol::Tcp);
    assert!(all.contains("dialing VM: tcp port 80: connection refused") && !all.contains("lists"), "{all}");
}
