//! What a domain says of its guest beside devices: name, memory, processors, what it boots from, what its tables say.

use garboard_machine::argv::Options;
use garboard_plan::{FirmwarePlan, RebootPolicy};

use crate::Input;
use crate::arguments::Values;
use crate::element::Element;

pub(crate) fn elements(input: Input<'_>) -> Vec<Element> {
    let mut elements = vec![Element::text("name", crate::domain_name(input.plan))];
    let uuid = input.arguments.text("-uuid").map(|uuid| Element::text("uuid", uuid));
    elements.extend(uuid);
    elements.extend(memory(input));
    elements.push(vcpus(input));
    let threads = input.arguments.all("-object").iter().filter(|object| is_thread(object)).count();
    elements.extend((threads > 0).then(|| Element::text("iothreads", threads)));
    let tables = tables(input);
    elements.extend(sysinfo(&tables));
    elements.push(os(input, !tables.is_empty()));
    elements
}

fn is_thread(object: &Values) -> bool {
    object.get("qom-type").as_deref() == Some("iothread")
}

fn memory(input: Input<'_>) -> Vec<Element> {
    let size = |name, bytes: u64| Element::text(name, bytes).with("unit", "b");
    let bytes = input.plan.resources.guest_memory_bytes;
    let most = input.arguments.member("-m", "maxmem").and_then(|text| bytes_of(&text));
    // libvirt requires a number of slots; virtio-mem takes none.
    let most = most.map(|most| Element::text("maxMemory", most).with("slots", 1).with("unit", "b"));
    let mut elements: Vec<Element> = most.into_iter().collect();
    elements.extend([size("memory", bytes), size("currentMemory", bytes)]);
    elements.extend(backing(input));
    elements
}

/// A size as `-m` has it: a number and a binary unit.
fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "T" => 1 << 40,
        "G" => 1 << 30,
        "M" => 1 << 20,
        "K" => 1 << 10,
        "B" | "" => 1,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn backing(input: Input<'_>) -> Option<Element> {
    let objects = input.arguments.all("-object");
    let is_memory = |object: &&Values| object.get("qom-type").is_some_and(|kind| kind.starts_with("memory-backend-"));
    let object = objects.iter().find(is_memory)?;
    let mut backing = Element::new("memoryBacking");
    if object.is_on("hugetlb") {
        let page = Element::new("page").with_some("size", object.get("hugetlbsize")).with("unit", "b");
        backing = backing.child(Element::new("hugepages").child(page));
    }
    backing = backing.child(Element::new("source").with("type", "memfd"));
    if object.is_on("share") {
        backing = backing.child(Element::new("access").with("mode", "shared"));
    }
    if object.is_on("prealloc") {
        let allocation = Element::new("allocation").with("mode", "immediate");
        backing = backing.child(allocation.with_some("threads", object.get("prealloc-threads")));
    }
    Some(backing)
}

fn vcpus(input: Input<'_>) -> Element {
    let now = input.plan.resources.vcpu_count;
    let most = input.arguments.member("-smp", "maxcpus").and_then(|most| most.parse().ok()).unwrap_or(now);
    let vcpus = Element::text("vcpu", most).with("placement", "static");
    if most == now { vcpus } else { vcpus.with("current", now) }
}

/// Tables of SMBIOS: libvirt's name of the table, and its fields.
fn tables(input: Input<'_>) -> Vec<(&'static str, Options)> {
    let named = |values: Values| {
        let Values::Options(options) = values else { return None };
        let table = match options.get("type") {
            Some("1") => "system",
            Some("3") => "chassis",
            Some(_) | None => return None,
        };
        Some((table, options))
    };
    input.arguments.all("-smbios").into_iter().filter_map(named).collect()
}

fn sysinfo(tables: &[(&'static str, Options)]) -> Option<Element> {
    const FIELDS: [&str; 8] = ["manufacturer", "product", "version", "serial", "uuid", "sku", "family", "asset"];
    let table = |&(name, ref options): &(&'static str, Options)| {
        let entry = |field: &&'static str| Some(Element::text("entry", options.get(field)?).with("name", field));
        Element::new(name).children(FIELDS.iter().filter_map(entry))
    };
    let sysinfo = Element::new("sysinfo").with("type", "smbios").children(tables.iter().map(table));
    (!tables.is_empty()).then_some(sysinfo)
}

fn os(input: Input<'_>, has_tables: bool) -> Element {
    let arguments = input.arguments;
    let machine = arguments.member("-machine", "type").unwrap_or_default();
    let mut os = Element::new("os").child(Element::text("type", "hvm").with("arch", "x86_64").with("machine", machine));
    if let FirmwarePlan::Uefi { code, vars_template, .. } = &input.plan.firmware {
        let is_secure = arguments.global("cfi.pflash01", "secure").as_deref() == Some("on");
        let loader = Element::text("loader", code).with("readonly", "yes");
        let loader = if is_secure { loader.with("secure", "yes") } else { loader };
        os = os.child(loader.with("type", "pflash"));
        os = os.child(Element::new("nvram").with("template", vars_template));
    }
    for (option, name) in [("-kernel", "kernel"), ("-initrd", "initrd"), ("-append", "cmdline")] {
        os = os.children(arguments.text(option).map(|value| Element::text(name, value)));
    }
    if arguments.member("-machine", "graphics").as_deref() == Some("off") {
        os = os.child(Element::new("bios").with("useserial", "yes"));
    }
    if arguments.member("-boot", "menu").as_deref() == Some("on") {
        let menu = Element::new("bootmenu").with("enable", "yes");
        os = os.child(menu.with_some("timeout", arguments.member("-boot", "splash-time")));
    }
    let tables = Element::new("smbios").with("mode", "sysinfo");
    os.children(has_tables.then_some(tables))
}

/// What ends of the guest mean, and whether it may sleep.
pub(crate) fn events(input: Input<'_>) -> Vec<Element> {
    let reboot = match input.plan.lifecycle.reboot {
        RebootPolicy::Reboot => "restart",
        RebootPolicy::Terminate => "destroy",
    };
    let mut events = vec![
        Element::text("on_poweroff", "destroy"),
        Element::text("on_reboot", reboot),
        // QEMU pauses, and the supervisor ends the run once it has kept what there is to see.
        Element::text("on_crash", "destroy"),
    ];
    let sleep = |property, name| {
        let is_off = input.arguments.global("ICH9-LPC", property).as_deref() == Some("1");
        is_off.then(|| Element::new(name).with("enabled", "no"))
    };
    let states = [sleep("disable_s3", "suspend-to-mem"), sleep("disable_s4", "suspend-to-disk")];
    let pm = Element::new("pm").children(states.into_iter().flatten());
    events.extend((!pm.is_bare()).then_some(pm));
    events
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn sizes_of_the_command_line_are_read() {
        let table = [("256M", Some(256 << 20)), ("4G", Some(4 << 30)), ("1000B", Some(1000)), ("1X", None), ("", None)];
        for (text, bytes) in table {
            assert_eq!(bytes_of(text), bytes, "{text}");
        }
    }
}
