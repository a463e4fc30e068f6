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
fn the_cpu_of_the_first_start_is_kept_while_its_manifest_is_the_same() {
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
fn a_virtio_device_reports_the_mtu_of_its_network() {
    let mtu_of = |interface: Value, found: Option<u16>, stored: Option<&StoredMachine>| {
        let vmi = vmi(&json!({}), &json!({ "interfaces": [interface] }), &json!({}));
        let interfaces = [("a".to_owned(), InterfaceFacts { mtu: found })].into();
        let options = PlanOptions { interfaces, ..PlanOptions::default() };
        let (plan, machine) = plan_machine(&vmi, &HostFacts::reference(), &options, stored).unwrap();
        let nic = machine.devices.iter().find(|device| device.id().as_str() == "nic-a").unwrap().properties();
        assert_eq!(nic.get("host_mtu").is_some(), plan.interfaces[0].mtu.is_some());
        (plan.interfaces[0].mtu, plan.stored)
    };
    let bridge = || json!({ "name": "a", "bridge": {} });
    let (mtu, stored) = mtu_of(bridge(), Some(1450), None);
    assert_eq!(mtu, Some(1450));
    assert_eq!(mtu_of(bridge(), None, Some(&stored)).0, Some(1450), "as at the last start");
    let wider = mtu_of(bridge(), Some(9000), Some(&stored));
    assert_eq!((wider.0, wider.1.mtus["a"]), (Some(1450), 1450), "the guest's first MTU");
    let narrower = mtu_of(bridge(), Some(1400), Some(&stored));
    assert_eq!((narrower.0, narrower.1.mtus["a"]), (Some(1400), 1450), "a link is not made wider by the stored MTU");
    assert_eq!(mtu_of(bridge(), None, None).0, None);
    assert_eq!(mtu_of(json!({ "name": "a", "masquerade": {}, "model": "e1000e" }), Some(1450), None).0, None);
    assert_eq!(mtu_of(json!({ "name": "a", "passtBinding": {} }), Some(1450), None).0, None);
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

/// Plans `vmi` once more, on other facts.
fn again(
    vmi: &VirtualMachineInstance,
    facts: &HostFacts,
    options: &PlanOptions,
    stored: &StoredMachine,
) -> (LaunchPlan, Machine) {
    plan_machine(vmi, facts, options, Some(stored)).unwrap()
}

fn property(machine: &Machine, id: &str, key: &str) -> Option<garboard_machine::argv::Property> {
    let device = machine.devices.iter().find(|device| device.id().as_str() == id)?;
    device.properties().get(key).cloned()
}

#[test]
fn a_cpu_that_is_the_hosts_keeps_its_features_on_another_one() {
    let offering = |names: &[&str]| {
        let mut facts = HostFacts::reference();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        facts.cpu.features.insert(garboard_machine::features::Accelerator::Kvm, names);
        facts
    };
    let with = |model: &str| vmi(&json!({ "cpu": { "model": model } }), &json!({}), &json!({}));
    let old =
        offering(&["sse2", "avx2", "lahf-lm", "lahf_lm", "arch-capabilities", "x-vendor-cpuid-only", "migratable"]);
    let new = offering(&["sse2", "lahf-lm", "lahf_lm", "arch-capabilities", "amx-tile", "x-other", "check"]);
    let (first, machine) = try_plan(&with("host-model"), &old).unwrap();
    assert_eq!(machine.cpu.to_string(), "host,migratable=on");
    assert_eq!(first.stored.cpu_features.as_deref(), Some("arch-capabilities avx2 lahf-lm sse2"));
    let (second, machine) = again(&with("host-model"), &new, &PlanOptions::default(), &first.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on,amx-tile=off");
    assert_eq!(second.stored, first.stored, "the weaker host is not remembered");
    assert!(
        second.notes.iter().any(|note| note.text.contains("1 features that are not available here: avx2")),
        "{:?}",
        second.notes
    );
    let (_, machine) = again(&with("host-model"), &old, &PlanOptions::default(), &second.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on");
    // One start without KVM is no reason to forget it.
    let without_kvm = HostFacts { kvm: KvmState::Missing, ..new.clone() };
    let (emulated, _) = again(&with("host-model"), &without_kvm, &PlanOptions::default(), &second.stored);
    assert_eq!(emulated.stored.cpu, "max");
    let (back, machine) = again(&with("host-model"), &new, &PlanOptions::default(), &emulated.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on,amx-tile=off");
    assert_eq!(
        (back.stored.cpu_features, back.stored.other_cpu.unwrap().cpu),
        (second.stored.cpu_features.clone(), "max".to_owned())
    );
    // Whose processor is passed through is the host's, whichever it is.
    let (first, _) = try_plan(&with("host-passthrough"), &old).unwrap();
    let (second, machine) = again(&with("host-passthrough"), &new, &PlanOptions::default(), &first.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on");
    assert_eq!(second.stored.cpu_features.as_deref(), Some("amx-tile arch-capabilities lahf-lm sse2"));
    // A manifest that has other CPU values gets another CPU.
    let asked = vmi(&json!({ "cpu": { "features": [{ "name": "amx-tile" }] } }), &json!({}), &json!({}));
    let (_, machine) = again(&asked, &new, &PlanOptions::default(), &second.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on,amx-tile=on");
    // Its other fields do not affect the CPU.
    let domain = json!({ "cpu": { "model": "host-model" }, "features": { "smm": {}, "acpi": {} } });
    let (third, machine) = again(&vmi(&domain, &json!({}), &json!({})), &new, &PlanOptions::default(), &first.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on,amx-tile=off");
    assert_eq!(third.stored.cpu_features, first.stored.cpu_features);
    // A feature that it names, and no longer names, is as the host has it on that day; the others stay.
    let domain = json!({ "cpu": { "features": [{ "name": "avx2", "policy": "disable" }] } });
    let (less, machine) = again(&vmi(&domain, &json!({}), &json!({})), &old, &PlanOptions::default(), &first.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on,avx2=off");
    let (_, machine) = again(&with("host-model"), &new, &PlanOptions::default(), &less.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on,amx-tile=off");
    let (more, machine) = again(&with("host-model"), &old, &PlanOptions::default(), &less.stored);
    assert_eq!(machine.cpu.to_string(), "host,migratable=on");
    assert_eq!(more.stored.cpu_features, first.stored.cpu_features);
    // Where QEMU could not be asked nothing is known, and nothing is forgotten.
    let (third, machine) = again(
        &with("host-model"),
        &HostFacts::reference(),
        &PlanOptions::default(),
        &try_plan(&with("host-model"), &old).unwrap().0.stored,
    );
    assert_eq!(machine.cpu.to_string(), "host,migratable=on");
    assert_eq!(third.stored.cpu_features.as_deref(), Some("arch-capabilities avx2 lahf-lm sse2"));
}

#[test]
fn an_optional_feature_is_decided_once_whatever_else_the_manifest_contains() {
    let offering = |names: &[&str]| {
        let mut facts = HostFacts::reference();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        facts.cpu.features.insert(garboard_machine::features::Accelerator::Kvm, names);
        facts
    };
    let with = |model: &str, features: Value| {
        let optional = json!([{ "name": "avx2", "policy": "optional" }]);
        vmi(&json!({ "cpu": { "model": model, "features": optional }, "features": features }), &json!({}), &json!({}))
    };
    let (old, new) = (offering(&["sse2"]), offering(&["sse2", "avx2"]));
    for model in ["Haswell", "host-model"] {
        for (first, later, expected) in [(&old, &new, false), (&new, &old, true)] {
            let (start, machine) = try_plan(&with(model, json!({})), first).unwrap();
            assert_eq!(machine.cpu.get("avx2") == Some("on"), expected, "{model}");
            assert_eq!(start.stored.cpu_lacked.as_deref(), (!expected).then_some("avx2"));
            for features in [json!({}), json!({ "kvm": { "hidden": true } })] {
                let (second, machine) = again(&with(model, features), later, &PlanOptions::default(), &start.stored);
                assert_eq!(machine.cpu.get("avx2") == Some("on"), expected, "{model}: {}", machine.cpu);
                assert_eq!(second.stored.cpu_lacked, start.stored.cpu_lacked);
            }
        }
    }
}

#[test]
fn qemus_own_cpu_keeps_its_features_under_another_qemu() {
    let bare = vmi(&json!({}), &json!({}), &json!({}));
    let mut facts = HostFacts { kvm: KvmState::Missing, ..HostFacts::reference() };
    let (first, machine) = try_plan(&bare, &facts).unwrap();
    assert_eq!(machine.cpu.to_string(), "max");
    let features = facts.cpu.features.get_mut(&garboard_machine::features::Accelerator::Tcg).unwrap();
    features.extend(["fsrm".to_owned(), "x-l1-cache-per-thread".to_owned()]);
    for _ in 0..2 {
        let (second, machine) = again(&bare, &facts, &PlanOptions::default(), &first.stored);
        assert_eq!((machine.cpu.to_string(), &second.stored), ("max,fsrm=off".to_owned(), &first.stored));
    }
    // Also what it is called: QEMU 10 calls it otherwise.
    facts.qemu.features.version.major = 10;
    let (second, machine) = again(&bare, &facts, &PlanOptions::default(), &first.stored);
    let named = "max,fsrm=off,family=15,model=107,stepping=1";
    assert_eq!((machine.cpu.to_string().as_str(), &second.stored), (named, &first.stored));
    let mut newer = facts.qemu.features.machine("q35").unwrap().clone();
    newer.name = "pc-q35-10.0".to_owned();
    facts.qemu.features.machines.retain(|machine| machine.alias.is_none());
    facts.qemu.features.machines.push(newer);
    let (first, machine) = try_plan(&bare, &facts).unwrap();
    assert_eq!(machine.cpu.to_string(), "max,family=6,model=6,stepping=3");
    assert_eq!((first.stored.machine_type.as_str(), first.stored.cpu.as_str()), ("pc-q35-10.0", "max"));
}

#[test]
fn a_guest_keeps_its_write_cache_and_its_block_sizes_on_another_volume() {
    let with = |more: Value| {
        let mut whole = json!({ "disk": { "bus": "virtio" }, "blockSize": { "matchVolume": {} } });
        merge(&mut whole, &more);
        let (devices, rest) = disk(&whole);
        vmi(&json!({}), &devices, &rest)
    };
    let on = |direct_io: DirectIo, logical: u32| {
        let sizes = BlockSizes { logical, physical: 4096, discard_granularity: None };
        let facts = VolumeFacts { direct_io, block_sizes: Some(sizes), ..VolumeFacts::assumed(ImageFormat::Raw) };
        PlanOptions { volumes: [("root".to_owned(), facts)].into(), ..PlanOptions::default() }
    };
    let facts = HostFacts::reference();
    let seen = |machine: &Machine| ["write-cache", "logical_block_size"].map(|key| property(machine, "disk-root", key));
    let (here, there) = (on(DirectIo::Works, 512), on(DirectIo::Refused, 4096));
    for (first, second) in [(&here, &there), (&there, &here)] {
        let (plan, machine) = plan_machine(&with(json!({})), &facts, first, None).unwrap();
        let (later, other) = again(&with(json!({})), &facts, second, &plan.stored);
        assert_eq!(seen(&other), seen(&machine));
        assert_eq!(later.stored, plan.stored);
    }
    // Another volume behind the same name has its own sizes: partitions are counted in them.
    let (plan, _) = plan_machine(&with(json!({})), &facts, &here, None).unwrap();
    let mut replaced = with(json!({}));
    let volume = replaced.spec.volumes.iter_mut().find(|volume| volume.name == "root").unwrap();
    *volume =
        serde_json::from_value(json!({ "name": "root", "persistentVolumeClaim": { "claimName": "new" } })).unwrap();
    let (_, other) = again(&replaced, &facts, &on(DirectIo::Works, 4096), &plan.stored);
    assert_eq!(seen(&other)[1], Some(4096_u32.into()));
    // Read-only for one start, a disk has its write cache again afterwards.
    let mut read_only = with(json!({}));
    read_only.spec.domain.devices.disks[0].disk.as_mut().unwrap().readonly = Some(true);
    let (between, _) = again(&read_only, &facts, &there, &plan.stored);
    assert_eq!(between.stored.disks["root"].write_cache, plan.stored.disks["root"].write_cache);
    let (plan, machine) = plan_machine(&with(json!({})), &facts, &here, None).unwrap();
    let asked = json!({ "cache": "writethrough", "blockSize": { "custom": { "logical": 4096, "physical": 4096 } } });
    let (later, other) = again(&with(asked), &facts, &here, &plan.stored);
    assert_ne!(seen(&other), seen(&machine));
    assert_eq!(later.stored.disks.get("root"), None, "it is in the manifest");
}

#[test]
fn a_guest_keeps_its_uefi_build() {
    use garboard_machine::facts::{UefiKind, UefiPair};
    let with = |persistent: bool| {
        let efi = json!({ "secureBoot": false, "persistent": persistent });
        vmi(&json!({ "firmware": { "bootloader": { "efi": efi } } }), &json!({}), &json!({}))
    };
    let build = |name: &str, vars_bytes: u64| UefiPair {
        code: name.to_owned(),
        vars_template: format!("{name}.vars"),
        kind: UefiKind::Plain,
        code_bytes: 3 << 20,
        vars_bytes,
    };
    let (large, small, other) = (build("4m", 528 << 10), build("2m", 128 << 10), build("other", 128 << 10));
    let on = |builds: &[&UefiPair]| HostFacts {
        uefi: builds.iter().map(|&build| build.clone()).collect(),
        ..HostFacts::reference()
    };
    let code = |plan: &LaunchPlan| match &plan.firmware {
        FirmwarePlan::Uefi { code, .. } => code.clone(),
        other @ FirmwarePlan::Bios { .. } => panic!("{other:?}"),
    };
    let (first, _) = try_plan(&with(true), &on(&[&small])).unwrap();
    let start = |persistent, builds: &[&UefiPair]| {
        plan(&with(persistent), &on(builds), &PlanOptions::default(), Some(&first.stored))
    };
    assert_eq!(code(&start(true, &[&large, &other, &small]).unwrap()), "2m");
    assert_eq!(code(&start(true, &[&large, &other]).unwrap()), "other");
    let error = start(true, &[&large]).unwrap_err();
    assert_eq!((error.field(), error.fault()), (Some("spec.domain.firmware.bootloader.efi"), Fault::Host), "{error}");
    assert_eq!(code(&start(false, &[&large]).unwrap()), "4m", "without variables of its own");
    let elsewhere = start(true, &[&large, &other]).unwrap();
    assert_eq!(elsewhere.stored.firmware, first.stored.firmware, "the one that stood in is not remembered");
    // A build before this one did not store whether its guest has variables that stay.
    let mut of_old = first.stored.clone();
    of_old.firmware.as_mut().unwrap().persistent = None;
    assert!(plan(&with(true), &on(&[&large]), &PlanOptions::default(), Some(&of_old)).is_err());
    // Without variables that stay there is nothing that another build would not take.
    let (volatile, _) = try_plan(&with(false), &on(&[&small])).unwrap();
    let now = plan(&with(true), &on(&[&large]), &PlanOptions::default(), Some(&volatile.stored)).unwrap();
    assert_eq!((code(&now).as_str(), now.stored.firmware.unwrap().code.as_str()), ("4m", "4m"));
    let secure = json!({ "firmware": { "bootloader": { "efi": {} } }, "features": { "smm": {} } });
    let (secure, _) = plan_machine(
        &vmi(&secure, &json!({}), &json!({})),
        &HostFacts::reference(),
        &PlanOptions::default(),
        Some(&first.stored),
    )
    .unwrap();
    assert_ne!(secure.stored.firmware.unwrap().kind, UefiKind::Plain, "the manifest wins");
}

#[test]
fn queues_are_explicit_and_stay_the_same() {
    let (devices, rest) = disk(&json!({ "disk": { "bus": "virtio" } }));
    let with = |cores: u32| vmi(&json!({ "cpu": { "cores": cores } }), &devices, &rest);
    let queues =
        |machine: &Machine| [property(machine, "disk-root", "num-queues"), property(machine, "scsi0", "num_queues")];
    let count = |count: u32| Some(garboard_machine::argv::Property::from(count));
    let (first, machine) = planned(&with(2));
    assert_eq!(queues(&machine), [count(2), count(2)]);
    let (_, machine) = again(&with(4), &HostFacts::reference(), &PlanOptions::default(), &first.stored);
    assert_eq!(queues(&machine), [count(4), count(4)], "the manifest wins");
    // A machine of the first rules has as many as QEMU's machine type gives it.
    let of_old = StoredMachine { version: 1, rules: 1, ..first.stored };
    let (second, machine) = again(&with(2), &HostFacts::reference(), &PlanOptions::default(), &of_old);
    assert_eq!((queues(&machine), second.stored.rules, second.stored.version), ([None, None], 1, STORED_VERSION));
}

#[test]
fn memory_is_shared_also_where_it_was_not() {
    let bare = vmi(&json!({}), &json!({}), &json!({}));
    let (first, machine) = planned(&bare);
    let memory = first.guest_memory.unwrap();
    let last = first.descriptors.last().unwrap().number;
    assert_eq!((memory.descriptor, memory.bytes), (last + 1, 64 << 20));
    let kind = garboard_machine::memory::MemoryKind::Memfd { fd: memory.descriptor };
    assert_eq!(machine.memory_backend.kind, kind);
    let of_old = StoredMachine { version: 1, rules: 1, ram: None, ..first.stored };
    let (second, _) = again(&bare, &HostFacts::reference(), &PlanOptions::default(), &of_old);
    assert_eq!(second.stored.ram, Some(RamKind::Memfd));
}

#[test]
fn a_value_of_a_later_build_does_not_end_a_stored_machine() {
    let (first, _) = planned(&vmi(&json!({}), &json!({}), &json!({})));
    let mut stored = serde_json::to_value(&first.stored).unwrap();
    stored["accelerator"] = json!("quantum");
    stored["ram"] = json!("file");
    stored["otherCpu"] = json!({ "accelerator": "quantum", "cpu": "max" });
    stored["firmware"] = json!({ "kind": "measured", "code": "x", "codeBytes": 1, "varsBytes": 1 });
    let read: StoredMachine = serde_json::from_value(stored).unwrap();
    assert_eq!((read.accelerator, read.firmware, read.ram), (None, None, Some(RamKind::Unknown)));
}
