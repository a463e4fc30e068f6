//! `garboard explain`: what `run` would do, without doing it. Same planner, same bytes.

use std::path::Path;

use anyhow::Context;
use garboard_machine::facts::HostFacts;
use garboard_plan::{LaunchPlan, PlanOptions};
use garboard_shim_client::places::Places;

use crate::accel::AccelChoice;
use crate::args::{ExplainArgs, Output};
use crate::exit;
use crate::kept::Kept;
use crate::output::{note, out, outln};
use crate::ports;
use crate::subject::{self, Subject};

/// What [`HostFacts::reference`] describes.
pub(crate) const PLAIN_HOST: &str = "a plain Debian 12 host with KVM, not for this one";

/// `garboard explain FILE…`.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let subject = subject::find(&args.manifest)?;
    let Host { facts, name, is_this } = host(args)?;
    let mut options = match &args.options {
        Some(path) => read_json(path)?,
        None => PlanOptions::default(),
    };
    if args.options.is_none() {
        options.forwards = ports::parse_all(&args.manifest.publish)?;
    }
    if args.manifest.accel != AccelChoice::Auto {
        options.accelerator = args.manifest.accel.into();
    }
    let plan = kept(args, &subject, is_this)?.plan(&subject, &facts, &options)?;
    if !is_this && (args.shell || args.output != Output::Text) {
        note!("garboard: planned for {name}");
    }
    show(&plan, &name, args.shell, args.output)?;
    Ok(exit::OK)
}

/// The host that is planned for.
struct Host {
    facts: HostFacts,
    /// For a sentence.
    name: String,
    /// Whether it is the one that this command runs on.
    is_this: bool,
}

/// What an earlier run decided. Of what is kept here only `run` on this host knows.
fn kept(args: &ExplainArgs, subject: &Subject, is_this_host: bool) -> anyhow::Result<Kept> {
    if let Some(path) = &args.stored {
        return Ok(Kept { file: None, machine: Some(read_json(path)?) });
    }
    if !is_this_host {
        return Ok(Kept::default());
    }
    let places = Places::of_caller(args.manifest.state_dir.as_deref())?;
    Kept::find(&places, subject, args.manifest.forget_machine)
}

/// Prints a plan. A person reads first which host it is for.
pub(crate) fn show(plan: &LaunchPlan, host: &str, shell: bool, output: Output) -> anyhow::Result<()> {
    if shell {
        return outln!("{}", shell_line(&plan.argv));
    }
    output.show(plan, || out!("# Planned for {host}\n\n{}", text(plan)?))
}

/// The facts that were asked for; else this host's, or of a plain one if nothing can be planned for this.
fn host(args: &ExplainArgs) -> anyhow::Result<Host> {
    let qemu = args.manifest.qemu.as_deref();
    let (facts, name, is_this) = match args.facts.as_deref() {
        _ if args.reference => (HostFacts::reference(), PLAIN_HOST.to_owned(), false),
        Some("here") => (crate::host::facts(qemu)?, "this host".to_owned(), true),
        Some(path) => (read_json(Path::new(path))?, format!("the host that {path} tells of"), false),
        None => match crate::host::facts(qemu) {
            Ok(facts) => (facts, "this host".to_owned(), true),
            // A QEMU that was named is not replaced by another one.
            Err(error) if qemu.is_some() => return Err(error),
            Err(error) => (HostFacts::reference(), format!("{PLAIN_HOST}, because {error:#}"), false),
        },
    };
    Ok(Host { facts, name, is_this })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not what `doctor --facts`, or a run, of this version writes", path.display()))
}

/// One line a POSIX shell takes apart into exactly these arguments.
fn shell_line(argv: &[String]) -> String {
    argv.iter().map(|argument| quote(argument)).collect::<Vec<_>>().join(" ")
}

fn quote(argument: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=,:+@%".contains(&byte);
    if !argument.is_empty() && argument.bytes().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// The plan for a person.
pub(crate) fn text(plan: &LaunchPlan) -> anyhow::Result<String> {
    use std::fmt::Write;
    let mut out = String::new();
    writeln!(out, "# QEMU")?;
    for argument in &plan.argv {
        writeln!(out, "{argument}")?;
    }
    writeln!(out, "\n# Descriptors QEMU is given")?;
    for descriptor in &plan.descriptors {
        writeln!(out, "{:3}  {}", descriptor.number, serde_json::to_string(&descriptor.purpose)?)?;
    }
    if !plan.helpers.is_empty() {
        writeln!(out, "\n# Programs beside QEMU")?;
        for helper in &plan.helpers {
            writeln!(out, "{}: {}", helper.interface, shell_line(&helper.argv))?;
        }
    }
    writeln!(out, "\n# Disks")?;
    for disk in &plan.disks {
        let overlay = if disk.overlay { " under a fresh qcow2 overlay" } else { "" };
        let source = serde_json::to_string(&disk.source)?;
        writeln!(out, "{} ({}): {}{overlay} {source}", disk.volume, disk.target, disk.format.as_str())?;
    }
    writeln!(out, "\n# Interfaces")?;
    for interface in &plan.interfaces {
        writeln!(out, "{} {} {}", interface.name, interface.mac, serde_json::to_string(&interface.binding)?)?;
    }
    resources(plan, &mut out)?;
    if !plan.notes.is_empty() {
        writeln!(out, "\n# Notes")?;
        for note in &plan.notes {
            let field = note.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
            writeln!(out, "{field}{}", note.text)?;
        }
    }
    Ok(out)
}

fn resources(plan: &LaunchPlan, out: &mut String) -> std::fmt::Result {
    use std::fmt::Write;
    let resources = &plan.resources;
    writeln!(out, "\n# cgroup")?;
    let limit =
        |value: Option<u64>, unit: &str| value.map_or("unlimited".to_owned(), |value| format!("{value} {unit}"));
    writeln!(out, "memory limit: {}", limit(resources.memory_limit_bytes, "bytes"))?;
    writeln!(out, "memory request: {} bytes", resources.memory_request_bytes)?;
    writeln!(out, "CPU limit: {}", limit(resources.cpu_limit_millis, "thousandths"))?;
    writeln!(out, "CPU request: {} thousandths", resources.cpu_request_millis)?;
    writeln!(out, "processes and threads: {}", resources.pids)?;
    writeln!(out, "\n# Memory beside the guest's {} bytes", resources.guest_memory_bytes)?;
    for term in &resources.overhead.terms {
        writeln!(out, "{:>12}  {}: {}", term.bytes, term.name, term.reason)?;
    }
    writeln!(out, "{:>12}  in all", resources.overhead.total_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_the_line_apart_again() {
        let argv = ["qemu", "-name", "it's, $HOME `x`\n\\", "", "{\"a\":1}", "-m", "size=1,x=2"].map(str::to_owned);
        let script = format!("printf '%s\\0' {}", shell_line(&argv));
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        let back: Vec<String> =
            String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect();
        assert_eq!(back, argv);
    }
}
