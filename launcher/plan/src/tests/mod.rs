//! The planner's errors and guarantees, on small manifests.

use garboard_api::metadata::annotation::ACCELERATOR;
use garboard_machine::argv::{Options, Value as ArgumentValue};
use garboard_machine::facts::{HugepagePool, KvmState};
use garboard_machine::features::Accelerator;
use garboard_machine::machine::Machine;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod iscsi;
mod kept;
mod nic_models;
mod scratch;
mod usb_redirection;

/// A VMI with `devices` and `volumes`, and whatever `domain` adds.
fn vmi(domain: &Value, devices: &Value, rest: &Value) -> VirtualMachineInstance {
    let mut spec = json!({ "domain": { "memory": { "guest": "64Mi" }, "devices": devices } });
    merge(&mut spec["domain"], domain);
    merge(&mut spec, rest);
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "quay", "namespace": "tests" }, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

fn disk(disk: &Value) -> (Value, Value) {
    let mut whole = json!({ "name": "root" });
    merge(&mut whole, disk);
    let volumes = json!({ "volumes": [{ "name": "root", "persistentVolumeClaim": { "claimName": "c" } }] });
    (json!({ "disks": [whole] }), volumes)
}

fn try_plan(vmi: &VirtualMachineInstance, facts: &HostFacts) -> Result<(LaunchPlan, Machine), PlanError> {
    plan_machine(vmi, facts, &PlanOptions::default(), None)
}

fn planned(vmi: &VirtualMachineInstance) -> (LaunchPlan, Machine) {
    try_plan(vmi, &HostFacts::reference()).unwrap()
}

fn refusal(vmi: &VirtualMachineInstance, facts: &HostFacts) -> PlanError {
    try_plan(vmi, facts).unwrap_err()
}

#[test]
fn addresses_are_planned_without_leading_zeros() {
    let servers = json!(["127.0.0.1", "0127.0.0.3", "::ffff:10.0.0.1"]);
    let interface = json!({ "name": "default", "masquerade": {}, "dhcpOptions": { "ntpServers": servers } });
    let network = json!({ "name": "default", "pod": { "vmNetworkCIDR": "10.10.010.0/24" } });
    let (plan, _) = planned(&vmi(&json!({}), &json!({ "interfaces": [interface] }), &json!({ "networks": [network] })));
    assert_eq!(plan.interfaces[0].dhcp.ntp_servers, ["127.0.0.1", "127.0.0.3", "10.0.0.1"]);
    let range = serde_json::to_value(&plan.interfaces[0]).unwrap().to_string();
    assert!(range.contains("10.10.10.0/24"), "{range}");
}

#[test]
fn a_refusal_names_the_field_and_what_to_do() {
    let on = |target: Value| disk(&target);
    let table = [
        (on(json!({ "disk": { "bus": "ide" } })), "spec.domain.devices.disks[0].disk.bus"),
        (on(json!({ "cdrom": { "bus": "virtio" } })), "spec.domain.devices.disks[0].cdrom.bus"),
        (on(json!({ "cdrom": { "tray": "ajar" } })), "spec.domain.devices.disks[0].cdrom.tray"),
        (on(json!({ "lun": { "bus": "sata" } })), "spec.domain.devices.disks[0].lun.bus"),
        (on(json!({ "disk": { "bus": "sata", "readonly": true } })), "spec.domain.devices.disks[0].disk"),
        (on(json!({ "disk": { "bus": "virtio" }, "cache": "unsafe" })), "spec.domain.devices.disks[0].cache"),
        (on(json!({ "disk": { "bus": "virtio" }, "io": "uring" })), "spec.domain.devices.disks[0].io"),
        (
            on(json!({ "disk": { "bus": "virtio" }, "io": "native", "cache": "writeback" })),
            "spec.domain.devices.disks[0].io",
        ),
        (
            on(json!({ "disk": { "bus": "virtio" }, "shareable": true, "cache": "writeback" })),
            "spec.domain.devices.disks[0].shareable",
        ),
        (
            on(json!({ "disk": { "bus": "virtio" }, "errorPolicy": "retry" })),
            "spec.domain.devices.disks[0].errorPolicy",
        ),
        (
            on(json!({ "disk": { "bus": "usb" }, "dedicatedIOThread": true })),
            "spec.domain.devices.disks[0].dedicatedIOThread",
        ),
        (
            on(json!({ "disk": { "bus": "scsi", "pciAddress": "0000:05:00.0" } })),
            "spec.domain.devices.disks[0].disk.pciAddress",
        ),
        (
            on(json!({ "disk": { "bus": "virtio", "pciAddress": "0000:05:01.0" } })),
            "spec.domain.devices.disks[0].disk.pciAddress",
        ),
        (
            on(json!({ "disk": { "bus": "virtio" }, "blockSize": { "custom": { "logical": 1000 } } })),
            "spec.domain.devices.disks[0].blockSize.custom",
        ),
    ];
    for ((devices, rest), field) in table {
        let error = refusal(&vmi(&json!({}), &devices, &rest), &HostFacts::reference());
        assert_eq!(error.field(), Some(field), "{error}");
        assert_eq!(error.fault(), Fault::Manifest, "{error}");
    }
}

#[test]
fn what_is_not_supported_is_refused_and_never_dropped() {
    let table = [
        (json!({ "launchSecurity": {} }), json!({}), "spec.domain.launchSecurity"),
        (json!({ "cpu": { "dedicatedCpuPlacement": true } }), json!({}), "spec.domain.cpu.dedicatedCpuPlacement"),
        (json!({ "cpu": { "realtime": {} } }), json!({}), "spec.domain.cpu.realtime"),
        (json!({}), json!({ "tpm": {} }), "spec.domain.devices.tpm"),
        (json!({}), json!({ "gpus": [{ "name": "g" }] }), "spec.domain.devices.gpus"),
        (json!({}), json!({ "hostDevices": [{ "name": "h" }] }), "spec.domain.devices.hostDevices"),
        (json!({}), json!({ "filesystems": [{ "name": "f", "virtiofs": {} }] }), "spec.domain.devices.filesystems"),
        (json!({}), json!({ "autoattachVSOCK": true }), "spec.domain.devices.autoattachVSOCK"),
        (json!({}), json!({ "downwardMetrics": {} }), "spec.domain.devices.downwardMetrics"),
        (json!({}), json!({ "interfaces": [{ "name": "x", "sriov": {} }] }), "spec.domain.devices.interfaces[0].sriov"),
        (
            json!({}),
            json!({ "interfaces": [{ "name": "x", "binding": { "name": "p" } }] }),
            "spec.domain.devices.interfaces[0].binding",
        ),
        (
            json!({ "clock": { "timer": { "rtc": { "present": false } } } }),
            json!({}),
            "spec.domain.clock.timer.rtc.present",
        ),
    ];
    for (domain, devices, field) in table {
        let error = refusal(&vmi(&domain, &devices, &json!({})), &HostFacts::reference());
        assert!(matches!(error, PlanError::NotInThisVersion { .. }), "{error}");
        assert_eq!(error.field(), Some(field), "{error}");
    }
}

#[test]
fn what_a_network_without_a_tap_leaves_out_is_noted() {
    let card = json!({ "interfaces": [{
        "name": "x", "masquerade": {}, "ports": [{ "port": 80 }], "dhcpOptions": { "bootFileName": "pxe" } }] });
    let rest = json!({
        "subdomain": "inner", "networks": [{ "name": "x", "pod": { "vmIPv6NetworkCIDR": "fd11::/120" } }] });
    let noted = |facts: &HostFacts| -> Vec<String> {
        let (plan, _) = try_plan(&vmi(&json!({}), &card, &rest), facts).unwrap();
        plan.notes.into_iter().filter_map(|note| note.field).collect()
    };
    let left_out = [
        "spec.domain.devices.interfaces[0]",
        "spec.domain.devices.interfaces[0].ports",
        "spec.domain.devices.interfaces[0].dhcpOptions",
        "spec.subdomain",
        "spec.networks[0].pod.vmIPv6NetworkCIDR",
    ];
    let mut facts = HostFacts::reference();
    facts.network.tap = false;
    assert!(left_out.iter().all(|field| noted(&facts).contains(&(*field).to_owned())), "{:?}", noted(&facts));
    facts.network.passt = None;
    assert!(left_out.iter().all(|field| noted(&facts).contains(&(*field).to_owned())), "{:?}", noted(&facts));
    assert!(!noted(&HostFacts::reference()).iter().any(|field| left_out.contains(&field.as_str())));
}

#[test]
fn what_the_host_lacks_is_the_hosts_fault() {
    let nothing = json!({});
    let mut facts = HostFacts::reference();
    facts.uefi.clear();
    let efi = vmi(&json!({ "firmware": { "bootloader": { "efi": {} } } }), &nothing, &nothing);
    let hugepages =
        vmi(&json!({ "memory": { "guest": "64Mi", "hugepages": { "pageSize": "2Mi" } } }), &nothing, &nothing);
    facts.hugepages = vec![HugepagePool { page_bytes: 2 << 20, total: 8, free: 8 }];
    let igb = json!({ "interfaces": [{ "name": "a", "masquerade": {}, "model": "igb" }] });
    let model = json!({ "cpu": { "model": "NoSuchCpu" } });
    let machine = json!({ "machine": { "type": "pc-q35-99.0" } });
    let cases = [
        (efi, "spec.domain.firmware.bootloader.efi"),
        (hugepages, "spec.domain.memory.hugepages"),
        (vmi(&nothing, &igb, &nothing), "spec.domain.devices.interfaces[0].model"),
        (vmi(&model, &nothing, &nothing), "spec.domain.cpu.model"),
        (vmi(&machine, &nothing, &nothing), "spec.domain.machine.type"),
    ];
    for (vmi, field) in cases {
        let error = refusal(&vmi, &facts);
        assert_eq!((error.field(), error.fault()), (Some(field), Fault::Host), "{error}");
    }
}

#[test]
fn without_a_kvm_that_runs_guests_there_is_no_plan_for_kvm() {
    let vmi = vmi(&json!({}), &json!({}), &json!({}));
    for state in [KvmState::Missing, KvmState::NotPermitted, KvmState::Emulated, KvmState::Broken] {
        let facts = HostFacts { kvm: state, ..HostFacts::reference() };
        let kvm = PlanOptions { accelerator: AcceleratorChoice::Kvm, ..PlanOptions::default() };
        if state == KvmState::Emulated {
            let (plan, machine) = plan_machine(&vmi, &facts, &kvm, None).unwrap();
            assert_eq!((plan.accelerator, plan.interpreted_by_kvm), (Accelerator::Kvm, true));
            assert_eq!((machine.cpu.model.as_str(), plan.notes.len()), ("host", 1), "{:?}", plan.notes);
        } else {
            assert_eq!(plan(&vmi, &facts, &kvm, None).unwrap_err(), PlanError::NoKvm { state });
        }
        let (plan, machine) = try_plan(&vmi, &facts).unwrap();
        assert_eq!(machine.cpu.model.as_str(), "max");
        assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
    }
    let (plan, machine) = planned(&vmi);
    assert_eq!((machine.cpu.to_string().as_str(), plan.notes.len()), ("host,migratable=on", 0));
}

#[test]
fn an_instance_chooses_its_accelerator_before_cluster_and_host() {
    let mut vmi = vmi(&json!({}), &json!({}), &json!({}));
    let (slow, fast) = (HostFacts { kvm: KvmState::Emulated, ..HostFacts::reference() }, HostFacts::reference());
    let cases = [
        (None, AcceleratorChoice::Auto, &slow, Accelerator::Tcg),
        (None, AcceleratorChoice::Auto, &fast, Accelerator::Kvm),
        (None, AcceleratorChoice::Kvm, &slow, Accelerator::Kvm),
        (None, AcceleratorChoice::Tcg, &fast, Accelerator::Tcg),
        (Some("tcg"), AcceleratorChoice::Kvm, &fast, Accelerator::Tcg),
        (Some("kvm"), AcceleratorChoice::Tcg, &slow, Accelerator::Kvm),
    ];
    for (annotation, accelerator, facts, found) in cases {
        vmi.metadata.annotations =
            annotation.map(|annotation| [(ACCELERATOR.to_owned(), annotation.to_owned())].into());
        let options = PlanOptions { accelerator, ..PlanOptions::default() };
        assert_eq!(plan(&vmi, facts, &options, None).unwrap().accelerator, found, "{annotation:?} {accelerator:?}");
    }
}

#[test]
fn a_guest_has_no_more_vcpus_than_kvm_gives_a_machine() {
    let vmi = vmi(&json!({ "cpu": { "sockets": 9 } }), &json!({}), &json!({}));
    let facts = HostFacts { kvm_max_vcpus: Some(8), ..HostFacts::reference() };
    let error = refusal(&vmi, &facts);
    assert_eq!((error.field(), error.fault()), (Some("spec.domain.cpu"), Fault::Host), "{error}");
    let tcg = PlanOptions { accelerator: AcceleratorChoice::Tcg, ..PlanOptions::default() };
    plan(&vmi, &facts, &tcg, None).unwrap();
}

#[test]
fn what_kvm_cannot_give_is_taken_from_the_hosts_own_cpu() {
    let vmi = vmi(&json!({}), &json!({}), &json!({}));
    let with = |features: &[&str]| {
        let mut facts = HostFacts::reference();
        let features = features.iter().map(|name| (*name).to_owned()).collect();
        facts.cpu.features.insert(Accelerator::Kvm, features);
        try_plan(&vmi, &facts).unwrap().1.cpu.to_string()
    };
    assert_eq!(with(&["sse2"]), "host,migratable=on,arch-capabilities=off");
    assert_eq!(with(&["arch-capabilities", "sse2"]), "host,migratable=on");
    assert_eq!(with(&[]), "host,migratable=on");
}

#[test]
fn a_required_cpu_feature_must_be_there() {
    let domain = json!({ "cpu": { "features": [{ "name": "avx512f" }] } });
    let facts = HostFacts { kvm: KvmState::Missing, ..HostFacts::reference() };
    let error = refusal(&vmi(&domain, &json!({}), &json!({})), &facts);
    assert_eq!(error.field(), Some("spec.domain.cpu.features[0]"), "{error}");
    let domain = json!({ "cpu": { "features": [{ "name": "avx512f", "policy": "optional" }] } });
    let (_, machine) = try_plan(&vmi(&domain, &json!({}), &json!({})), &facts).unwrap();
    assert_eq!(machine.cpu.get("avx512f"), None, "it is missing and not required");
}

#[test]
fn a_bridge_takes_root_and_masquerade_finds_another_way() {
    let mut facts = HostFacts::reference();
    facts.network.tap = false;
    let interfaces = |binding: &str| json!({ "interfaces": [{ "name": "a", binding: {} }] });
    let error = refusal(&vmi(&json!({}), &interfaces("bridge"), &json!({})), &facts);
    assert_eq!(error.fault(), Fault::Host, "{error}");
    let masquerade = vmi(&json!({}), &interfaces("masquerade"), &json!({}));
    let (plan, _) = try_plan(&masquerade, &facts).unwrap();
    assert!(matches!(plan.interfaces[0].binding, BindingPlan::Passt { .. }));
    facts.network.passt = None;
    let (plan, _) = try_plan(&masquerade, &facts).unwrap();
    assert!(matches!(plan.interfaces[0].binding, BindingPlan::User { .. }));
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
}

#[test]
fn ports_are_forwarded_to_the_first_interface_that_can_take_them() {
    let forward = Forward { protocol: Protocol::Tcp, host_address: None, host_port: 2222, guest_port: 22 };
    let options = PlanOptions { forwards: vec![forward.clone()], ..PlanOptions::default() };
    let try_with = |interfaces: Value| {
        let vmi = vmi(&json!({}), &json!({ "interfaces": interfaces }), &json!({}));
        plan(&vmi, &HostFacts::reference(), &options, None)
    };
    let gone = json!({ "name": "gone", "masquerade": {}, "state": "absent" });
    let planned =
        try_with(json!([gone, { "name": "a", "masquerade": {} }, { "name": "b", "masquerade": {} }])).unwrap();
    let of = |binding: &BindingPlan| {
        let BindingPlan::Masquerade { forwards, .. } = binding else { panic!("{binding:?}") };
        forwards.clone()
    };
    assert_eq!(of(&planned.interfaces[0].binding), [forward]);
    assert_eq!(of(&planned.interfaces[1].binding), []);
    for cannot in [json!([]), json!([{ "name": "a", "bridge": {} }])] {
        let error = try_with(cannot).unwrap_err();
        assert_eq!(error.fault(), Fault::Manifest, "{error}");
    }
}

#[test]
fn only_what_the_manifest_orders_is_tried_at_boot() {
    let volumes = json!({ "volumes": [
        { "name": "a", "emptyDisk": { "capacity": "1Mi" } }, { "name": "b", "emptyDisk": { "capacity": "1Mi" } },
    ] });
    let disks = |order: Value| {
        json!({ "disks": [
        { "name": "a", "disk": { "bus": "virtio" } }, { "name": "b", "disk": { "bus": "virtio" }, "bootOrder": order },
    ] })
    };
    let indexes = |devices: Value| -> Vec<_> {
        let (_, machine) = planned(&vmi(&json!({}), &devices, &volumes));
        let of = |id: &str| machine.devices.iter().find(|device| device.id().as_str() == id).unwrap().properties();
        ["disk-a", "disk-b"].map(|id| of(id).get("bootindex").cloned()).into()
    };
    let number = |index: u64| Some(garboard_machine::argv::Property::Number(index));
    assert_eq!(indexes(disks(Value::Null)), [number(1), number(2)]);
    assert_eq!(indexes(disks(json!(7))), [None, number(7)]);
}

#[test]
fn the_stored_machine_is_kept() {
    let (first, _) =
        planned(&vmi(&json!({}), &json!({ "interfaces": [{ "name": "a", "masquerade": {} }] }), &json!({})));
    let mut stored = first.stored;
    stored.machine_type = "pc-q35-6.2".to_owned();
    stored.macs.insert("a".to_owned(), "02:00:00:00:00:07".to_owned());
    let devices = json!({ "interfaces": [{ "name": "new", "masquerade": {} }, { "name": "a", "masquerade": {} }] });
    let vmi = vmi(&json!({ "machine": { "type": "q35" } }), &devices, &json!({}));
    let second = plan(&vmi, &HostFacts::reference(), &PlanOptions::default(), Some(&stored)).unwrap();
    assert_eq!(second.stored.machine_type, "pc-q35-6.2");
    assert_eq!(second.interfaces[1].mac, "02:00:00:00:00:07");
    for (device, place) in &stored.pci.devices {
        assert_eq!(second.stored.pci.devices.get(device), Some(place), "{device}");
    }
    stored.version = 0;
    let older = plan(&vmi, &HostFacts::reference(), &PlanOptions::default(), Some(&stored)).unwrap();
    assert_eq!(older.stored, second.stored, "what an older version stored is kept, in the form of this one");
    stored.version = STORED_VERSION + 1;
    let error = plan(&vmi, &HostFacts::reference(), &PlanOptions::default(), Some(&stored)).unwrap_err();
    assert!(matches!(error, PlanError::StoredVersion { .. }), "{error}");
}

#[test]
fn a_pinned_address_is_free_when_its_device_has_left() {
    let with = |disks: Value| {
        let claim = |disk: &Value| json!({ "name": disk["name"], "persistentVolumeClaim": { "claimName": "c" } });
        let volumes: Vec<Value> = disks.as_array().unwrap().iter().map(claim).collect();
        vmi(&json!({}), &json!({ "disks": disks }), &json!({ "volumes": volumes }))
    };
    let free = |name: &str| json!({ "name": name, "disk": { "bus": "virtio" } });
    let pinned = |name: &str, at: &str| json!({ "name": name, "disk": { "bus": "virtio", "pciAddress": at } });
    let place = |stored: &StoredMachine, id: &str| {
        stored.pci.devices.iter().find(|(device, _)| device.as_str() == id).map(|(_, place)| place.to_string())
    };
    let again = |disks: Value, stored: &StoredMachine| {
        plan(&with(disks), &HostFacts::reference(), &PlanOptions::default(), Some(stored)).map(|plan| plan.stored)
    };
    let first = planned(&with(json!([free("kept"), pinned("old", "0000:07:00.0")]))).0.stored;
    assert_eq!(place(&first, "disk-old").as_deref(), Some("port7"));

    let second = again(json!([pinned("new", "0000:07:00.0"), free("kept")]), &first).unwrap();
    assert_eq!(place(&second, "disk-new").as_deref(), Some("port7"));
    assert_eq!(place(&second, "disk-kept"), place(&first, "disk-kept"));
    // One that is pinned elsewhere has left its place too.
    let third = again(json!([pinned("kept", "0000:07:00.0"), pinned("new", "0000:08:00.0")]), &second).unwrap();
    assert_eq!(place(&third, "disk-kept").as_deref(), Some("port7"));
    // A device that is still there keeps its place, also when another asks for it.
    let error = again(json!([pinned("more", "0000:07:00.0"), free("kept")]), &third).unwrap_err();
    assert!(matches!(error, PlanError::Pci { .. }), "{error}");
}

#[test]
fn limits_are_those_of_the_manifest_plus_the_overhead() {
    let domain = json!({ "resources": {
        "requests": { "memory": "64Mi", "cpu": "250m" }, "limits": { "memory": "128Mi", "cpu": "2" },
    } });
    let resources = planned(&vmi(&domain, &json!({}), &json!({}))).0.resources;
    let overhead = resources.overhead.total_bytes;
    assert_eq!(resources.memory_request_bytes, (64 << 20) + overhead);
    assert_eq!(resources.memory_limit_bytes, Some((128 << 20) + overhead));
    assert_eq!((resources.cpu_request_millis, resources.cpu_limit_millis), (250, Some(2000)));
    let resources = planned(&vmi(&json!({}), &json!({}), &json!({}))).0.resources;
    assert_eq!((resources.memory_limit_bytes, resources.cpu_limit_millis), (None, None));
}

#[test]
fn an_image_that_the_guest_can_write_is_never_probed() {
    let (devices, rest) = disk(&json!({ "disk": { "bus": "virtio" } }));
    let mut options = PlanOptions::default();
    options.volumes.insert("root".to_owned(), VolumeFacts::assumed(ImageFormat::Qcow2));
    let plan = plan(&vmi(&json!({}), &devices, &rest), &HostFacts::reference(), &options, None).unwrap();
    assert_eq!(plan.disks[0].format, ImageFormat::Raw);
}

/// Disks, interfaces and switches as a careless person might combine them.
fn any_vmi() -> impl Strategy<Value = VirtualMachineInstance> {
    let bus = proptest::sample::select(vec!["virtio", "sata", "scsi", "usb", "nvme"]);
    let target = prop_oneof![
        bus.clone().prop_map(|bus| json!({ "disk": { "bus": bus } })),
        bus.clone().prop_map(|bus| json!({ "cdrom": { "bus": bus } })),
        bus.prop_map(|bus| json!({ "disk": { "bus": bus }, "dedicatedIOThread": true, "cache": "none" })),
    ];
    let source = prop_oneof![
        Just(json!({ "containerDisk": { "image": "i" } })),
        Just(json!({ "emptyDisk": { "capacity": "1Mi" } })),
        Just(json!({ "persistentVolumeClaim": { "claimName": "c" } })),
        Just(json!({ "cloudInitNoCloud": { "userData": "u" } })),
    ];
    let model = proptest::sample::select(NicModel::ALL).prop_map(NicModel::name);
    let binding = proptest::sample::select(vec!["masquerade", "bridge", "passtBinding"]);
    let disks = proptest::collection::vec((target, source), 0..12);
    let interfaces = proptest::collection::vec((model, binding), 0..6);
    let switches = proptest::collection::vec(any::<bool>(), 9);
    (disks, interfaces, switches, 1_u32..5).prop_map(|(disks, interfaces, switches, cores)| {
        let named = |(index, (target, _)): (usize, &(Value, Value))| {
            let mut disk = json!({ "name": format!("d{index}") });
            merge(&mut disk, target);
            disk
        };
        let volume = |(index, (_, source)): (usize, &(Value, Value))| {
            let mut volume = json!({ "name": format!("d{index}") });
            merge(&mut volume, source);
            volume
        };
        let interface = |(index, (model, binding)): (usize, &(&str, &str))| {
            json!({ "name": format!("i{index}"), "model": model, (*binding): {} })
        };
        let devices = json!({
            "disks": disks.iter().enumerate().map(named).collect::<Vec<_>>(),
            "interfaces": interfaces.iter().enumerate().map(interface).collect::<Vec<_>>(),
            "useVirtioTransitional": switches[0],
            "autoattachGraphicsDevice": switches[1],
            "autoattachMemBalloon": switches[2],
            "disableHotplug": switches[3],
            "blockMultiQueue": switches[4],
            "networkInterfaceMultiqueue": switches[5],
            "autoattachInputDevice": switches[6],
            "autoattachSerialConsole": switches[7],
            "clientPassthrough": switches[8].then(|| json!({})),
        });
        let volumes = disks.iter().enumerate().map(volume).collect::<Vec<_>>();
        vmi(&json!({ "cpu": { "cores": cores } }), &devices, &json!({ "volumes": volumes }))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_plan_is_refused_or_consistent_and_a_restart_is_the_same(vmi in any_vmi()) {
        match try_plan(&vmi, &HostFacts::reference()) {
            Err(PlanError::Contradiction { findings }) => prop_assert!(false, "{findings:?}"),
            Err(error) => prop_assert!(error.field().is_some(), "{error}"),
            Ok((first, _)) => {
                let options = PlanOptions::default();
                let second = plan(&vmi, &HostFacts::reference(), &options, Some(&first.stored)).unwrap();
                prop_assert_eq!(second, first);
            }
        }
    }

    #[test]
    fn a_claim_is_opened_as_its_node_uses_it(vmi in any_vmi()) {
        let Ok((plan, _)) = try_plan(&vmi, &HostFacts::reference()) else { return Ok(()) };
        for volume in vmi.spec.volumes.iter().filter(|volume| volume.persistent_volume_claim.is_some()) {
            let opened = if is_opened_read_only(&vmi.spec, volume) { OpenAccess::ReadOnly } else { OpenAccess::ReadWrite };
            let differs = |one: &Descriptor| {
                matches!(&one.purpose, DescriptorPurpose::DiskLayer { volume: name, access, .. }
                    if *name == volume.name && *access != opened)
            };
            prop_assert!(!plan.descriptors.iter().any(differs), "{}", volume.name);
        }
    }

    #[test]
    fn every_option_reads_back_as_it_was_meant(vmi in any_vmi(), serial in "[ -~]{1,20}") {
        let mut vmi = vmi;
        vmi.spec.domain.firmware.get_or_insert_default().serial = Some(serial);
        if let Ok((_, machine)) = try_plan(&vmi, &HostFacts::reference()) {
            let features = HostFacts::reference().qemu.features;
            for argument in machine.arguments(&features) {
                let mut rendered = Vec::new();
                argument.render(&features, &mut rendered);
                match &argument.value {
                    ArgumentValue::Switch => prop_assert_eq!(rendered.len(), 1),
                    ArgumentValue::Text(text) => prop_assert_eq!(&rendered[1], text),
                    ArgumentValue::Options(options) => prop_assert_eq!(&Options::parse(&rendered[1]).unwrap(), options),
                    ArgumentValue::Json(properties) => {
                        let read: Value = serde_json::from_str(&rendered[1]).unwrap();
                        prop_assert_eq!(read, serde_json::to_value(properties).unwrap());
                    }
                }
            }
        }
    }
}

#[test]
fn a_machine_without_requests_gets_the_requests_of_the_cluster() {
    let silent = vmi(&json!({ "cpu": { "cores": 2 }, "memory": { "guest": "150Mi" } }), &json!({}), &json!({}));
    let asked = |shares| {
        let options = PlanOptions { shares, ..PlanOptions::default() };
        let resources = plan(&silent, &HostFacts::reference(), &options, None).unwrap().resources;
        (resources.cpu_request_millis, resources.memory_request_bytes - resources.overhead.total_bytes)
    };
    assert_eq!(asked(Shares::default()), (200, 150 << 20));
    assert_eq!(
        asked(Shares { cpu_allocation_ratio: 4, memory_overcommit_percent: 150, overhead_permille: 1000 }),
        (500, 100 << 20)
    );
    let explicit = json!({ "resources": { "requests": { "cpu": "1", "memory": "64Mi" } } });
    let explicit = vmi(&explicit, &json!({}), &json!({}));
    let options = PlanOptions {
        shares: Shares { cpu_allocation_ratio: 4, memory_overcommit_percent: 150, overhead_permille: 1000 },
        ..PlanOptions::default()
    };
    let resources = plan(&explicit, &HostFacts::reference(), &options, None).unwrap().resources;
    assert_eq!(resources.cpu_request_millis, 1000);
    assert_eq!(resources.memory_request_bytes - resources.overhead.total_bytes, 64 << 20);
}

#[test]
fn a_guest_in_the_place_of_its_pod_has_the_pods_address_on_the_network() {
    let mac = |interface: Value, stored: Option<&StoredMachine>| {
        let devices = json!({ "interfaces": [interface] });
        let vmi = vmi(&json!({}), &devices, &json!({ "networks": [{ "name": "default", "pod": {} }] }));
        let options = PlanOptions { link_mac: Some("02:0A:f4:01:02:03".to_owned()), ..PlanOptions::default() };
        plan(&vmi, &HostFacts::reference(), &options, stored).unwrap().interfaces[0].mac.clone()
    };
    let bridge = json!({ "name": "default", "bridge": {} });
    assert_eq!(mac(bridge.clone(), None), "02:0a:f4:01:02:03");
    // Another pod, another address.
    let (first, _) = planned(&vmi(&json!({}), &json!({}), &json!({})));
    let mut stored = first.stored;
    stored.macs.insert("default".to_owned(), "02:00:00:00:00:07".to_owned());
    assert_eq!(mac(bridge, Some(&stored)), "02:0a:f4:01:02:03");
    assert_eq!(mac(json!({ "name": "default", "masquerade": {} }), Some(&stored)), "02:00:00:00:00:07");
    let asked = json!({ "name": "default", "bridge": {}, "macAddress": "02:00:00:00:00:09" });
    assert_eq!(mac(asked, None), "02:00:00:00:00:09");
}
