//! Small devices: random numbers, balloon, watchdog, panic notifiers, sound.

use garboard_api::metadata::annotation;
use garboard_machine::device::{
    Ac97, HdaDuplex, I6300Esb, Ich9IntelHda, Pvpanic, PvpanicPci, VirtioBalloonPci, VirtioRngPci,
};
use garboard_machine::id::DeviceId;
use garboard_machine::object::Object;
use garboard_machine::pci::Placement;
use garboard_machine::process::WatchdogAction;

use super::draft::{Draft, invalid, text};
use super::error::PlanError;

/// Random numbers.
pub(super) fn rng(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    if draft.input.devices().rng.is_none() {
        return Ok(());
    }
    let (id, rng) = (DeviceId::constant("rng0"), DeviceId::constant("rng-source0"));
    let at = draft.place_virtio(&id, Placement::Port, "spec.domain.devices.rng")?;
    draft.objects.push(Object::RngBuiltin { id: rng.clone() });
    draft.devices.push(VirtioRngPci { id, revision: draft.input.virtio_revision(), at, rng }.into());
    Ok(())
}

/// The balloon. With huge pages it cannot give anything back page by page, so nothing is reported then.
pub(super) fn balloon(draft: &mut Draft<'_>, has_hugepages: bool) -> Result<(), PlanError> {
    let input = draft.input;
    if input.devices().autoattach_mem_balloon == Some(false) {
        return Ok(());
    }
    let id = DeviceId::constant("balloon0");
    let at = draft.place_virtio(&id, Placement::Port, "spec.domain.devices.autoattachMemBalloon")?;
    let balloon = VirtioBalloonPci {
        id,
        revision: input.virtio_revision(),
        at,
        free_page_reporting: !has_hugepages && !input.is_annotated(annotation::FREE_PAGE_REPORTING_DISABLED),
        // Nothing reads them, and each would wake the guest.
        stats_interval_seconds: 0,
    };
    draft.devices.push(balloon.into());
    Ok(())
}

/// The watchdog, and what it does when it runs out.
pub(super) fn watchdog(draft: &mut Draft<'_>) -> Result<WatchdogAction, PlanError> {
    let Some(watchdog) = &draft.input.devices().watchdog else { return Ok(WatchdogAction::Reset) };
    let field = "spec.domain.devices.watchdog.i6300esb";
    let action = watchdog.i6300esb.as_ref().and_then(|esb| text(&esb.action)).unwrap_or("reset");
    let action = match action {
        "reset" => WatchdogAction::Reset,
        "shutdown" => WatchdogAction::Shutdown,
        "poweroff" => WatchdogAction::Poweroff,
        other => {
            let message = format!("a watchdog cannot `{other}`");
            return Err(invalid(format!("{field}.action"), message, "write reset, shutdown or poweroff"));
        }
    };
    let id = DeviceId::constant("watchdog0");
    let at = draft.place(&id, Placement::RootComplex, field)?;
    draft.devices.push(I6300Esb { id, at }.into());
    Ok(action)
}

/// Devices to which a guest reports its panic. Hyper-V's is a CPU feature and no device.
pub(super) fn panic_devices(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    for (index, device) in draft.input.devices().panic_devices.iter().enumerate() {
        let field = format!("spec.domain.devices.panicDevices[{index}].model");
        match text(&device.model).unwrap_or("isa") {
            "hyperv" => {}
            "isa" => draft.devices.push(Pvpanic { id: DeviceId::constant("panic0") }.into()),
            "pvpanic" => {
                let id = DeviceId::constant("panic-pci0");
                let at = draft.place(&id, Placement::RootComplex, &field)?;
                draft.devices.push(PvpanicPci { id, at }.into());
            }
            other => {
                let message = format!("there is no panic device `{other}`");
                return Err(invalid(field, message, "write isa, pvpanic or hyperv"));
            }
        }
    }
    Ok(())
}

/// The sound card; its sound goes nowhere.
pub(super) fn sound(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let Some(sound) = &draft.input.devices().sound else { return Ok(()) };
    let field = "spec.domain.devices.sound.model";
    let (id, audiodev) = (DeviceId::constant("sound0"), DeviceId::constant("audio0"));
    match text(&sound.model).unwrap_or("ich9") {
        "ich9" => {
            let at = draft.place(&id, Placement::RootComplex, field)?;
            draft.buses.push(Ich9IntelHda { id: id.clone(), at }.into());
            let codec = DeviceId::constant("sound0-codec");
            draft.devices.push(HdaDuplex { id: codec, controller: id, audiodev: audiodev.clone() }.into());
        }
        "ac97" => {
            let at = draft.place(&id, Placement::RootComplex, field)?;
            draft.devices.push(Ac97 { id, at, audiodev: audiodev.clone() }.into());
        }
        other => {
            return Err(invalid(field, format!("there is no sound card `{other}`"), "write `ich9` or `ac97`"));
        }
    }
    draft.audiodev = Some(audiodev);
    Ok(())
}
