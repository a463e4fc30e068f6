//! One vocabulary for two descriptions of a machine: KubeVirt's domain XML, and our own machine. Each becomes a
//! list of short facts (`disk root: virtio disk vda`), which can be compared as text.
//!
//! Compared are kind, bus, model and number of devices, and what the guest sees of CPU, memory, firmware and clock.
//! Not compared are paths, aliases, ROM bars, and values that differ from run to run (UUIDs).

use std::collections::BTreeSet;

use garboard_machine::argv::{Properties, Property};
use garboard_machine::clock::{DriftFix, RtcBase, RtcClock};
use garboard_machine::cpu::Switch;
use garboard_machine::machine::{Machine, Vnc};
use garboard_machine::memory::MEMORY_ALIGNMENT_BYTES;
use garboard_machine::process::WatchdogAction;
use garboard_plan::{DiskPlan, Frontend, InterfacePlan, LaunchPlan, LinkState, NicModel, Tray};
use roxmltree::{Document, Node};

/// Facts about one machine.
pub(crate) type Facts = BTreeSet<String>;

/// Facts of a domain XML.
pub(crate) fn of_domain(xml: &str) -> Facts {
    let document = Document::parse(xml).expect("XML");
    let domain = document.root_element();
    let mut facts = Facts::new();
    for (index, device) in elements(child(domain, "devices")).enumerate() {
        facts.extend(domain_device(device, index));
    }
    domain_compute(domain, &mut facts);
    domain_firmware(domain, &mut facts);
    domain_features(domain, &mut facts);
    domain_clock(domain, &mut facts);
    facts
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

fn elements<'a, 'i: 'a>(node: Option<Node<'a, 'i>>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.into_iter().flat_map(|node| node.children()).filter(Node::is_element)
}

fn attribute<'a>(node: Node<'a, '_>, name: &str, attribute: &str) -> Option<&'a str> {
    child(node, name).and_then(|child| child.attribute(attribute))
}

fn alias<'a>(node: Node<'a, '_>) -> &'a str {
    attribute(node, "alias", "name").unwrap_or_default().trim_start_matches("ua-")
}

fn domain_device(device: Node<'_, '_>, index: usize) -> Vec<String> {
    let model = device.attribute("model").unwrap_or_default();
    match device.tag_name().name() {
        "disk" => domain_disk(device),
        "interface" => domain_interface(device),
        "controller" => {
            let kind = device.attribute("type").unwrap_or_default();
            if model == "none" { Vec::new() } else { vec![format!("controller {kind}: {}", virtio_name(model))] }
        }
        "channel" => vec![format!("channel {}", attribute(device, "target", "name").unwrap_or_default())],
        "video" => vec![format!("video {}", attribute(device, "model", "type").unwrap_or_default())],
        "graphics" => vec![format!("graphics {}", device.attribute("type").unwrap_or_default())],
        "memballoon" => vec![format!(
            "balloon {} reporting={}",
            virtio_name(model),
            device.attribute("freePageReporting").unwrap_or("off"),
        )],
        "serial" => vec![format!("serial {}", attribute(device, "target", "port").unwrap_or_default())],
        "rng" => vec![format!("rng {}", virtio_name(model))],
        "watchdog" => vec![format!("watchdog {model} {}", device.attribute("action").unwrap_or_default())],
        "sound" => vec![format!("sound {model}")],
        "panic" => vec![format!("panic {model}")],
        "input" => {
            let kind = device.attribute("type").unwrap_or_default();
            vec![format!("input {kind} {}", device.attribute("bus").unwrap_or_default())]
        }
        "redirdev" => {
            let path = attribute(device, "source", "path").unwrap_or_default();
            // `…-virt-usbredir-0` is KubeVirt's, `…/usbredir0.sock` ours.
            let slot = path.trim_end_matches(".sock").rsplit(['-', 'r']).next().unwrap_or_default();
            vec![format!("redirection {} {slot}", device.attribute("bus").unwrap_or_default())]
        }
        // The same serial port again, as libvirt spells it for guests without one.
        "console" => Vec::new(),
        other => vec![format!("{other} {index}")],
    }
}

/// The part of a model's name with its revision of virtio.
fn virtio_name(model: &str) -> &str {
    model.strip_prefix("virtio-").unwrap_or(model)
}

fn domain_disk(disk: Node<'_, '_>) -> Vec<String> {
    let name = alias(disk);
    let driver = |key| attribute(disk, "driver", key);
    let target = |key| attribute(disk, "target", key).unwrap_or_default();
    let device = disk.attribute("device").unwrap_or_default();
    let mut facts = vec![
        format!("disk {name}: {} {device} {}", target("bus"), target("dev")),
        format!("disk {name}: errors {}", driver("error_policy").unwrap_or_default()),
        format!("disk {name}: format {}", driver("type").unwrap_or_default()),
    ];
    if let Some(model) = disk.attribute("model") {
        facts.push(format!("disk {name}: {}", virtio_name(model)));
    }
    if let Some(order) = attribute(disk, "boot", "order") {
        facts.push(format!("disk {name}: boot {order}"));
    }
    if let Some(serial) = child(disk, "serial") {
        facts.push(format!("disk {name}: serial {}", serial.text().unwrap_or_default()));
    }
    for flag in ["readonly", "shareable", "backingStore"] {
        if child(disk, flag).is_some() {
            facts.push(format!("disk {name}: {flag}"));
        }
    }
    if target("tray") == "open" {
        facts.push(format!("disk {name}: tray open"));
    }
    for key in ["cache", "io"] {
        if let Some(value) = driver(key) {
            facts.push(format!("disk {name}: {key} {value}"));
        }
    }
    if let Some(thread) = driver("iothread") {
        facts.push(format!("disk {name}: iothread {thread}"));
    }
    let spread = child(disk, "driver").and_then(|driver| child(driver, "iothreads"));
    for thread in elements(spread) {
        facts.push(format!("disk {name}: iothread {}", thread.attribute("id").unwrap_or_default()));
    }
    for key in ["logical_block_size", "physical_block_size", "discard_granularity"] {
        if let Some(size) = attribute(disk, "blockio", key) {
            facts.push(format!("disk {name}: {key} {size}"));
        }
    }
    if attribute(disk, "address", "type") == Some("pci") {
        facts.push(format!("disk {name}: address"));
    }
    facts
}

fn domain_interface(interface: Node<'_, '_>) -> Vec<String> {
    let name = alias(interface);
    let mut facts = vec![format!(
        "interface {name}: {}",
        attribute(interface, "model", "type").unwrap_or_default().trim_start_matches("virtio-")
    )];
    if let Some(mac) = attribute(interface, "mac", "address") {
        facts.push(format!("interface {name}: mac {}", mac.replace('-', ":").to_lowercase()));
    }
    if let Some(order) = attribute(interface, "boot", "order") {
        facts.push(format!("interface {name}: boot {order}"));
    }
    if let Some(state) = attribute(interface, "link", "state") {
        facts.push(format!("interface {name}: link {state}"));
    }
    if let Some(queues) = attribute(interface, "driver", "queues") {
        facts.push(format!("interface {name}: queues {queues}"));
    }
    facts
}

fn domain_compute(domain: Node<'_, '_>, facts: &mut Facts) {
    let text = |name| child(domain, name).and_then(|node| node.text()).unwrap_or_default().to_owned();
    let bytes = |name| text(name).parse::<u64>().ok();
    let vcpus = text("vcpu");
    let enabled = elements(child(domain, "vcpus")).filter(|vcpu| vcpu.attribute("enabled") == Some("yes")).count();
    let current = attribute(domain, "vcpu", "current").unwrap_or(&vcpus);
    let at_boot = if enabled > 0 { enabled.to_string() } else { current.to_owned() };
    facts.insert(format!("vcpus {at_boot} of {vcpus}"));
    if let Some(size) = bytes("memory") {
        facts.insert(format!("memory {}", size.next_multiple_of(MEMORY_ALIGNMENT_BYTES)));
    }
    if let Some(size) = bytes("maxMemory") {
        facts.insert(format!("memory up to {}", size.next_multiple_of(MEMORY_ALIGNMENT_BYTES)));
    }
    if let Some(backing) = child(domain, "memoryBacking") {
        if child(backing, "hugepages").is_some() {
            facts.insert("memory hugepages".to_owned());
        }
        if attribute(backing, "access", "mode") == Some("shared") {
            facts.insert("memory shared".to_owned());
        }
    }
    if let Some(threads) = bytes("iothreads") {
        facts.insert(format!("iothreads {threads}"));
    }
    let Some(cpu) = child(domain, "cpu") else { return };
    let topology = |key| attribute(cpu, "topology", key).unwrap_or_default();
    facts.insert(format!("topology {} {} {}", topology("sockets"), topology("cores"), topology("threads")));
    let model = child(cpu, "model").and_then(|model| model.text());
    let whole = if cpu.attribute("mode") == Some("maximum") { "max" } else { "host" };
    facts.insert(format!("cpu {}", model.unwrap_or(whole)));
    for feature in cpu.children().filter(|node| node.has_tag_name("feature")) {
        let policy = feature.attribute("policy").unwrap_or("require");
        let state = if matches!(policy, "disable" | "forbid") { "off" } else { "on" };
        facts.insert(format!("cpu {}={state}", feature.attribute("name").unwrap_or_default()));
    }
}

fn domain_firmware(domain: Node<'_, '_>, facts: &mut Facts) {
    let os = child(domain, "os").expect("os");
    facts.insert(format!("machine {}", attribute(os, "type", "machine").unwrap_or_default()));
    if let Some(loader) = child(os, "loader") {
        facts.insert(format!("uefi secure={}", loader.attribute("secure").unwrap_or("no")));
    }
    for name in ["kernel", "initrd"] {
        if child(os, name).is_some() {
            facts.insert(name.to_owned());
        }
    }
    if let Some(line) = child(os, "cmdline").and_then(|line| line.text()) {
        facts.insert(format!("kernel line {line}"));
    }
    if let Some(timeout) = attribute(os, "bootmenu", "timeout") {
        facts.insert(format!("boot menu {timeout}"));
    }
    if attribute(os, "bios", "useserial") == Some("yes") {
        facts.insert("firmware on the serial port".to_owned());
    }
    for table in elements(child(domain, "sysinfo")) {
        for entry in elements(Some(table)) {
            let name = entry.attribute("name").unwrap_or_default();
            let value = entry.text().unwrap_or_default();
            if name != "uuid" && !value.is_empty() {
                facts.insert(format!("smbios {} {name} {value}", table.tag_name().name()));
            }
        }
    }
}

fn domain_features(domain: Node<'_, '_>, facts: &mut Facts) {
    let features = child(domain, "features");
    for feature in elements(features) {
        let name = feature.tag_name().name();
        match name {
            "hyperv" if feature.attribute("mode") == Some("passthrough") => {
                facts.insert("hyperv passthrough".to_owned());
            }
            "hyperv" => {
                for part in elements(Some(feature)) {
                    let name = part.tag_name().name();
                    let value = part.attribute("retries").unwrap_or(part.attribute("state").unwrap_or_default());
                    facts.insert(format!("hyperv {name} {value}"));
                    for detail in elements(Some(part)) {
                        let state = detail.attribute("state").unwrap_or_default();
                        facts.insert(format!("hyperv {name}-{} {state}", detail.tag_name().name()));
                    }
                }
            }
            // Every PC has one; its attributes are KVM's.
            "apic" => {
                if let Some(eoi) = feature.attribute("eoi") {
                    facts.insert(format!("apic eoi {eoi}"));
                }
            }
            _ => {
                let state = feature.attribute("state").unwrap_or("on");
                facts.insert(format!("feature {name} {state}"));
            }
        }
    }
}

fn domain_clock(domain: Node<'_, '_>, facts: &mut Facts) {
    let Some(clock) = child(domain, "clock") else { return };
    let zone = clock.attribute("timezone");
    let shift = clock.attribute("adjustment").filter(|shift| *shift != "reset");
    if let Some(shown) = zone.or(shift) {
        facts.insert(format!("clock {shown}"));
    }
    for timer in elements(Some(clock)) {
        let name = timer.attribute("name").unwrap_or_default();
        facts.insert(format!("timer {name} {}", timer.attribute("present").unwrap_or("yes")));
    }
}

/// Facts of our machine.
pub(crate) fn of_machine(plan: &LaunchPlan, machine: &Machine) -> Facts {
    let mut facts = Facts::new();
    for disk in &plan.disks {
        facts.extend(disk_facts(disk, machine));
    }
    for interface in &plan.interfaces {
        facts.extend(interface_facts(interface, machine));
    }
    for device in &machine.devices {
        facts.extend(device_facts(&device.properties(), machine));
    }
    if machine.vnc == Vnc::HandedOver {
        facts.insert("graphics vnc".to_owned());
    }
    compute_facts(plan, machine, &mut facts);
    firmware_facts(machine, &mut facts);
    facts
}

fn properties_of(machine: &Machine, id: &str) -> Properties {
    let device = machine.devices.iter().find(|device| device.id().as_str() == id);
    device.map(|device| device.properties()).unwrap_or_default()
}

fn number(properties: &Properties, name: &str) -> Option<u64> {
    match properties.get(name) {
        Some(Property::Number(number)) => Some(*number),
        _ => None,
    }
}

fn disk_facts(disk: &DiskPlan, machine: &Machine) -> Vec<String> {
    let name = &disk.volume;
    let device = properties_of(machine, &disk.device);
    let (bus, kind) = match disk.frontend {
        Frontend::VirtioBlk => ("virtio", "disk"),
        Frontend::ScsiDisk => ("scsi", "disk"),
        Frontend::ScsiCdrom => ("scsi", "cdrom"),
        Frontend::ScsiBlock => ("scsi", "lun"),
        Frontend::SataDisk => ("sata", "disk"),
        Frontend::SataCdrom => ("sata", "cdrom"),
        Frontend::UsbDisk => ("usb", "disk"),
        Frontend::UsbCdrom => ("usb", "cdrom"),
    };
    let errors = match (device.text("werror"), device.text("rerror")) {
        (Some("enospc"), _) => "enospace",
        (werror, _) => werror.unwrap_or("stop"),
    };
    let format = if disk.overlay { "qcow2" } else { disk.format.as_str() };
    let mut facts = vec![
        format!("disk {name}: {bus} {kind} {}", disk.target),
        format!("disk {name}: errors {errors}"),
        format!("disk {name}: format {format}"),
    ];
    if let Some(revision) = device.text("driver").and_then(|driver| driver.strip_prefix("virtio-blk-pci-")) {
        facts.push(format!("disk {name}: {revision}"));
    }
    if let Some(order) = number(&device, "bootindex") {
        facts.push(format!("disk {name}: boot {order}"));
    }
    if let Some(serial) = device.text("serial") {
        facts.push(format!("disk {name}: serial {serial}"));
    }
    let flags = [("readonly", disk.read_only), ("shareable", disk.shareable), ("backingStore", disk.overlay)];
    facts.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| format!("disk {name}: {flag}")));
    if disk.tray == Some(Tray::Open) {
        facts.push(format!("disk {name}: tray open"));
    }
    facts.extend(cache_facts(disk, &device, machine));
    facts.extend(iothreads(&device).into_iter().map(|thread| format!("disk {name}: iothread {thread}")));
    for key in ["logical_block_size", "physical_block_size", "discard_granularity"] {
        if let Some(size) = number(&device, key) {
            facts.push(format!("disk {name}: {key} {size}"));
        }
    }
    facts
}

/// Cache and I/O mode in the manifest's terms, from the options of block node and device.
fn cache_facts(disk: &DiskPlan, device: &Properties, machine: &Machine) -> Vec<String> {
    let Some(file) = &disk.nodes.file else { return Vec::new() };
    let node = machine.blockdevs.iter().find(|node| node.node_name().as_str() == file).expect("a planned node");
    let node = node.properties();
    let is_direct = match node.get("cache") {
        Some(Property::Object(cache)) => cache.get("direct") == Some(&Property::Bool(true)),
        _ => false,
    };
    let cache = match (is_direct, device.text("write-cache")) {
        (true, _) => "none",
        (false, Some("off")) => "writethrough",
        (false, _) => "writeback",
    };
    let cache = format!("disk {}: cache {cache}", disk.volume);
    // A disk on iSCSI has its own way.
    [Some(cache), node.text("aio").map(|io| format!("disk {}: io {io}", disk.volume))].into_iter().flatten().collect()
}

fn iothreads(device: &Properties) -> Vec<String> {
    let short = |id: &str| id.trim_start_matches("iothread").to_owned();
    if let Some(one) = device.text("iothread") {
        return vec![short(one)];
    }
    let Some(Property::List(threads)) = device.get("iothread-vq-mapping") else { return Vec::new() };
    let of_one = |thread: &Property| match thread {
        Property::Object(mapping) => mapping.text("iothread").map(short),
        _ => None,
    };
    threads.iter().filter_map(of_one).collect()
}

fn interface_facts(interface: &InterfacePlan, machine: &Machine) -> Vec<String> {
    let name = &interface.name;
    let device = properties_of(machine, &interface.device);
    let driver = device.text("driver").unwrap_or_default();
    let mut facts = vec![
        format!("interface {name}: {}", driver.trim_start_matches("virtio-net-pci-")),
        format!("interface {name}: mac {}", interface.mac),
    ];
    if let Some(order) = interface.boot_order {
        facts.push(format!("interface {name}: boot {order}"));
    }
    if interface.link == LinkState::Down {
        facts.push(format!("interface {name}: link down"));
    }
    if interface.model == NicModel::Virtio && interface.queues > 1 {
        facts.push(format!("interface {name}: queues {}", interface.queues));
    }
    facts
}

fn device_facts(device: &Properties, machine: &Machine) -> Option<String> {
    let driver = device.text("driver")?;
    let revision = |base: &str| driver.strip_prefix(base).map(|rest| rest.trim_start_matches("-pci-").to_owned());
    if let Some(revision) = revision("virtio-scsi") {
        return Some(format!("controller scsi: {revision}"));
    }
    if let Some(revision) = revision("virtio-serial") {
        return Some(format!("controller virtio-serial: {revision}"));
    }
    if let Some(revision) = revision("virtio-rng") {
        return Some(format!("rng {revision}"));
    }
    if let Some(revision) = revision("virtio-balloon") {
        let reporting = if device.get("free-page-reporting") == Some(&Property::Bool(true)) { "on" } else { "off" };
        // KubeVirt's statistics every ten seconds feed its metrics; here nothing reads them, so there are none.
        return Some(format!("balloon {revision} reporting={reporting}"));
    }
    let watchdog = match machine.action.watchdog {
        WatchdogAction::Reset => "reset",
        WatchdogAction::Shutdown => "shutdown",
        WatchdogAction::Poweroff => "poweroff",
    };
    match driver {
        "qemu-xhci" => Some("controller usb: qemu-xhci".to_owned()),
        "virtserialport" => device.text("name").map(|name| format!("channel {name}")),
        "VGA" => Some("video vga".to_owned()),
        "bochs-display" => Some("video bochs".to_owned()),
        "cirrus-vga" => Some("video cirrus".to_owned()),
        "virtio-vga" => Some("video virtio".to_owned()),
        "ramfb" => Some("video ramfb".to_owned()),
        "isa-serial" => number(device, "index").map(|index| format!("serial {index}")),
        "i6300esb" => Some(format!("watchdog i6300esb {watchdog}")),
        "ich9-intel-hda" => Some("sound ich9".to_owned()),
        "AC97" => Some("sound ac97".to_owned()),
        "pvpanic" => Some("panic isa".to_owned()),
        "pvpanic-pci" => Some("panic pvpanic".to_owned()),
        "usb-tablet" => Some("input tablet usb".to_owned()),
        "virtio-tablet-pci" => Some("input tablet virtio".to_owned()),
        "usb-redir" => {
            let slot = device.text("id")?.strip_prefix("usbredir")?;
            Some(format!("redirection usb {slot}"))
        }
        // Disks and interfaces were described above; ports, codecs and bridges are how devices hang together.
        _ => None,
    }
}

fn compute_facts(plan: &LaunchPlan, machine: &Machine, facts: &mut Facts) {
    let smp = machine.smp;
    facts.insert(format!("vcpus {} of {}", smp.cpus, smp.maxcpus));
    facts.insert(format!("topology {} {} {}", smp.sockets, smp.cores, smp.threads));
    facts.insert(format!("memory {}", plan.resources.guest_memory_bytes));
    if let Some(most) = machine.memory.maxmem {
        facts.insert(format!("memory up to {most}"));
    }
    if let garboard_machine::memory::MemoryKind::MemfdHuge { .. } = machine.memory_backend.kind {
        facts.insert("memory hugepages".to_owned());
    }
    if let garboard_machine::memory::MemoryKind::Memfd { .. } = machine.memory_backend.kind {
        facts.insert("memory shared".to_owned());
    }
    let is_thread = |object: &&garboard_machine::object::Object| object.id().as_str().starts_with("iothread");
    let threads = machine.objects.iter().filter(is_thread).count();
    if threads > 0 {
        facts.insert(format!("iothreads {threads}"));
    }
    facts.insert(format!("cpu {}", machine.cpu.model.as_str()));
    for (name, value) in &machine.cpu.properties {
        facts.extend(cpu_fact(name.as_str(), value.as_str()));
    }
    let rtc = machine.rtc;
    if rtc.base == RtcBase::Localtime {
        let zone = plan.environment.iter().find(|(name, _)| name == "TZ").map(|(_, zone)| zone.as_str());
        facts.insert(format!("clock {}", shift_of(zone.unwrap_or_default())));
    }
    if rtc.clock == RtcClock::Vm || rtc.driftfix == DriftFix::Slew {
        facts.insert("timer rtc yes".to_owned());
    }
    for (name, state) in [("hpet", machine.board.hpet), ("pit", machine.board.pit)] {
        if let Some(state) = state {
            facts.insert(format!("timer {name} {}", if state == Switch::On { "yes" } else { "no" }));
        }
    }
}

/// The seconds of a zone that is an offset, or the zone.
fn shift_of(zone: &str) -> String {
    let Some(rest) = zone.strip_prefix("UTC") else { return zone.to_owned() };
    let (sign, clock) = rest.split_at(1);
    let seconds = clock.split(':').fold(0_i64, |sum, part| sum * 60 + part.parse::<i64>().unwrap_or(0));
    if sign == "+" { (-seconds).to_string() } else { seconds.to_string() }
}

fn cpu_fact(name: &str, value: &str) -> Option<String> {
    let hyperv = name.strip_prefix("hv-");
    match (name, hyperv) {
        ("migratable", _) => None,
        ("hv-passthrough", _) => Some("hyperv passthrough".to_owned()),
        ("hv-crash", _) => Some("panic hyperv".to_owned()),
        ("hv-time", _) => Some(format!("timer hypervclock {}", if value == "on" { "yes" } else { "no" })),
        ("kvmclock", _) => Some(format!("timer kvmclock {}", if value == "on" { "yes" } else { "no" })),
        ("hv-spinlocks", _) => {
            let retries = u32::from_str_radix(value.trim_start_matches("0x"), 16).unwrap_or(0);
            Some(format!("hyperv spinlocks {retries}"))
        }
        ("kvm-pv-eoi", _) => Some(format!("apic eoi {value}")),
        (_, Some(part)) => Some(format!("hyperv {part} {value}")),
        (name, None) => Some(format!("cpu {name}={value}")),
    }
}

fn firmware_facts(machine: &Machine, facts: &mut Facts) {
    let board = &machine.board;
    let alias = if board.machine_type.starts_with("pc-q35-") { "q35" } else { &board.machine_type };
    facts.insert(format!("machine {alias}"));
    if board.pflash.is_some() {
        let is_secure = machine.globals.iter().any(|global| global.property == "secure");
        facts.insert(format!("uefi secure={}", if is_secure { "yes" } else { "no" }));
    }
    if machine.kernel.kernel.is_some() {
        facts.insert("kernel".to_owned());
    }
    if machine.kernel.initrd.is_some() {
        facts.insert("initrd".to_owned());
    }
    if let Some(line) = &machine.kernel.append {
        facts.insert(format!("kernel line {line}"));
    }
    if let Some(timeout) = machine.boot.menu_milliseconds {
        facts.insert(format!("boot menu {timeout}"));
    }
    if board.graphics == Some(Switch::Off) {
        facts.insert("firmware on the serial port".to_owned());
    }
    if board.acpi == Switch::On {
        facts.insert("feature acpi on".to_owned());
    }
    if let Some(smm) = board.smm {
        facts.insert(format!("feature smm {}", smm.as_str()));
    }
    facts.insert("feature vmport off".to_owned());
    for table in &machine.smbios {
        facts.extend(smbios_facts(table));
    }
}

fn smbios_facts(table: &garboard_machine::firmware::Smbios) -> Vec<String> {
    use garboard_machine::argv::{Arg, Value};
    let Value::Options(options) = table.argument().value else { return Vec::new() };
    let name = if options.get("type") == Some("1") { "system" } else { "chassis" };
    ["manufacturer", "product", "version", "serial", "sku", "family", "asset"]
        .iter()
        .filter_map(|key| options.get(key).map(|value| format!("smbios {name} {key} {value}")))
        .collect()
}
