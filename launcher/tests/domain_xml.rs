//! Every golden VM as libvirt's domain XML: byte for byte (`GARBOARD_GOLDEN=update` writes it anew), by what it says of the machine,
//! by libvirt's own schema, and by a libvirt that defines it.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "the whole file is a test"
)]

#[path = "support/domain.rs"]
mod domain;
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use garboard_domain_xml::{DomainContext, domain_xml};
use garboard_plan::{LaunchPlan, plan_machine};
use support::{Case, cases};

const FILE: &str = "domain.xml";
const SCHEMA: &str = "/usr/share/libvirt/schemas/domain.rng";

/// What Debian 12's libvirt (9.0) cannot express yet, by golden VM: which element or attribute, and a libvirt that has it.
const LATER: [(&str, &str); 4] = [
    ("block-claim", "blockio discard_granularity: 11.1"),
    ("disk-settings", "blockio discard_granularity: 11.1"),
    ("iothreads-pool-mapped", "driver iothreads: 10.0"),
    ("watchdog", "panic model pvpanic: 9.1"),
];

fn xml(plan: &LaunchPlan) -> String {
    let sockets = format!("/run/garboard/{}/{}/supervisor", plan.identity.namespace, plan.identity.name);
    domain_xml(plan, DomainContext { sockets: &sockets, id: None })
}

fn planned(case: &Case) -> LaunchPlan {
    case.plan().unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

#[test]
fn golden_domains_are_written_as_before() {
    let mut wrong = Vec::new();
    for case in cases() {
        let (path, actual) = (case.dir.join(FILE), xml(&planned(&case)));
        if std::env::var("GARBOARD_GOLDEN").is_ok_and(|value| value == "update") {
            std::fs::write(path, actual).expect("writable");
        } else if std::fs::read_to_string(&path).unwrap_or_default() != actual {
            wrong.push(path.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "GARBOARD_GOLDEN=update if this is wanted:\n{}", wrong.join("\n"));
}

/// A fact in the vocabulary that both sides share.
fn in_one_vocabulary(fact: String) -> Option<String> {
    // The program, ports, the chipset's own controllers, the absence of a balloon and addresses are not among the facts of a
    // machine of ours.
    let is_left_out = ["emulator ", "controller pci", "controller sata", "balloon none", "audio "];
    if is_left_out.iter().any(|start| fact.starts_with(start)) || fact.ends_with(": address") {
        return None;
    }
    Some(match fact.as_str() {
        // One says it of the CPU, the other of features and timers.
        "cpu kvm=off" => "feature kvm on".to_owned(),
        "cpu kvm-pv-unhalt=off" => "feature pvspinlock off".to_owned(),
        "cpu kvm-pv-unhalt=on" => "feature pvspinlock on".to_owned(),
        text if text.starts_with("hyperv vendor") => "hyperv vendor".to_owned(),
        text if text.starts_with("machine pc-q35-") => "machine q35".to_owned(),
        // A named model has to be there whole: `check` of libvirt's.
        "cpu enforce=on" => return None,
        // The policy for lost ticks, which is a global of QEMU's, and the shared pages of a guest with huge ones.
        "timer pit yes" | "memory shared" => return None,
        text => text.to_owned(),
    })
}

fn common(facts: BTreeSet<String>) -> BTreeSet<String> {
    facts.into_iter().filter_map(in_one_vocabulary).collect()
}

/// The same vocabulary in which KubeVirt's domains and our machines are compared.
#[test]
fn a_domain_says_of_a_machine_what_it_is() {
    let mut wrong = Vec::new();
    for case in cases().into_iter().filter(|case| case.stored_from.is_none()) {
        let (plan, machine) = plan_machine(&case.vmi, &case.facts, &case.options, None).unwrap();
        let ours = common(domain::of_machine(&plan, &machine));
        // Aliases are QEMU's IDs, in which the name of a disk or an interface stands behind its kind.
        let written = domain::of_domain(&xml(&plan)).into_iter();
        let written =
            written.map(|fact| fact.replacen("disk disk-", "disk ", 1).replacen("interface nic-", "interface ", 1));
        let written = common(written.collect());
        assert!(ours.len() > 10, "{}: {ours:?}", case.name);
        wrong.extend(ours.difference(&written).map(|fact| format!("{}: not written: {fact}", case.name)));
        wrong.extend(written.difference(&ours).map(|fact| format!("{}: written in excess: {fact}", case.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The exit status and the output of a program.
fn outcome(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(text()) }
}

/// The version of the libvirt whose schema is installed, as `virsh` says it: major and minor.
fn libvirt_version() -> Option<(u32, u32)> {
    let output = Command::new("virsh").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut parts = text.trim().split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Whether this libvirt is too old for what a golden VM has.
fn is_later(name: &str, version: (u32, u32)) -> bool {
    let first = |text: &str| {
        let (major, minor) = text.rsplit(": ").next()?.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    let first = LATER.iter().find(|(later, _)| *later == name).map(|(_, text)| first(text).expect("a version"));
    first.is_some_and(|first| version < first)
}

#[test]
fn libvirts_schema_has_what_is_written() {
    let version = libvirt_version();
    let (Some(version), true, true) = (version, is_there("xmllint"), Path::new(SCHEMA).exists()) else {
        eprintln!("skipped: no virsh, no xmllint or no {SCHEMA} (packages libvirt-clients, libvirt0, libxml2-utils)");
        return;
    };
    let mut wrong = Vec::new();
    let dir = tempfile::tempdir().unwrap();
    for case in cases() {
        let path = dir.path().join(format!("{}.xml", case.name));
        std::fs::write(&path, xml(&planned(&case))).unwrap();
        let verdict = outcome(Command::new("xmllint").args(["--noout", "--nonet", "--relaxng", SCHEMA]).arg(&path));
        match (verdict, is_later(&case.name, version)) {
            (Err(error), false) => wrong.push(format!("{}: {error}", case.name)),
            (Ok(()), true) => wrong.push(format!("{}: this libvirt has it: correct LATER", case.name)),
            (Ok(()), false) | (Err(_), true) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_libvirt_defines_every_domain() {
    if !is_there("virsh") {
        eprintln!("skipped: no virsh (package libvirt-clients)");
        return;
    }
    let mut wrong = Vec::new();
    let dir = tempfile::tempdir().unwrap();
    for case in cases() {
        let path = dir.path().join("domain.xml");
        std::fs::write(&path, xml(&planned(&case))).unwrap();
        // libvirt's own driver for tests: a libvirt in the process, with its parser and all its checks, and no QEMU.
        let mut virsh = Command::new("virsh");
        virsh.args(["--connect", "test:///default"]).arg("define").arg(&path).env("LC_ALL", "C");
        // Where it knows neither element nor attribute, it passes over it, or refuses a value.
        if let Err(error) = outcome(&mut virsh)
            && !LATER.iter().any(|(name, _)| *name == case.name)
        {
            wrong.push(format!("{}: {error}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_libvirt_refuses_what_is_no_domain() {
    if !is_there("virsh") {
        eprintln!("skipped: no virsh (package libvirt-clients)");
        return;
    }
    let text = xml(&planned(&Case::load("hello"))).replace("<memory unit=\"b\">", "<memory unit=\"parsec\">");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("domain.xml");
    std::fs::write(&path, text).unwrap();
    let verdict = outcome(Command::new("virsh").args(["--connect", "test:///default", "define"]).arg(&path));
    assert!(verdict.is_err(), "so the test above can fail");
}
