//! Screen and pointer.

use garboard_api::metadata::annotation;
use garboard_machine::device::{Display, DisplayModel, UsbTablet, VirtioInput, VirtioInputModel};
use garboard_machine::id::DeviceId;
use garboard_machine::pci::Placement;

use super::draft::{Draft, device_id, invalid, text};
use super::error::PlanError;
use super::firmware::is_uefi;
use super::launch::ScreenPlan;
use super::usb::UsbPorts;

const VIDEO_FIELD: &str = "spec.domain.devices.video.type";

/// The graphics device.
pub(super) fn display(draft: &mut Draft<'_>) -> Result<ScreenPlan, PlanError> {
    let input = draft.input;
    if input.devices().autoattach_graphics_device == Some(false) {
        return Ok(ScreenPlan::Absent);
    }
    // UEFI needs no legacy registers, and the fewer there are the less there is to attack.
    let is_legacy_free = is_uefi(input) && !input.is_annotated(annotation::VGA_DISPLAY_EFI);
    let default = if is_legacy_free { "bochs" } else { "vga" };
    let model = input.devices().video.as_ref().and_then(|video| text(&video.r#type)).unwrap_or(default);
    let id = DeviceId::constant("video0");
    let model = if model == "ramfb" {
        DisplayModel::Ramfb
    } else {
        let at = draft.place(&id, Placement::Graphics, VIDEO_FIELD)?;
        match model {
            "vga" => DisplayModel::Vga { at },
            "bochs" => DisplayModel::Bochs { at },
            "cirrus" => DisplayModel::Cirrus { at },
            "virtio" => DisplayModel::VirtioVga { at },
            other => {
                let message = format!("there is no graphics device `{other}`");
                return Err(invalid(VIDEO_FIELD, message, "write vga, bochs, cirrus, virtio or ramfb"));
            }
        }
    };
    let device = garboard_machine::device::Device::from(Display { id, model });
    input.require_device(device.properties().text("driver").unwrap_or_default(), VIDEO_FIELD)?;
    draft.devices.push(device);
    Ok(ScreenPlan::Vnc)
}

/// Pointers the manifest lists, or the one it asks for without a type.
pub(super) fn inputs(draft: &mut Draft<'_>, usb: &mut UsbPorts) -> Result<(), PlanError> {
    let devices = draft.input.devices();
    for (index, input) in devices.inputs.iter().enumerate() {
        let field = format!("spec.domain.devices.inputs[{index}]");
        if input.r#type != "tablet" {
            let message = format!("there is no input device `{}`", input.r#type);
            return Err(invalid(format!("{field}.type"), message, "write `tablet`"));
        }
        // A name is not required; the position then distinguishes two of them.
        let id = if input.name.is_empty() {
            DeviceId::numbered("input", u32::try_from(index).unwrap_or(u32::MAX))
        } else {
            device_id("input", &input.name, &format!("{field}.name"))?
        };
        tablet(draft, usb, id, text(&input.bus).unwrap_or("usb"), &field)?;
    }
    if devices.inputs.is_empty() && devices.autoattach_input_device == Some(true) {
        let field = "spec.domain.devices.autoattachInputDevice";
        tablet(draft, usb, DeviceId::constant("input0"), "usb", field)?;
    }
    Ok(())
}

fn tablet(draft: &mut Draft<'_>, usb: &mut UsbPorts, id: DeviceId, bus: &str, field: &str) -> Result<(), PlanError> {
    match bus {
        "usb" => {
            let at = usb.of(draft, &id, field)?;
            draft.devices.push(UsbTablet { id, at }.into());
        }
        "virtio" => {
            let at = draft.place(&id, Placement::Port, field)?;
            draft.devices.push(VirtioInput { id, model: VirtioInputModel::Tablet, at }.into());
        }
        other => {
            let message = format!("there is no bus `{other}` for input devices");
            return Err(invalid(format!("{field}.bus"), message, "write `usb` or `virtio`"));
        }
    }
    Ok(())
}
