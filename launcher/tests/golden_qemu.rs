//! Every golden VM, started for real and stopped before its first instruction: what QEMU then reports of itself must be
//! what the plan contains.
//!
//! The test runs itself once more for each VM; that process opens everything the plan lists and becomes QEMU. It does so
//! with every QEMU there is: the installed one, and version 10 if `scripts/fetch-qemu10` was run.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "the whole file is a test"
)]

#[path = "../../tests/qemu_of_images.rs"]
mod qemu_of_images;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use garboard_machine::features::Accelerator;
use garboard_machine::pci::PciPlace;
use garboard_plan::live::{Drive, LivePlan};
use garboard_plan::{DescriptorPurpose, DiskPlan, DiskSource, LaunchPlan, LinkState};
use serde_json::{Value, json};
use support::qmp::Qmp;
use support::{Case, cases, stage};

/// Names the directory with the plan, in the process that becomes QEMU.
const STAGE_VARIABLE: &str = "GARBOARD_STAGE";

/// The other half of this test; by itself it does nothing.
#[test]
fn become_qemu() {
    if let Some(dir) = std::env::var_os(STAGE_VARIABLE) {
        let plan = std::fs::read_to_string(Path::new(&dir).join("plan.json")).expect("a plan");
        let plan: LaunchPlan = serde_json::from_str(&plan).expect("a plan");
        let error = stage::become_qemu(&plan, Path::new(&dir));
        panic!("{error}");
    }
}

#[test]
fn qemu_makes_of_every_golden_vm_what_was_planned() {
    for qemu in qemus() {
        let mut wrong = Vec::new();
        let mut started = 0;
        for case in cases() {
            let plan = case.plan().unwrap_or_else(|error| panic!("{}: {error}", case.name));
            if let Some(why) = cannot_run(&plan, &qemu) {
                eprintln!("skipped: {} with {qemu}: {why}", case.name);
                continue;
            }
            started += 1;
            let result = Running::start(&plan, &qemu).and_then(|mut running| compare(&plan, &mut running));
            if let Err(error) = result {
                if let Some(lack) = lacking_in_kvm(&error).filter(|_| plan.accelerator == Accelerator::Kvm) {
                    eprintln!("skipped: {} with {qemu}: this machine's KVM: {lack}", case.name);
                    continue;
                }
                wrong.push(format!("{}: {error}", case.name));
            }
        }
        eprintln!("{started} golden VMs started with {qemu}");
        assert!(wrong.is_empty(), "{qemu}:\n{}", wrong.join("\n"));
        assert!(started > 0, "not one golden VM could be started with {qemu}");
    }
}

#[test]
fn firmware_numbers_the_bus_behind_port_n_as_n() {
    let Some(qemu) = qemus().into_iter().next() else { return };
    for name in ["many-disks", "video-bochs", "uefi"] {
        let plan = Case::load(name).plan().unwrap();
        if let Some(why) = cannot_run(&plan, &qemu) {
            eprintln!("skipped: {name}: {why}");
            continue;
        }
        let mut running = Running::start(&plan, &qemu).unwrap();
        running.qmp.call("cont", json!({})).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        // While it numbers the buses, firmware writes 255 to the one it is at.
        loop {
            let pci = running.qmp.call("query-pci", json!({})).unwrap();
            let ports = root_ports(&pci);
            let is_done = ports.len() == plan.stored.pci.ports.len();
            if is_done && ports.iter().all(|(id, bus)| *id == format!("port{bus}")) {
                break;
            }
            assert!(Instant::now() < deadline, "{name}: firmware left {ports:?}");
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

#[test]
fn each_slot_of_usb_redirection_greets_its_client_when_the_guest_runs() {
    for qemu in qemus() {
        let plan = Case::load("usb-redirection").plan().unwrap();
        if let Some(why) = cannot_run(&plan, &qemu) {
            eprintln!("skipped: usb-redirection with {qemu}: {why}");
            continue;
        }
        let mut running = Running::start(&plan, &qemu).unwrap();
        let directory = running.dir.path().to_owned();
        let connect = |slot: u32| UnixStream::connect(directory.join(format!("usbredir{slot}.sock"))).unwrap();
        let mut clients: Vec<UnixStream> = slots(&plan).map(connect).collect();
        assert_eq!(clients.len(), 4);
        running.qmp.call("cont", json!({})).unwrap();
        clients.iter_mut().for_each(expect_hello);
        // The next client of a slot waits until the one before has left.
        let mut next = connect(2);
        drop(clients.remove(2));
        expect_hello(&mut next);
    }
}

/// Numbers of the slots for USB redirection.
fn slots(plan: &LaunchPlan) -> impl Iterator<Item = u32> {
    plan.descriptors.iter().filter_map(|one| match one.purpose {
        DescriptorPurpose::UsbRedirListener { slot } => Some(slot),
        _ => None,
    })
}

/// QEMU's first packet (`usbredirproto.h`): a header of three numbers, its version, and what it can.
fn expect_hello(client: &mut UnixStream) {
    let mut hello = [0; 80];
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.read_exact(&mut hello).unwrap();
    let number = |at: usize| u32::from_le_bytes(hello[at..at + 4].try_into().unwrap());
    assert_eq!([0, 4, 8].map(number), [0, 68, 0], "type, length, number");
    assert!(hello[12..].starts_with(b"qemu usb-redir guest "), "{:?}", String::from_utf8_lossy(&hello[12..76]));
    // Without these three (packet sizes, numbers of 64 bits, lengths of 32) no client is of use to an xHCI controller.
    assert_eq!(number(76) & 0x70, 0x70);
}

/// ID and bus number behind every root port.
fn root_ports(pci: &Value) -> Vec<(String, u64)> {
    let devices = pci[0]["devices"].as_array().cloned().unwrap_or_default();
    let port = |device: &Value| {
        let id = device["qdev_id"].as_str().filter(|id| id.starts_with("port"))?.to_owned();
        Some((id, device["pci_bridge"]["bus"]["secondary"].as_u64().unwrap_or(0)))
    };
    devices.iter().filter_map(port).collect()
}

/// Every QEMU of this machine.
fn qemus() -> Vec<String> {
    let of_images = qemu_of_images::directory().join("qemu-system-x86_64").display().to_string();
    let known = ["/usr/bin/qemu-system-x86_64".to_owned(), of_images];
    let answers =
        |qemu: &String| Command::new(qemu).arg("--version").output().is_ok_and(|output| output.status.success());
    let (found, missing): (Vec<_>, Vec<_>) = known.into_iter().partition(answers);
    missing.iter().for_each(|qemu| eprintln!("skipped: {qemu} is not there"));
    found
}

/// QEMU's error about what this host's KVM lacks, if it gave up because of that and not because of the plan: Hyper-V's parts,
/// or the model-specific registers of the processor that it shows (an emulated KVM, seen on this kind of host). The plans
/// of these tests are for the reference host, whose KVM has them.
fn lacking_in_kvm(error: &str) -> Option<&str> {
    let is_error = |line: &&str| line.contains("kernel doesn't") || line.contains("failed to set MSR");
    error.lines().find(is_error).map(|line| line.rsplit("qemu-system-x86_64: ").next().unwrap_or(line))
}

/// Why this host cannot start a plan of the reference host.
fn cannot_run(plan: &LaunchPlan, qemu: &str) -> Option<String> {
    let needs = |path: &str| (!Path::new(path).exists()).then(|| format!("no {path}"));
    let uses = |wanted: fn(&DescriptorPurpose) -> bool| plan.descriptors.iter().any(|one| wanted(&one.purpose));
    let has_taps = uses(|purpose| matches!(purpose, DescriptorPurpose::Tap { .. }));
    let has_vhost = uses(|purpose| matches!(purpose, DescriptorPurpose::VhostNet { .. }));
    let has_uefi = uses(|purpose| *purpose == DescriptorPurpose::FirmwareCode);
    if has_taps && !nix::unistd::geteuid().is_root() {
        return Some("a tap takes root".to_owned());
    }
    if plan.argv.iter().any(|argument| argument.contains("hugetlb")) && free_hugepages() < 64 {
        return Some("fewer than 64 huge pages are free".to_owned());
    }
    if plan.disks.iter().any(|disk| matches!(disk.source, DiskSource::Iscsi { .. })) {
        return Some("there is no iSCSI target".to_owned());
    }
    if let Some(device) = unknown_device(plan, qemu) {
        return Some(format!("this QEMU has no {device}"));
    }
    (plan.accelerator == Accelerator::Kvm)
        .then(|| needs("/dev/kvm"))
        .flatten()
        .or_else(|| has_taps.then(|| needs("/dev/net/tun")).flatten())
        .or_else(|| has_vhost.then(|| needs("/dev/vhost-net")).flatten())
        .or_else(|| has_uefi.then(|| needs("/usr/share/OVMF/OVMF_CODE_4M.fd")).flatten())
}

fn free_hugepages() -> u64 {
    let text = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// What a plan for a better QEMU than the reference uses and the one here lacks.
fn unknown_device(plan: &LaunchPlan, qemu: &str) -> Option<&'static str> {
    let has_type = |what: &str| {
        let output = Command::new(qemu).args(["-device", what]).output().expect("QEMU runs").stdout;
        String::from_utf8_lossy(&output).into_owned()
    };
    let uses = |text: &str| plan.argv.iter().any(|argument| argument.contains(text));
    if uses("\"igb\"") && !has_type("help").contains("name \"igb\"") {
        return Some("igb");
    }
    let mapping = "iothread-vq-mapping";
    (uses(mapping) && !has_type("virtio-blk-pci,help").contains(mapping)).then_some(mapping)
}

/// A QEMU that was started from a plan; it ends with this value.
struct Running {
    child: Child,
    dir: tempfile::TempDir,
    qmp: Qmp,
}

impl Running {
    fn start(plan: &LaunchPlan, qemu: &str) -> Result<Self, String> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        std::fs::write(dir.path().join("plan.json"), serde_json::to_string(plan).expect("JSON")).expect("writable");
        let log = std::fs::File::create(dir.path().join("log")).expect("writable");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "become_qemu", "--nocapture"])
            .env(STAGE_VARIABLE, dir.path())
            .env(stage::QEMU_VARIABLE, qemu)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("this test can be run again");
        let socket = dir.path().join("monitor.sock");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(qmp) = Qmp::connect(&socket) {
                return Ok(Self { child, dir, qmp });
            }
            if let Some(status) = child.try_wait().expect("a child") {
                let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
                remove_loops(dir.path());
                return Err(format!("{status}: {}", log.trim()));
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                return Err("QEMU did not answer".to_owned());
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove_loops(self.dir.path());
    }
}

fn remove_loops(dir: &Path) {
    for device in std::fs::read_to_string(dir.join("loops")).unwrap_or_default().lines() {
        let _ = Command::new("losetup").args(["--detach", device]).status();
    }
}

/// Everything QEMU reports that the plan contains too.
fn compare(plan: &LaunchPlan, running: &mut Running) -> Result<(), String> {
    let log = std::fs::read_to_string(running.dir.path().join("log")).unwrap_or_default();
    if let Some(line) = log.lines().find(|line| line.contains("warning:") && !is_known_warning(line)) {
        return Err(line.to_owned());
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.child.id())).expect("QEMU is a process");
    expect("seccomp", status.contains("Seccomp:\t2"), true)?;
    settles_below_the_overhead(running.child.id(), plan.resources.overhead.total_bytes)?;
    let qmp = &mut running.qmp;
    expect("status", qmp.call("query-status", json!({}))?["status"].clone(), json!("prelaunch"))?;
    expect(
        "name",
        qmp.call("query-name", json!({}))?["name"].clone(),
        json!(format!("{}_{}", plan.identity.namespace, plan.identity.name)),
    )?;
    let memory = qmp.call("query-memory-size-summary", json!({}))?;
    expect("memory", memory["base-memory"].as_u64(), Some(plan.resources.guest_memory_bytes))?;
    let vcpus = qmp.call("query-cpus-fast", json!({}))?;
    expect("vCPUs", vcpus.as_array().map(Vec::len), usize::try_from(plan.resources.vcpu_count).ok())?;
    let kvm = qmp.call("query-kvm", json!({}))?;
    expect("KVM", kvm["enabled"].as_bool(), Some(plan.accelerator == Accelerator::Kvm))?;
    nodes(plan, qmp)?;
    for disk in &plan.disks {
        disk_device(plan, disk, qmp)?;
    }
    chardevs(plan, qmp)?;
    places(plan, qmp)?;
    interfaces(plan, qmp)?;
    live(plan, qmp)?;
    sets(plan, qmp)
}

/// What `live.json` begins with is what QEMU holds.
fn live(plan: &LaunchPlan, qmp: &mut Qmp) -> Result<(), String> {
    let held = LivePlan::of(plan).held;
    expect("nodes", names(&qmp.call("query-named-block-nodes", json!({}))?, "node-name"), held.block_nodes)?;
    expect("character devices", names(&qmp.call("query-chardev", json!({}))?, "label"), held.chardevs)?;
    let children = qmp.call("qom-list", json!({"path": "/machine/peripheral"}))?;
    let is_device = |child: &&Value| child["type"].as_str().is_some_and(|kind| kind.starts_with("child<"));
    let devices = children.as_array().into_iter().flatten().filter(is_device);
    expect("devices", devices.filter_map(|one| one["name"].as_str()).map(str::to_owned).collect(), held.devices)?;
    let netdevs: BTreeSet<_> = plan.interfaces.iter().map(|interface| interface.netdev.clone()).collect();
    expect("network backends", netdevs, held.netdevs)?;
    // No query reports a link; but a card's is set by both of its names, as the plan wants it.
    for (device, card) in &held.cards {
        for name in [device, &card.netdev] {
            qmp.call("set_link", json!({"name": name, "up": card.link == LinkState::Up}))?;
        }
    }
    let blocks = qmp.call("query-block", json!({}))?;
    let removable = blocks.as_array().into_iter().flatten().filter(|block| block["removable"] == true);
    let id = |block: &Value| {
        let qdev = block["qdev"].as_str().unwrap_or_default();
        let path = qdev.strip_prefix("/machine/peripheral/").unwrap_or(qdev);
        path.split('/').next().unwrap_or_default().to_owned()
    };
    let medium = |of: &Value| of["node-name"].as_str().map(str::to_owned);
    let drive =
        |block: &Value| (id(block), Drive { is_open: block["tray_open"] == true, medium: medium(&block["inserted"]) });
    // The supervisor opens trays before the guest runs, which was not done here.
    let closed = held.drives.into_iter().map(|(id, drive)| (id, Drive { is_open: false, ..drive }));
    let drives: BTreeMap<_, _> = removable.map(drive).collect();
    expect("drives", &drives, &closed.collect())?;
    // What a supervisor asks instead reports the same of nodes and media.
    let nodes = qmp.call("query-blockstats", json!({"query-nodes": true}))?;
    let all = names(&qmp.call("query-named-block-nodes", json!({}))?, "node-name");
    expect("nodes with counters", names(&nodes, "node-name"), all)?;
    let backends = qmp.call("query-blockstats", json!({}))?;
    let media = backends.as_array().into_iter().flatten().map(|block| (id(block), medium(block)));
    let held: BTreeMap<_, _> = drives.iter().map(|(id, drive)| (id.clone(), drive.medium.clone())).collect();
    expect("media", media.filter(|(id, _)| drives.contains_key(id)).collect(), held)
}

/// What QEMU has for itself fits into the overhead; its guest has touched nothing yet. While it makes many devices, QEMU
/// 10 holds several times as much for some tenths of a second: the address maps of before, until RCU frees them.
fn settles_below_the_overhead(pid: u32, overhead: u64) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("QEMU is a process");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a field of every process");
        let bytes = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024;
        if bytes <= overhead {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("QEMU has {bytes} bytes of its own, planned were {overhead}"));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// QEMU's errors about a sparse test machine.
fn is_known_warning(line: &str) -> bool {
    // The number of this host's CPUs, against which QEMU measures a guest.
    line.contains("exceeds the recommended cpus")
        || line.contains("TCG doesn't support requested feature")
        || line.contains("host doesn't support requested feature")
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, planned: T) -> Result<(), String> {
    if actual == planned { Ok(()) } else { Err(format!("{what}: QEMU has {actual:?}, planned was {planned:?}")) }
}

fn names(reply: &Value, key: &str) -> BTreeSet<String> {
    let all = reply.as_array().into_iter().flatten();
    all.filter_map(|one| one[key].as_str()).map(str::to_owned).collect()
}

fn nodes(plan: &LaunchPlan, qmp: &mut Qmp) -> Result<(), String> {
    let mut planned: BTreeSet<String> = BTreeSet::new();
    for nodes in plan.disks.iter().map(|disk| &disk.nodes) {
        let all = [&nodes.image, &nodes.room, &nodes.file, &nodes.base, &nodes.base_file];
        planned.extend(all.into_iter().flatten().cloned());
    }
    if plan.descriptors.iter().any(|one| one.purpose == DescriptorPurpose::FirmwareCode) {
        planned.extend(["uefi-code", "uefi-vars", "file-uefi-code", "file-uefi-vars"].map(str::to_owned));
    }
    expect("block nodes", names(&qmp.call("query-named-block-nodes", json!({}))?, "node-name"), planned)
}

fn disk_device(plan: &LaunchPlan, disk: &DiskPlan, qmp: &mut Qmp) -> Result<(), String> {
    let blocks = qmp.call("query-block", json!({}))?;
    let path = format!("/machine/peripheral/{}", disk.device);
    // Some devices put a child of their own between themselves and the disk.
    let is_it = |block: &&Value| {
        let qdev = block["qdev"].as_str().unwrap_or_default();
        qdev == disk.device || qdev == path || qdev.starts_with(&format!("{path}/"))
    };
    let block = blocks.as_array().into_iter().flatten().find(is_it);
    let block = block.ok_or_else(|| format!("{}: no such device among {:?}", disk.device, names(&blocks, "qdev")))?;
    let Some(image) = &disk.nodes.image else {
        return expect("medium", block.get("inserted").is_some(), false);
    };
    let inserted = &block["inserted"];
    expect("image", inserted["node-name"].as_str(), Some(image.as_str()))?;
    expect("read-only", inserted["ro"].as_bool(), Some(disk.read_only && !disk.overlay))?;
    let format = if disk.overlay { "qcow2" } else { disk.format.as_str() };
    expect("format", inserted["drv"].as_str(), Some(format))?;
    expect("depth", inserted["backing_file_depth"].as_u64(), Some(u64::from(disk.overlay)))?;
    let direct = plan.descriptors.iter().find_map(|one| match &one.purpose {
        DescriptorPurpose::DiskLayer { volume, direct, .. } if *volume == disk.volume => Some(*direct),
        _ => None,
    });
    expect("direct", inserted["cache"]["direct"].as_bool(), direct)
}

fn chardevs(plan: &LaunchPlan, qmp: &mut Qmp) -> Result<(), String> {
    let mut planned: BTreeSet<_> = ["monitor", "monitor-init", "agent"].map(str::to_owned).into();
    planned.extend(plan.serials.iter().map(|serial| format!("serial{}", serial.index)));
    planned.extend(slots(plan).map(|slot| format!("usbredir{slot}")));
    expect("chardevs", names(&qmp.call("query-chardev", json!({}))?, "label"), planned)?;
    for slot in slots(plan) {
        let path = format!("/machine/peripheral/usbredir{slot}");
        let chardev = qmp.call("qom-get", json!({ "path": path, "property": "chardev" }))?;
        expect("chardev of a slot", chardev.as_str(), Some(format!("usbredir{slot}").as_str()))?;
    }
    Ok(())
}

/// Every device is where the map has it: the parent bus is the port, or the root complex with the right slot.
fn places(plan: &LaunchPlan, qmp: &mut Qmp) -> Result<(), String> {
    for (id, place) in &plan.stored.pci.devices {
        let path = format!("/machine/peripheral/{id}");
        let mut get = |property: &str| qmp.call("qom-get", json!({ "path": path, "property": property }));
        let bus = get("parent_bus")?;
        let bus = bus.as_str().unwrap_or_default().to_owned();
        let addr = get("addr")?;
        let (on_bus, devfn) = match place {
            PciPlace::Port(number) => (format!("/machine/peripheral/{number}/{number}"), 0),
            PciPlace::Root(at) => ("pcie.0".to_owned(), at.devfn()),
        };
        if !bus.ends_with(&on_bus) {
            return Err(format!("{id} is on {bus}, planned was {place}"));
        }
        expect(&format!("{id} at"), addr.as_u64(), Some(u64::from(devfn)))?;
    }
    Ok(())
}

fn interfaces(plan: &LaunchPlan, qmp: &mut Qmp) -> Result<(), String> {
    for interface in &plan.interfaces {
        let path = format!("/machine/peripheral/{}", interface.device);
        let mac = qmp.call("qom-get", json!({ "path": path, "property": "mac" }))?;
        expect("MAC address", mac.as_str(), Some(interface.mac.as_str()))?;
        let netdev = qmp.call("qom-get", json!({ "path": path, "property": "netdev" }))?;
        expect("netdev", netdev.as_str(), Some(interface.netdev.as_str()))?;
    }
    Ok(())
}

fn sets(plan: &LaunchPlan, qmp: &mut Qmp) -> Result<(), String> {
    let reply = qmp.call("query-fdsets", json!({}))?;
    let there: BTreeSet<u64> =
        reply.as_array().into_iter().flatten().filter_map(|set| set["fdset-id"].as_u64()).collect();
    let of_disks = plan.disks.iter().flat_map(|disk| &disk.descriptor_sets).map(|&set| u64::from(set));
    let missing: Vec<u64> = of_disks.filter(|set| !there.contains(set)).collect();
    expect("missing descriptor sets", missing, Vec::new())
}
