//! `kubectl garboard logs`: the launcher's log in readable form, or a part of the machine's record.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use anyhow::Context;
use garboard_protocol::part::RecordPart;

use crate::args::LogsArgs;
use crate::exit::{self, BAD_INPUT, ExitError, NOT_FOUND, exit_error};
use crate::failure::Failure;
use crate::find::{self, CONTAINER, Machine};
use crate::kubectl::{Kubectl, failed};
use crate::last_run;
use crate::options::LogPart;
use crate::output::{self, Reader, note};
use crate::record;

/// `kubectl garboard logs MACHINE`.
pub(crate) fn run(kubectl: &Kubectl, args: &LogsArgs) -> anyhow::Result<u8> {
    let machine = match (&args.record, &args.machine) {
        (Some(file), _) => return last_run::of_file(file, args.part),
        (None, Some(machine)) if args.last => return last_run::of_machine(kubectl, machine, args.part),
        (None, Some(machine)) => machine,
        (None, None) => return Err(exit_error(BAD_INPUT, "name a machine")),
    };
    let part = match args.part {
        LogPart::Events => return print_supervisor_log(kubectl, machine, args),
        LogPart::Argv | LogPart::Plan => RecordPart::Plan,
        LogPart::Qmp => RecordPart::Qmp,
        LogPart::Qemu => RecordPart::Qemu,
        LogPart::Serial => RecordPart::Serial,
        LogPart::Exit => RecordPart::Exit,
    };
    let bytes = record::read(kubectl, &find::recorded(kubectl, machine)?, part).map_err(failed)?;
    let text = if args.part == LogPart::Argv { crate::log_line::argv_of(&bytes)? } else { bytes };
    output::write_foreign(&text)?;
    Ok(exit::OK)
}

fn print_supervisor_log(kubectl: &Kubectl, name: &str, args: &LogsArgs) -> anyhow::Result<u8> {
    let machine = find::machine(kubectl, name).map_err(failed)?;
    let Some(pod) = machine.pods.first() else {
        return match last_run::newest(kubectl, name) {
            Some(run) => {
                note!("garboard: {name} has no pod; this is the record of its last run");
                last_run::show(&run, args.part)
            }
            None => Err(no_pod(kubectl, &machine, name)),
        };
    };
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let pod = pod.metadata.name.clone().unwrap_or_default();
    let mut arguments = vec!["logs", pod.as_str(), "-c", CONTAINER];
    let tail = args.tail.map(|lines| format!("--tail={lines}"));
    arguments.extend(tail.as_deref());
    arguments.extend(args.follow.then_some("--follow"));
    arguments.extend(args.previous.then_some("--previous"));
    let mut command = kubectl.within(&namespace).command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| ExitError::from(kubectl.missing(&error)))?;
    let pipe = child.stdout.take().context("kubectl has no standard output")?;
    let printed = print_lines(BufReader::new(pipe), args.json);
    let mut stderr = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _ = pipe.read_to_string(&mut stderr);
    }
    let ended = child.wait().context("wait for kubectl")?;
    printed?;
    if !ended.success() {
        return Err(failed(Failure::of(&stderr)));
    }
    Ok(exit::OK)
}

fn print_lines(lines: impl BufRead, json: bool) -> anyhow::Result<()> {
    for line in lines.split(b'\n') {
        let line = line.context("read from kubectl")?;
        let line = String::from_utf8_lossy(&line);
        let line = if json { line.into_owned() } else { crate::log_line::for_person(&line) };
        if output::write(format!("{line}\n").as_bytes())? == Reader::Gone {
            return Ok(());
        }
    }
    Ok(())
}

fn no_pod(kubectl: &Kubectl, machine: &Machine, name: &str) -> anyhow::Error {
    if machine.vm.is_none() && machine.vmi.is_none() {
        return exit_error(NOT_FOUND, find::unknown(kubectl, name));
    }
    let text = format!(
        "{name} has no pod, and its log was deleted with the last one; `kubectl garboard why {name}` shows what is still known"
    );
    exit_error(NOT_FOUND, text)
}
