//! What a guest keeps from start to start, and what it gets of its host.

use super::*;

#[test]
fn a_disk_keeps_its_place_and_its_serial_when_another_leaves() {
    let with = |names: &[&str], bus: &str, serial: Option<&str>| {
        let disks: Vec<Value> =
            names.iter().map(|name| json!({ "name": name, "serial": serial, "disk": { "bus": bus } })).collect();
        let volumes: Vec<Value> =
            names.iter().map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": "c" } })).collect();
        vmi(&json!({}), &json!({ "disks": disks }), &json!({ "volumes": volumes }))
    };
    let place = |machine: &Machine, id: &str| {
        let properties = machine.devices.iter().find(|device| device.id().as_str() == id).unwrap().properties();
        ["bus", "lun", "port"].map(|key| properties.get(key).cloned())
    };
    for bus in ["scsi", "sata", "usb"] {
        // More than one controller of SATA and USB has ports.
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"];
        let (first, before) = planned(&with(&names, bus, Some("S1")));
        let left = ["new", "q", "b"];
        let again = plan_machine(
            &with(&left, bus, None),
            &HostFacts::reference(),
            &PlanOptions::default(),
            Some(&first.stored),
        );
        let (second, after) = again.unwrap();
        for id in ["disk-b", "disk-q"] {
            assert_eq!(place(&after, id), place(&before, id), "{bus}: {id}");
        }
        assert_eq!(second.disks[1].serial.as_deref(), Some("S1"));
        assert_eq!(second.disks[0].serial, None);
    }
}

#[test]
fn the_cpu_of_the_first_start_is_kept_while_its_manifest_says_the_same() {
    let with = |model: &str| vmi(&json!({ "cpu": { "model": model } }), &json!({}), &json!({}));
    let (first, _) = planned(&with("Haswell"));
    assert_eq!(first.stored.cpu, "Haswell,mpx=off,enforce=on");
    // As an earlier version of ours might have decided.
    let stored = StoredMachine { cpu: "Haswell,mpx=off,vmx=off".to_owned(), ..first.stored };
    let again = |model: &str, facts: &HostFacts| {
        plan_machine(&with(model), facts, &PlanOptions::default(), Some(&stored)).unwrap().1.cpu.to_string()
    };
    assert_eq!(again("Haswell", &HostFacts::reference()), "Haswell,mpx=off,vmx=off");
    assert_eq!(again("Skylake-Client", &HostFacts::reference()), "Skylake-Client,mpx=off,enforce=on");
    let without_kvm = HostFacts { kvm: KvmState::Missing, ..HostFacts::reference() };
    assert_eq!(again("Haswell", &without_kvm), "Haswell,mpx=off");
}

#[test]
fn a_named_model_is_enforced_under_kvm_and_what_is_optional_may_be_missing() {
    let cpu = json!({ "cpu": { "model": "Haswell", "features": [
        { "name": "no-such-feature", "policy": "optional" }, { "name": "pcid", "policy": "disable" },
    ] } });
    let mut facts = HostFacts::reference();
    facts.cpu.features.insert(garboard_machine::features::Accelerator::Kvm, ["avx2".to_owned()].into());
    let (_, machine) = try_plan(&vmi(&cpu, &json!({}), &json!({})), &facts).unwrap();
    assert_eq!(machine.cpu.to_string(), "Haswell,mpx=off,enforce=on,pcid=off");
    let facts = HostFacts { kvm: KvmState::Missing, ..HostFacts::reference() };
    let (plan, machine) = try_plan(&vmi(&cpu, &json!({}), &json!({})), &facts).unwrap();
    assert_eq!(machine.cpu.get("enforce"), None);
    assert!(plan.notes.iter().any(|note| note.text.contains("lacks the features")), "{:?}", plan.notes);
}

#[test]
fn a_forbidden_cpu_feature_must_not_be_there() {
    let forbid = |name: &str| {
        vmi(&json!({ "cpu": { "features": [{ "name": name, "policy": "forbid" }] } }), &json!({}), &json!({}))
    };
    let mut facts = HostFacts::reference();
    facts.cpu.features.insert(garboard_machine::features::Accelerator::Kvm, ["avx2".to_owned()].into());
    let error = refusal(&forbid("avx2"), &facts);
    assert_eq!((error.field(), error.fault()), (Some("spec.domain.cpu.features[0]"), Fault::Host), "{error}");
    let (_, machine) = try_plan(&forbid("avx512f"), &facts).unwrap();
    assert_eq!(machine.cpu.get("avx512f"), Some("off"));
}

#[test]
fn a_virtio_device_tells_the_mtu_of_its_network() {
    let told = |interface: Value, found: Option<u16>, stored: Option<&StoredMachine>| {
        let vmi = vmi(&json!({}), &json!({ "interfaces": [interface] }), &json!({}));
        let interfaces = [("a".to_owned(), InterfaceFacts { mtu: found })].into();
        let options = PlanOptions { interfaces, ..PlanOptions::default() };
        let (plan, machine) = plan_machine(&vmi, &HostFacts::reference(), &options, stored).unwrap();
        let nic = machine.devices.iter().find(|device| device.id().as_str() == "nic-a").unwrap().properties();
        assert_eq!(nic.get("host_mtu").is_some(), plan.interfaces[0].mtu.is_some());
        (plan.interfaces[0].mtu, plan.stored)
    };
    let bridge = || json!({ "name": "a", "bridge": {} });
    let (mtu, stored) = told(bridge(), Some(1450), None);
    assert_eq!(mtu, Some(1450));
    assert_eq!(told(bridge(), None, Some(&stored)).0, Some(1450), "as at the last start");
    assert_eq!(told(bridge(), Some(9000), Some(&stored)).0, Some(9000), "the link has been changed");
    assert_eq!(told(bridge(), None, None).0, None);
    assert_eq!(told(json!({ "name": "a", "masquerade": {}, "model": "e1000e" }), Some(1450), None).0, None);
    assert_eq!(told(json!({ "name": "a", "passtBinding": {} }), Some(1450), None).0, None);
}

#[test]
fn a_preallocated_file_keeps_its_blocks() {
    let (devices, rest) = disk(&json!({ "disk": { "bus": "virtio" } }));
    let vmi = vmi(&json!({}), &devices, &rest);
    let discards = |facts: VolumeFacts| {
        let options = PlanOptions { volumes: [("root".to_owned(), facts)].into(), ..PlanOptions::default() };
        let (_, machine) = plan_machine(&vmi, &HostFacts::reference(), &options, None).unwrap();
        machine.blockdevs.iter().filter(|node| node.properties().get("discard").is_some()).count()
    };
    let sparse = VolumeFacts::assumed(ImageFormat::Raw);
    let full = VolumeFacts { preallocated: true, ..sparse.clone() };
    let device = VolumeFacts { medium: Medium::BlockDevice, ..full.clone() };
    assert_eq!([discards(sparse), discards(full), discards(device)], [2, 0, 2]);
}

#[test]
fn a_cdrom_of_an_image_has_no_layer_that_it_could_never_write() {
    let volumes = json!({ "volumes": [{ "name": "root", "containerDisk": { "image": "i" } }] });
    let layers = |target: Value| {
        let (devices, _) = disk(&target);
        let plan = planned(&vmi(&json!({}), &devices, &volumes)).0;
        (plan.disks[0].overlay, plan.disks[0].descriptor_sets.len(), plan.disks[0].format)
    };
    assert_eq!(layers(json!({ "disk": { "bus": "virtio" } })), (true, 2, ImageFormat::Qcow2));
    assert_eq!(layers(json!({ "cdrom": { "bus": "sata" } })), (false, 1, ImageFormat::Qcow2));
    assert_eq!(layers(json!({ "disk": { "bus": "virtio", "readonly": true } })), (false, 1, ImageFormat::Qcow2));
}

#[test]
fn workers_of_vhost_count_as_threads() {
    let pids = |vhost_net: bool, interfaces: usize| {
        let list: Vec<Value> =
            (0..interfaces).map(|at| json!({ "name": format!("i{at}"), "masquerade": {} })).collect();
        let devices = json!({ "interfaces": list, "networkInterfaceMultiqueue": true });
        let mut facts = HostFacts::reference();
        facts.network.vhost_net = vhost_net;
        try_plan(&vmi(&json!({ "cpu": { "cores": 16 } }), &devices, &json!({})), &facts).unwrap().0.resources.pids
    };
    assert_eq!(pids(true, 8) - pids(false, 8), 8 * 16);
}

#[test]
fn huge_pages_are_taken_by_as_many_threads_as_the_guest_has_processors() {
    let facts = HostFacts {
        hugepages: vec![HugepagePool { page_bytes: 2 << 20, total: 64, free: 64 }],
        ..HostFacts::reference()
    };
    let threads = |cores: u32| {
        let memory = json!({ "guest": "64Mi", "hugepages": { "pageSize": "2Mi" } });
        let domain = json!({ "memory": memory, "cpu": { "cores": cores } });
        let (_, machine) = try_plan(&vmi(&domain, &json!({}), &json!({})), &facts).unwrap();
        let backend = machine.arguments(&facts.qemu.features).into_iter().map(|argument| format!("{argument:?}"));
        let backend = backend.into_iter().find(|text| text.contains("memory-backend-memfd")).unwrap();
        backend.contains("prealloc-threads")
    };
    assert!(threads(4) && !threads(1));
}

#[test]
fn memory_beyond_forty_address_bits_is_reached_or_left_out() {
    let plan = |model: &str, kvm: KvmState| {
        let memory = json!({ "guest": "256Gi", "maxGuest": "1Ti" });
        let vmi = vmi(&json!({ "cpu": { "model": model }, "memory": memory }), &json!({}), &json!({}));
        try_plan(&vmi, &HostFacts { kvm, ..HostFacts::reference() }).unwrap().1
    };
    let named = plan("Haswell", KvmState::Native);
    assert_eq!((named.cpu.get("host-phys-bits"), named.memory.maxmem), (Some("on"), Some(1 << 40)));
    assert_eq!(plan("host-model", KvmState::Native).cpu.get("host-phys-bits"), None, "it has them anyway");
    assert_eq!(plan("Haswell", KvmState::Missing).memory.maxmem, Some(960 << 30));
}
