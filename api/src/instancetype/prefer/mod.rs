//! A preference, put into a template: it fills in what that leaves out, as in KubeVirt.

mod devices;
mod features;

use super::{ClockPreferences, FirmwarePreferences, VirtualMachinePreferenceSpec};
use crate::v1::{
    BIOS, Clock, DomainSpec, EFI, Firmware, VirtualMachineInstanceSpec, VirtualMachineInstanceTemplateSpec, non_empty,
};

pub(super) use devices::automatic;

/// Fills a template in.
pub(super) fn apply(preference: &VirtualMachinePreferenceSpec, template: &mut VirtualMachineInstanceTemplateSpec) {
    annotations(preference, template);
    let spec = template.spec.get_or_insert_default();
    cpu_features(preference, &mut spec.domain);
    if let Some(preferred) = &preference.devices {
        devices::fill_all(preferred, spec);
    }
    if let Some(preferred) = &preference.features {
        features::fill_all(preferred, spec.domain.features.get_or_insert_default());
    }
    if let Some(preferred) = &preference.firmware {
        firmware(preferred, spec.domain.firmware.get_or_insert_default());
    }
    if let Some(preferred) = &preference.clock {
        clock(preferred, spec.domain.clock.get_or_insert_default());
    }
    if preference.preferred_launch_security.is_some() && spec.domain.launch_security.is_none() {
        spec.domain.launch_security.clone_from(&preference.preferred_launch_security);
    }
    fill_text(&mut spec.subdomain, &preference.preferred_subdomain);
    if spec.termination_grace_period_seconds.is_none() {
        spec.termination_grace_period_seconds = preference.preferred_termination_grace_period_seconds;
    }
    platform(preference, spec);
}

/// Architecture and machine type: admission writes both into the template, before the defaults of the cluster.
pub(super) fn platform(preference: &VirtualMachinePreferenceSpec, spec: &mut VirtualMachineInstanceSpec) {
    fill_text(&mut spec.architecture, &preference.preferred_architecture);
    let preferred = preference.machine.as_ref().and_then(|machine| non_empty(&machine.preferred_machine_type));
    if let Some(name) = preferred {
        let machine = spec.domain.machine.get_or_insert_default();
        fill_text(&mut machine.r#type, &Some(name.to_owned()));
    }
}

/// Sets a text that is left out.
fn fill_text(field: &mut Option<String>, preferred: &Option<String>) {
    if non_empty(field).is_none()
        && let Some(text) = non_empty(preferred)
    {
        *field = Some(text.to_owned());
    }
}

/// Sets what is left out.
fn fill<T: Clone>(field: &mut Option<T>, preferred: &Option<T>) {
    if field.is_none() {
        field.clone_from(preferred);
    }
}

fn annotations(preference: &VirtualMachinePreferenceSpec, template: &mut VirtualMachineInstanceTemplateSpec) {
    if preference.annotations.is_empty() {
        return;
    }
    let known = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    for (key, value) in &preference.annotations {
        known.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

fn cpu_features(preference: &VirtualMachinePreferenceSpec, domain: &mut DomainSpec) {
    let preferred = preference.cpu.iter().flat_map(|cpu| &cpu.preferred_cpu_features);
    for feature in preferred {
        let features = &mut domain.cpu.get_or_insert_default().features;
        if !features.iter().any(|known| known.name == feature.name) {
            features.push(feature.clone());
        }
    }
}

/// The two older switches count only where the newer one is not set.
fn firmware(preferred: &FirmwarePreferences, firmware: &mut Firmware) {
    let loader = firmware.bootloader.get_or_insert_default();
    let is_free = loader.bios.is_none() && loader.efi.is_none();
    if is_free && preferred.preferred_use_bios == Some(true) {
        loader.bios = Some(BIOS::default());
    }
    if let Some(bios) = &mut loader.bios {
        fill(&mut bios.use_serial, &preferred.preferred_use_bios_serial);
        return;
    }
    if loader.efi.is_none() && preferred.preferred_efi.is_some() {
        loader.efi.clone_from(&preferred.preferred_efi);
        return;
    }
    if loader.efi.is_none() && preferred.preferred_use_efi == Some(true) {
        loader.efi = Some(EFI::default());
    }
    if let Some(efi) = &mut loader.efi {
        fill(&mut efi.secure_boot, &preferred.preferred_use_secure_boot);
    }
}

fn clock(preferred: &ClockPreferences, clock: &mut Clock) {
    if let Some(offset) = &preferred.preferred_clock_offset
        && clock.utc.is_none()
        && clock.timezone.is_none()
    {
        clock.utc.clone_from(&offset.utc);
        clock.timezone.clone_from(&offset.timezone);
    }
    fill(&mut clock.timer, &preferred.preferred_timer);
}
