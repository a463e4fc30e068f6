//! The stored machine in an annotation of its VirtualMachine ([`KeptMachine`]): a backup has it that leaves the status out. It is
//! written outside of any start ([ADR 11](../../../docs/adr/0011-five-writes.md)), and read where the status has none. Pure.

use std::time::Duration;

use garboard_api::metadata::annotation;
use garboard_api::v1::non_empty;
use garboard_api::{FieldPath, Phase, VirtualMachine, VirtualMachineInstance};
use garboard_plan::{FirmwareIdentity, KEPT_MAX, KeptError, KeptMachine};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::decide::World;
use crate::time::elapsed;

/// How long a guest has run when its machine is written: its start is over.
pub(super) const SETTLED: Duration = Duration::from_secs(600);
/// What all annotations of an object may have together, bytes.
const ANNOTATIONS_MAX: usize = 256 << 10;

/// What is to be done about the annotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// It has what it should, or there is nothing to write.
    Done,
    /// It is to be written after this time.
    Later(Duration),
    /// This is to be written.
    Now(String),
}

/// Where the annotation stands.
pub(crate) fn place() -> FieldPath {
    FieldPath::from("metadata.annotations").key(annotation::STORED_MACHINE)
}

/// The annotation of an object, read; nothing if it has none.
pub(crate) fn read(metadata: &ObjectMeta) -> Option<Result<KeptMachine, KeptError>> {
    let text = metadata.annotations.as_ref()?.get(annotation::STORED_MACHINE)?;
    Some(KeptMachine::read(text))
}

/// Whether what is kept is of this machine, and not of one that it is a copy of.
pub(crate) fn is_its_own(kept: &KeptMachine, metadata: &ObjectMeta) -> bool {
    kept.is_of(non_empty(&metadata.namespace).unwrap_or_default(), non_empty(&metadata.name).unwrap_or_default())
}

/// What the next instance is to be: as in the status, else as in the machine's own annotation; nothing for a new machine. An
/// annotation that is of no use keeps the machine from its start: its guest would find another one.
pub(super) fn stored(vm: &VirtualMachine) -> Result<Option<Value>, String> {
    if let Some(stored) = vm.status.as_ref().and_then(|status| status.stored_machine.clone()) {
        return Ok(Some(stored));
    }
    let unusable = |error: KeptError| format!("{}: {error}; to start as a new machine, remove the annotation", place());
    let kept = match read(&vm.metadata).transpose().map_err(unusable)? {
        Some(kept) if is_its_own(&kept, &vm.metadata) => kept,
        Some(_) | None => return Ok(None),
    };
    kept.judge().map_err(unusable)?;
    Ok(Some(kept.machine))
}

/// What is to be written of what is now in the status.
pub(super) fn keeping(world: &World, stored: Option<&Value>) -> Keeping {
    let Some(stored) = stored else { return Keeping::Done };
    let Some(wait) = wait(world) else { return Keeping::Done };
    let firmware =
        world.vm.spec.template.spec.as_ref().and_then(|spec| spec.domain.firmware.clone()).unwrap_or_default();
    let metadata = &world.vm.metadata;
    let wanted = KeptMachine {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        firmware: FirmwareIdentity { uuid: firmware.uuid, serial: firmware.serial },
        machine: stored.clone(),
    };
    if read(&world.vm.metadata).and_then(Result::ok).as_ref() == Some(&wanted) || wanted.judge().is_err() {
        return Keeping::Done;
    }
    match serde_json::to_string(&wanted) {
        Ok(text) if text.len() <= KEPT_MAX && text.len() <= room(&world.vm) => {
            if wait.is_zero() {
                Keeping::Now(text)
            } else {
                Keeping::Later(wait)
            }
        }
        Ok(_) | Err(_) => Keeping::Done,
    }
}

/// How long until it may be written; nothing while it must not.
fn wait(world: &World) -> Option<Duration> {
    if world.vm.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let Some(vmi) = &world.vmi else { return Some(Duration::ZERO) };
    let phase = Phase::of(vmi);
    if phase.is_final() || vmi.metadata.deletion_timestamp.is_some() {
        return Some(Duration::ZERO);
    }
    let since = runs_since(vmi).filter(|_| phase == Phase::Running)?;
    Some(SETTLED.saturating_sub(elapsed(since, world.now)))
}

fn runs_since(vmi: &VirtualMachineInstance) -> Option<Timestamp> {
    let transitions = &vmi.status.as_ref()?.phase_transition_timestamps;
    let running = transitions.iter().find(|each| each.phase.as_deref() == Some(Phase::Running.name()))?;
    running.phase_transition_timestamp.as_ref().map(|at| at.0)
}

/// Bytes that the annotation may have beside the others.
fn room(vm: &VirtualMachine) -> usize {
    let others = vm.metadata.annotations.iter().flatten().filter(|(key, _)| *key != annotation::STORED_MACHINE);
    let taken: usize = others.map(|(key, value)| key.len() + value.len()).sum();
    ANNOTATIONS_MAX.saturating_sub(taken + annotation::STORED_MACHINE.len())
}
