//! A plan as `explain` prints it, for a machine of this host or of a cluster. A plan of a cluster is what a launcher says: it drives no
//! terminal.

use garboard_domain_xml::{DomainContext, domain_xml};
use garboard_plan::LaunchPlan;

use crate::options::Output;
use crate::output::write_foreign;

/// Prints a plan. A person reads first which host it is for.
pub fn show(plan: &LaunchPlan, host: &str, shell: bool, output: Output) -> anyhow::Result<()> {
    if shell {
        return printed(&format!("{}\n", shell_line(&plan.argv)));
    }
    output.show(plan, || printed(&format!("# Planned for {host}\n\n{}", text(plan)?)))
}

/// Prints a plan as the domain of a machine that does not run; `sockets` is the absolute path of its supervisor's directory.
pub fn show_domain(plan: &LaunchPlan, sockets: &str) -> anyhow::Result<()> {
    printed(&domain_xml(plan, DomainContext { sockets, id: None }))
}

fn printed(text: &str) -> anyhow::Result<()> {
    write_foreign(text.as_bytes()).map(|_| ())
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
fn text(plan: &LaunchPlan) -> anyhow::Result<String> {
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
