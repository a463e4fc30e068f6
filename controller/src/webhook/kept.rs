//! The annotation in which a machine's stored machine outlives its status ([`crate::vm::kept`]), as users write it: a backup that is
//! restored, and copies of manifests. Pure.

use garboard_api::metadata::annotation;
use garboard_api::{Fault, FaultCode, VirtualMachine};
use garboard_plan::{FirmwareIdentity, KeptError, KeptMachine};
use kube::core::DynamicObject;

use super::Request;
use crate::vm::kept::{is_its_own, place, read};

const WAY_OUT: &str = "restore it from a backup, or remove the annotation for a new machine";

/// What a machine has of the annotation in its manifest: if that is its own, by what its firmware names it. A copy of another machine
/// loses it, and by what the other one's firmware names that, for a guest of its own.
pub(super) fn settle(vm: &mut VirtualMachine) -> FirmwareIdentity {
    let Some(Ok(kept)) = read(&vm.metadata) else { return FirmwareIdentity::default() };
    if is_its_own(&kept, &vm.metadata) {
        return kept.firmware;
    }
    if let Some(annotations) = &mut vm.metadata.annotations {
        annotations.remove(annotation::STORED_MACHINE);
    }
    let spec = vm.spec.template.spec.as_mut();
    if let Some(firmware) = spec.and_then(|spec| spec.domain.firmware.as_mut()) {
        firmware.uuid.take_if(|uuid| kept.firmware.uuid.as_ref() == Some(&*uuid));
        firmware.serial.take_if(|serial| kept.firmware.serial.as_ref() == Some(&*serial));
    }
    FirmwareIdentity::default()
}

/// The message for a manifest that was another machine's.
pub(super) fn warning(object: &DynamicObject) -> Option<Fault> {
    let kept = read(&object.metadata)?.ok().filter(|kept| !is_its_own(kept, &object.metadata))?;
    let message = format!(
        "a copy of {}/{}: this machine has MAC addresses, serial numbers and firmware UUID of its own where the specification \
         does not give them",
        kept.namespace.escape_debug(),
        kept.name.escape_debug()
    );
    Some(Fault::new(place(), FaultCode::Invalid, message).instead("remove the annotation"))
}

/// What is wrong with an annotation that is written now.
pub(super) fn fault(request: &Request, object: &DynamicObject) -> Option<Fault> {
    let key = annotation::STORED_MACHINE;
    let text = |object: &DynamicObject| object.metadata.annotations.as_ref().and_then(|all| all.get(key).cloned());
    if request.kind.kind != "VirtualMachine" || text(object) == request.old_object.as_ref().and_then(text) {
        return None;
    }
    let error = match read(&object.metadata)? {
        Ok(kept) if is_its_own(&kept, &object.metadata) => kept.judge().err()?,
        Ok(KeptMachine { .. }) => return None,
        Err(error) => error,
    };
    let (at, message) = match error {
        KeptError::Value { at, message } => (place().child(at.as_str()), message),
        error @ (KeptError::TooLong { .. } | KeptError::Unreadable(_) | KeptError::Version(_)) => {
            (place(), error.to_string())
        }
    };
    Some(Fault::new(at, FaultCode::Invalid, message).instead(WAY_OUT))
}
