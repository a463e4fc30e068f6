//! `garboard run`: resolve what the manifest names, start the machine's shim, attach.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_api::RunStrategy;
use garboard_api::accelerator::RequestedAccelerator;
use garboard_common::private;
use garboard_machine::facts::{CgroupVersion, HostFacts, KvmState};
use garboard_plan::{FirmwarePlan, LaunchPlan, PlanOptions};
use garboard_shim_client::directory::{self, Right};
use garboard_shim_client::places::{MachineId, Places};
use garboard_shim_client::request::{FirmwareVars, LaunchRequest, record_name};
use garboard_shim_client::volume_source::HostVolumeSource;
use garboard_shim_client::{ShimError, calls, lock, logs, program};
use nix::sys::signal::{SigSet, Signal};

use crate::accel::AccelChoice;
use crate::args::RunArgs;
use crate::attend::Started;
use crate::exit::{self, BAD_INPUT, FAILED, REFUSED, exit_error};
use crate::images::Images;
use crate::kept::Kept;
use crate::output::{note, outln};
use crate::resolve::{self, Lookup};
use crate::subject::{self, Subject};
use crate::{attend, identity, passage, ports};

/// `garboard run FILE…`.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    private::by_default();
    let places = Places::of_caller(args.manifest.state_dir.as_deref())?;
    let subject = subject::find(&args.manifest)?;
    refuse_second(&places, &subject.id)?;
    if subject.strategy == RunStrategy::Halted {
        note!("garboard: {} is meant to stay off (runStrategy Halted); this start counts, once", subject.id);
    }
    // Machines of other user IDs read their images in the one, and write to their scratch directories in the other.
    for (passage, way_out) in [(&places.cache, "GARBOARD_CACHE_DIR"), (&places.state, "--state-dir")] {
        private::make_passage(passage)
            .with_context(|| format!("could not create {}; choose another place with {way_out}", passage.display()))?;
    }
    let request = decide(args, &places, &subject)?;
    refuse_closed_directories(&places, &request)?;
    // From here on Ctrl-C and SIGTERM mean: power the guest down, then leave.
    let signals = block_signals()?;
    start(&places, &request)?;
    if !args.detach {
        return attend::attend(&places, &request, &signals);
    }
    match attend::started(&places, &request, &signals)? {
        Started::Ended(code) => Ok(code),
        Started::Runs => outln!("{} was started", subject.id).map(|()| exit::OK),
    }
}

/// A machine has one QEMU. What a dead shim left is cleared away first.
fn refuse_second(places: &Places, id: &MachineId) -> anyhow::Result<()> {
    let machine = places.machine(id);
    if !machine.exists() {
        return Ok(());
    }
    // Held until nothing is left: a process that makes the directory anew meanwhile waits, and sees what became of it.
    let Some(right) = directory::leftover(&machine) else {
        return if machine.exists() { Err(runs_already(id)) } else { Ok(()) };
    };
    if lock::is_held(&machine) || calls::has_guest(&machine) {
        return Err(runs_already(id));
    }
    calls::clear_away(&right).with_context(|| format!("clear away what is left of an earlier {id}"))
}

fn runs_already(id: &MachineId) -> anyhow::Error {
    let text = format!("{id} runs already; attach with `garboard console {id}` or end it with `garboard stop {id}`");
    exit_error(REFUSED, text)
}

/// Makes the machine's directory and starts its shim there. A machine that another command has started
/// while images were fetched is left alone.
fn start(places: &Places, request: &LaunchRequest) -> anyhow::Result<()> {
    // Held until the shim has its lock, or nothing is left.
    let right = make_directories(places, request)?;
    calls::start(request).map_err(|error| not_started(&right, request, error))
}

/// A start that failed, once nothing of it is left; or what is left of it, and where.
fn not_started(right: &Right, request: &LaunchRequest, error: ShimError) -> anyhow::Error {
    // A shim that was killed leaves processes, too; where none was executed there are files alone.
    let cleared = if error.is_of_shim() { calls::clear_away(right) } else { calls::remove_files(right) };
    let (id, log) = (request.id(), request.record.join(logs::SHIM_LOG));
    let what = match cleared {
        Err(left) => {
            let (machine, left) = (request.machine.display(), anyhow::Error::from(left));
            format!(
                "{id} could not be started, and {machine} is left ({left:#}); `garboard stop --force {id}` removes it"
            )
        }
        Ok(()) if matches!(error, ShimError::Died { .. }) && log.exists() => {
            format!("{id} could not be started; the log of its shim is {}", log.display())
        }
        Ok(()) if matches!(error, ShimError::Died { .. }) => format!("{id} could not be started"),
        Ok(()) => return error.into(),
    };
    anyhow::Error::from(error).context(what)
}

/// Starts a machine that was stopped with the launch request that it had. Its next record begins now, and what it keeps is what its last
/// run has left.
pub(crate) fn again(places: &Places, mut request: LaunchRequest) -> anyhow::Result<()> {
    private::by_default();
    let id = request.id();
    refuse_second(places, &id)?;
    let records = request.record.parent().map_or_else(|| places.records(&id), Path::to_path_buf);
    request.record = records.join(record_name());
    request.stored = match &request.kept {
        Some(file) => crate::kept::read(file)?,
        None => request.stored,
    };
    refuse_closed_directories(places, &request)?;
    let signals = block_signals()?;
    start(places, &request)?;
    match attend::started(places, &request, &signals)? {
        Started::Runs => Ok(()),
        Started::Ended(_) => Err(exit_error(FAILED, format!("{id} was stopped again before its guest ran"))),
    }
}

fn decide(args: &RunArgs, places: &Places, subject: &Subject) -> anyhow::Result<LaunchRequest> {
    let facts = crate::host::facts(args.manifest.qemu.as_deref())?;
    if RequestedAccelerator::of(subject.vmi.metadata.annotations.as_ref()).is_none() {
        judge_accelerator(&facts, args.manifest.accel)?;
    }
    tell_user(&facts);
    let images = Images::new(places, &args.manifest.images);
    let lookup = Lookup { documents: &subject.documents, images: &images, places };
    let options = PlanOptions {
        accelerator: args.manifest.accel.into(),
        forwards: ports::parse_all(&args.manifest.publish)?,
        ..PlanOptions::default()
    };
    // Planned once here for its refusals, limits and firmware; the supervisor plans again with what it finds.
    let kept = Kept::find(places, subject, args.manifest.forget_machine)?;
    let plan = kept.plan(subject, &facts, &options)?;
    refuse_more_than_the_host(&plan, &facts)?;
    let volumes = resolve::volumes(&subject.vmi, &lookup)?;
    let kernel_files = kernel_files(subject, &plan, &images)?;
    let id = &subject.id;
    Ok(LaunchRequest {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        uid: subject.vmi.metadata.uid.clone().unwrap_or_default(),
        machine: places.machine(id),
        machine_uid: if nix::unistd::geteuid().is_root() { Some(identity::of(places, id)?) } else { None },
        record: places.records(id).join(record_name()),
        scratch: places.scratch(id),
        vmi: serde_json::to_value(&subject.vmi)?,
        facts,
        options,
        resources: plan.resources.clone(),
        volumes,
        kernel_files,
        firmware_vars: firmware_vars(&plan, places, id),
        grace_seconds: plan.lifecycle.grace_period_seconds,
        strategy: subject.strategy,
        stored: kept.machine,
        kept: kept.file,
    })
}

/// QEMU would fail to allocate it, or the guest would be killed as soon as it uses the memory it was given. Not for the
/// planner, which `explain` asks about machines of other hosts.
fn refuse_more_than_the_host(plan: &LaunchPlan, facts: &HostFacts) -> anyhow::Result<()> {
    let (wanted, there) = (plan.resources.guest_memory_bytes, facts.memory_bytes);
    if wanted <= there {
        return Ok(());
    }
    let text = format!(
        "spec.domain.memory: the guest is to have {} MiB and this host has {} MiB; write less, or use a larger host",
        wanted >> 20,
        there >> 20
    );
    Err(exit_error(BAD_INPUT, text))
}

/// One clear line when the guest's instructions are interpreted although the user did not request that; one clear refusal when
/// KVM was requested and cannot be had. A KVM that interprets is slow, but it is used when it is requested.
fn judge_accelerator(facts: &HostFacts, choice: AccelChoice) -> anyhow::Result<()> {
    let why = facts.kvm;
    match (choice, facts.kvm) {
        (_, KvmState::Native) | (AccelChoice::Kvm, KvmState::Emulated) | (AccelChoice::Tcg, _) => Ok(()),
        (AccelChoice::Kvm, _) => {
            let remedy = "leave it out to use TCG, which is slower; `garboard doctor` shows how to repair it";
            Err(exit_error(FAILED, format!("--accel kvm: {why}; {remedy}")))
        }
        (AccelChoice::Auto, _) => {
            note!("garboard: {why}: using TCG, which is slower; `garboard doctor` shows more");
            Ok(())
        }
    }
}

/// What an ordinary user's machine goes without on this host, a line for each.
fn tell_user(facts: &HostFacts) {
    if facts.is_root {
        return;
    }
    if let Err(errno) = garboard_host::namespaces::user() {
        let why = errno.desc();
        note!(
            "garboard: this user may not make namespaces ({why}): the machine has none of its own; see `garboard doctor`"
        );
    }
    if facts.cgroup == CgroupVersion::Unavailable {
        note!("garboard: no control group is delegated to this user: limits are not applied; see `garboard doctor`");
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

fn firmware_vars(plan: &LaunchPlan, places: &Places, id: &MachineId) -> Option<FirmwareVars> {
    match &plan.firmware {
        FirmwarePlan::Uefi { persistent: true, vars_template, .. } => {
            Some(FirmwareVars { path: places.firmware_vars(id), template: vars_template.into() })
        }
        FirmwarePlan::Uefi { .. } | FirmwarePlan::Bios { .. } => None,
    }
}

/// The advice when the directory for running machines cannot be used.
const ELSEWHERE: &str = "choose another place with GARBOARD_RUNTIME_DIR";

fn make_directories(places: &Places, request: &LaunchRequest) -> anyhow::Result<Right> {
    let longest = request.layout().supervisor().join(garboard_protocol::paths::LAST_RESORT_MONITOR_SOCKET);
    if longest.as_os_str().len() > garboard_protocol::paths::MAX_SOCKET_PATH_BYTES {
        let text = format!("the path {} is too long for a socket; {ELSEWHERE}, or a shorter name", longest.display());
        return Err(exit_error(BAD_INPUT, text));
    }
    private::make_passage(&places.runtime)
        .with_context(|| format!("could not create {}; {ELSEWHERE}", places.runtime.display()))?;
    // This directory must be new: a process that has made it has started the machine.
    let made = directory::make(&request.machine)
        .with_context(|| format!("could not create {}; {ELSEWHERE}", request.machine.display()))?;
    made.ok_or_else(|| runs_already(&request.id()))
}

/// As root the machine's processes are another user's, which must reach its files and Garboard's programs.
fn refuse_closed_directories(places: &Places, request: &LaunchRequest) -> anyhow::Result<()> {
    let Some(uid) = request.machine_uid else { return Ok(()) };
    for file in request.volumes.values().filter_map(HostVolumeSource::read_by_path).chain(request.kernel_files.values())
    {
        passage::check(file, "the image", uid)?;
    }
    passage::check(&places.runtime, "the runtime directory", uid)?;
    passage::check(&places.state.join("scratch"), "the state directory", uid)?;
    passage::check(&program::find(program::SUPERVISOR)?, "the program", uid)
}

fn block_signals() -> anyhow::Result<SigSet> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGHUP);
    signals.thread_block().context("block signals")?;
    Ok(signals)
}
