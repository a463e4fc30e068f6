//! `garboard run`: resolve what the manifest names, start the machine's keeper, attach.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Context;
use garboard_launcher::plan::{Emulation, FirmwarePlan, LaunchPlan, PlanOptions, plan};
use garboard_machine::facts::{CgroupVersion, HostFacts, KvmState};
use garboard_protocol::control::{ConsoleAccess, ControlRequest, Phase, Status, StopMode};
use nix::sys::signal::{SigSet, Signal};

use crate::args::{AccelChoice, RunArgs};
use crate::client;
use crate::console::{self, Left};
use crate::exit::{self, BAD_INPUT, FAILED, GUEST_FAILED, REFUSED, complaint};
use crate::images::Images;
use crate::keeper::{self, order::Order};
use crate::places::{MachineId, Places};
use crate::resolve::{self, Surroundings};
use crate::subject::{self, Subject};
use crate::{explain, ports};

/// `garboard run FILE…`.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    let places = Places::of_caller(args.manifest.state_dir.as_deref())?;
    let subject = subject::find(&args.manifest)?;
    refuse_second(&places, &subject.id)?;
    if let Some(strategy @ ("Always" | "RerunOnFailure" | "Halted")) = subject.run_strategy.as_deref() {
        eprintln!("garboard: runStrategy {strategy} is for a cluster; here the machine is run once");
    }
    let order = decide(args, &places, &subject)?;
    let id = order.id();
    // From here on Ctrl-C and SIGTERM mean: power the guest down, then leave.
    let signals = block_signals()?;
    make_directories(&places, &order)?;
    if let Err(error) = keeper::start(&order) {
        let _ = std::fs::remove_dir_all(&order.machine);
        return Err(error);
    }
    if args.detach { started(&places, &id) } else { attend(&places, &order, &signals) }
}

/// A machine has one QEMU. What a dead keeper left is cleared away first.
fn refuse_second(places: &Places, id: &MachineId) -> anyhow::Result<()> {
    let machine = places.machine(id);
    if !machine.exists() {
        return Ok(());
    }
    if keeper::keeper_is_alive(&machine) {
        let text =
            format!("{id} runs already; attach with `garboard console {id}` or end it with `garboard stop {id}`");
        return Err(complaint(REFUSED, text));
    }
    keeper::clean_up_orphan(places, id).with_context(|| format!("clear away what is left of an earlier {id}"))
}

fn decide(args: &RunArgs, places: &Places, subject: &Subject) -> anyhow::Result<Order> {
    let facts = explain::with_choice(crate::host::facts(args.manifest.qemu.as_deref())?, args.manifest.accel);
    tell_emulation(&facts, args.manifest.accel);
    tell_user(&facts);
    let images = Images::new(places, &args.manifest.images);
    let around = Surroundings { documents: &subject.documents, images: &images, places };
    let options = PlanOptions {
        emulation: if args.manifest.accel == AccelChoice::Kvm { Emulation::Forbid } else { Emulation::Allow },
        forwards: ports::parse_all(&args.manifest.publish)?,
        ..PlanOptions::default()
    };
    // Planned once here for its refusals, limits and firmware; the supervisor plans again with what it finds.
    let plan = plan(&subject.vmi, &facts, &options, None).map_err(|error| complaint(BAD_INPUT, format!("{error}")))?;
    let volumes = resolve::volumes(&subject.vmi, &around)?;
    let kernel_files = kernel_files(subject, &plan, &images)?;
    let id = &subject.id;
    let run = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string();
    Ok(Order {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        uid: subject.vmi.metadata.uid.clone().unwrap_or_default(),
        machine: places.machine(id),
        record: places.records(id).join(run),
        scratch: places.scratch(id),
        vmi: serde_json::to_value(&subject.vmi)?,
        facts,
        options,
        resources: plan.resources.clone(),
        volumes,
        kernel_files,
        firmware_vars: firmware_vars(&plan, places, id),
        grace_seconds: plan.lifecycle.grace_period_seconds,
    })
}

/// One clear line when the guest's instructions are interpreted although nobody asked for that.
fn tell_emulation(facts: &HostFacts, choice: AccelChoice) {
    if choice != AccelChoice::Auto {
        return;
    }
    let why = match facts.kvm {
        KvmState::Native => return,
        KvmState::Missing => "this host has no /dev/kvm",
        KvmState::NotPermitted => "/dev/kvm may not be opened by this user",
        KvmState::Emulated => "this host's KVM interprets guest code itself",
        KvmState::Broken => "this host's KVM does not run a guest",
    };
    eprintln!("garboard: {why}: using TCG, which is slower; `garboard doctor` says more");
}

/// What an ordinary user's machine goes without on this host, a line for each.
fn tell_user(facts: &HostFacts) {
    if facts.is_root {
        return;
    }
    if let Err(errno) = garboard_host::namespaces::user() {
        let why = errno.desc();
        eprintln!(
            "garboard: this user may not make namespaces ({why}): the machine has none of its own; see `garboard doctor`"
        );
    }
    if facts.cgroup == CgroupVersion::Unavailable {
        eprintln!(
            "garboard: no control group is delegated to this user: limits are not applied; see `garboard doctor`"
        );
    }
}

fn kernel_files(subject: &Subject, plan: &LaunchPlan, images: &Images) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let (FirmwarePlan::Bios { kernel_boot } | FirmwarePlan::Uefi { kernel_boot, .. }) = &plan.firmware;
    let Some(kernel_boot) = kernel_boot else { return Ok(BTreeMap::new()) };
    let firmware = subject.vmi.spec.domain.firmware.as_ref();
    let container = firmware.and_then(|firmware| firmware.kernel_boot.as_ref()?.container.as_ref());
    let policy = container.and_then(|container| container.image_pull_policy.as_deref());
    let names: Vec<&str> = kernel_boot.kernel.iter().chain(&kernel_boot.initrd).map(String::as_str).collect();
    let paths = images.files(&kernel_boot.image, &names, policy)?;
    Ok(names.into_iter().map(str::to_owned).zip(paths).collect())
}

fn firmware_vars(plan: &LaunchPlan, places: &Places, id: &MachineId) -> Option<crate::keeper::order::FirmwareVars> {
    match &plan.firmware {
        FirmwarePlan::Uefi { persistent: true, vars_template, .. } => {
            Some(crate::keeper::order::FirmwareVars { path: places.firmware_vars(id), template: vars_template.into() })
        }
        FirmwarePlan::Uefi { .. } | FirmwarePlan::Bios { .. } => None,
    }
}

fn make_directories(places: &Places, order: &Order) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    // Others may pass through to a socket they were given, and see nothing.
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o711);
    builder.create(&places.runtime).with_context(|| format!("create {}", places.runtime.display()))?;
    builder.create(&order.machine).with_context(|| format!("create {}", order.machine.display()))
}

fn block_signals() -> anyhow::Result<SigSet> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGHUP);
    signals.thread_block().context("block signals")?;
    Ok(signals)
}

/// Waits until the guest runs, or has failed to.
fn wait_for_guest(places: &Places, id: &MachineId) -> anyhow::Result<Option<Status>> {
    client::watch(places, id, |status| status.phase != Phase::Scheduled)
}

fn started(places: &Places, id: &MachineId) -> anyhow::Result<u8> {
    match wait_for_guest(places, id)? {
        Some(status) if status.phase == Phase::Running => {
            println!("{id} runs");
            Ok(exit::OK)
        }
        other => fail(places, id, other),
    }
}

fn fail(places: &Places, id: &MachineId, status: Option<Status>) -> anyhow::Result<u8> {
    let ended = status.and_then(|status| status.ended);
    keeper::wait_until_gone(places, id)?;
    let text = match ended {
        Some(ended) => {
            let words = ended.report.map(|report| report.last_words).unwrap_or_default();
            let words = if words.is_empty() { String::new() } else { format!("\n{words}") };
            format!("{id} could not be started: {}{words}", ended.sentence)
        }
        None => format!("{id} could not be started; `garboard logs --last {id}` has the whole story"),
    };
    Err(complaint(FAILED, text))
}

/// Attached until the machine ends, the user detaches, or a signal asks to power it down.
fn attend(places: &Places, order: &Order, signals: &SigSet) -> anyhow::Result<u8> {
    let id = order.id();
    match wait_for_guest(places, &id)? {
        Some(status) if status.phase == Phase::Running => {}
        other => return fail(places, &id, other),
    }
    if std::io::stderr().is_terminal() {
        eprintln!("{id} runs; Ctrl-] detaches\r");
    }
    let left = console::attend(places, &id, ConsoleAccess::Write, signals)?;
    match left {
        Left::Detached => {
            eprintln!(
                "\r\ndetached; {id} runs on: `garboard console {id}` attaches again, `garboard stop {id}` ends it"
            );
            return Ok(exit::OK);
        }
        Left::Signalled => {
            let mode = StopMode::Graceful { within_seconds: None };
            eprintln!("\r\npowering {id} down, at most {} s", order.grace_seconds);
            client::request(places, &id, &ControlRequest::Stop { mode })?;
        }
        Left::MachineEnded => {}
    }
    let last = client::watch(places, &id, |status| status.ended.is_some()).ok().flatten();
    keeper::wait_until_gone(places, &id)?;
    let ended = last.and_then(|status| status.ended).or_else(|| recorded_end(order));
    match ended {
        Some(ended) if ended.cause.is_success() => {
            eprintln!("{id}: {}", ended.sentence);
            Ok(exit::OK)
        }
        Some(ended) => Err(complaint(GUEST_FAILED, format!("{id}: {}", ended.sentence))),
        None => {
            Err(complaint(FAILED, format!("{id} is gone and nobody wrote down why; see {}", order.record.display())))
        }
    }
}

fn recorded_end(order: &Order) -> Option<garboard_protocol::control::Ended> {
    garboard_launcher::supervisor::journal::read(&order.record).ok().flatten()?.ended
}
