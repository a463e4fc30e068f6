use serde_json::{Value, json};

use super::*;

/// A plan of a golden, with its argv and these arguments in the place of others.
fn plan(replaced: &[(&str, &str)]) -> LaunchPlan {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/many-disks");
    let mut plan: Value = serde_json::from_slice(&std::fs::read(format!("{golden}/plan.json")).unwrap()).unwrap();
    let text = std::fs::read_to_string(format!("{golden}/argv.txt")).unwrap();
    // Each line has an option and its value.
    let argv: Vec<String> = text
        .lines()
        .flat_map(|line| line.splitn(2, ' ').map(str::to_owned).collect::<Vec<_>>())
        .map(|argument| replaced.iter().fold(argument, |text, (old, new)| text.replace(old, new)))
        .filter(|argument| !argument.is_empty())
        .collect();
    plan["argv"] = json!(argv);
    serde_json::from_value(plan).unwrap()
}

fn found(replaced: &[(&str, &str)]) -> Vec<String> {
    differences(&plan(&[]), &plan(replaced)).iter().map(ToString::to_string).collect()
}

#[test]
fn a_plan_is_like_itself_and_what_only_the_host_sees_is_no_difference() {
    assert_eq!(found(&[]), [] as [&str; 0]);
    for (old, new) in [
        ("/proc/self/fd/56", "/proc/self/fd/57"),
        ("fd=13,set=1", "fd=14,set=1"),
        ("spawn=deny", "spawn=allow"),
        ("golden_many-disks", "another"),
        ("\"aio\":\"threads\"", "\"aio\":\"io_uring\""),
        ("\"werror\":\"stop\"", "\"werror\":\"report\""),
        ("dump-guest-core=off", "dump-guest-core=on"),
    ] {
        assert_eq!(found(&[(old, new)]), [] as [&str; 0], "{old}");
    }
}

#[test]
fn what_the_guest_sees_is_named() {
    let table: [(&str, &str, &str); 8] = [
        ("pc-q35-7.2", "pc-q35-10.0", "machine type: pc-q35-7.2 -> pc-q35-10.0"),
        ("acpi=on", "acpi=off", "machine: acpi: on -> off"),
        ("size=256M", "size=512M", "memory: size=256M -> size=512M"),
        (
            "cpus=1,maxcpus=4",
            "cpus=2,maxcpus=4",
            "vCPUs: cpus=1,maxcpus=4,sockets=4,cores=1,threads=1 -> cpus=2,maxcpus=4,sockets=4,cores=1,threads=1",
        ),
        ("property=disable_s3,value=1", "property=disable_s3,value=0", "global ICH9-LPC.disable_s3: "),
        ("product=None", "product=Other", "smbios 1: "),
        ("clock=host", "clock=vm", "rtc: base=utc,clock=host -> base=utc,clock=vm"),
        ("strict=on", "strict=off", "boot: strict=on -> strict=off"),
    ];
    for (old, new, expected) in table {
        let found = found(&[(old, new)]);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{old}: {found:?}");
    }
}

/// With only these arguments.
fn of(argv: &[&str]) -> LaunchPlan {
    let argv: Vec<String> = ["qemu"].iter().chain(argv).map(|one| (*one).to_owned()).collect();
    LaunchPlan { argv, ..plan(&[]) }
}

fn between(before: &[&str], after: &[&str]) -> Vec<String> {
    differences(&of(before), &of(after)).iter().map(ToString::to_string).collect()
}

const NIC: &str =
    r#"{"driver":"virtio-net-pci","id":"nic","bus":"port1","addr":"0x0","netdev":"net-1","mac":"02:00:00:00:00:01"}"#;

#[test]
fn a_device_is_moved_changed_lost_or_new() {
    let moved = NIC.replace("port1", "port2");
    assert_eq!(
        between(&["-device", NIC], &["-device", &moved]),
        ["place of device nic: bus=port1 addr=0x0 -> bus=port2 addr=0x0"]
    );
    let other = NIC.replace("net-1", "net-2").replace(":01\"", ":02\"");
    let expected = ["device nic: mac: 02:00:00:00:00:01 -> 02:00:00:00:00:02"];
    assert_eq!(between(&["-device", NIC], &["-device", &other]), expected);
    assert_eq!(between(&["-device", NIC], &[]), ["device nic: lost (was virtio-net-pci)"]);
    assert_eq!(between(&[], &["-device", "e1000,id=nic"]), ["device nic: new (e1000)"]);
    let driver = NIC.replace("virtio-net-pci", "e1000");
    assert_eq!(between(&["-device", NIC], &["-device", &driver]), ["device nic: virtio-net-pci -> e1000"]);
}

#[test]
fn a_disk_that_becomes_read_only_is_seen_and_its_file_is_not() {
    let disk = ["-device", r#"{"driver":"virtio-blk-pci","id":"disk","drive":"image"}"#, "-blockdev"];
    let with = |node: &'static str| [disk[0], disk[1], disk[2], node];
    let before = with(r#"{"driver":"raw","node-name":"image","read-only":false,"filename":"/a"}"#);
    let other = with(r#"{"driver":"qcow2","node-name":"image","read-only":false,"filename":"/b"}"#);
    let closed = with(r#"{"driver":"raw","node-name":"image","read-only":true}"#);
    assert_eq!(between(&before, &other), [] as [&str; 0]);
    assert_eq!(between(&before, &closed), ["device disk: read-only: false -> true"]);
}

#[test]
fn flags_of_the_cpu_are_lost_and_new() {
    let found = between(&["-cpu", "Haswell,+vmx,aes=on"], &["-cpu", "Haswell,-vmx,avx2=on"]);
    assert_eq!(found, ["CPU flag aes: lost (was on)", "CPU flag avx2: new (on)", "CPU flag vmx: on -> off"]);
    let mut before = of(&["-cpu", "host"]);
    let mut after = before.clone();
    before.stored.cpu_features = Some("aes avx512f".to_owned());
    after.stored.cpu_features = Some("aes".to_owned());
    let lost: Vec<String> = differences(&before, &after).iter().map(ToString::to_string).collect();
    assert_eq!(lost, ["CPU feature avx512f: lost (was on)"]);
    after = LaunchPlan { accelerator: Accelerator::Kvm, ..before.clone() };
    before.accelerator = Accelerator::Tcg;
    assert_eq!(differences(&before, &after)[0].to_string(), "accelerator: tcg -> kvm");
}

#[test]
fn what_is_not_known_counts_as_seen() {
    assert_eq!(between(&[], &["-fancy", "on=1"]), ["fancy: new (on=1)"]);
    assert_eq!(between(&["-append", "-quiet"], &["-append", "-loud"]), ["append: -quiet -> -loud"]);
    let numa = ["-numa", "node,nodeid=0,memdev=ram0"];
    assert_eq!(between(&numa, &["-numa", "node,nodeid=0,memdev=ram1"]), [] as [&str; 0]);
}
