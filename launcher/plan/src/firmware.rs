//! What the guest starts from, and how the machine introduces itself.

use garboard_api::v1::{Chassis, KernelBoot};
use garboard_machine::blockdev::{Aio, Backing, Blockdev, Cache, Discard, FileDriver, FileNode, ImageNode};
use garboard_machine::cpu::Switch;
use garboard_machine::facts::{UefiKind, UefiPair};
use garboard_machine::firmware::{Boot, Kernel, Smbios};
use garboard_machine::id::NodeName;

use super::draft::{Draft, Input, node_name, text};
use super::error::PlanError;
use super::launch::{DescriptorPurpose, FirmwarePlan, KernelBootPlan};

const FIELD: &str = "spec.domain.firmware";

/// How long the firmware offers its menu to somebody who started the VM paused, milliseconds.
const MENU_MILLISECONDS: u32 = 10_000;

/// Everything about firmware.
#[derive(Clone, Debug)]
pub(super) struct Firmware {
    pub(super) plan: FirmwarePlan,
    pub(super) kernel: Kernel,
    pub(super) pflash: Option<[NodeName; 2]>,
    pub(super) smm: Option<Switch>,
    pub(super) graphics: Option<Switch>,
    /// Size of the flash images together, bytes.
    pub(super) flash_bytes: u64,
}

/// Whether a VMI boots by UEFI.
pub(super) fn is_uefi(input: Input<'_>) -> bool {
    let firmware = input.domain().firmware.as_ref();
    firmware.and_then(|firmware| firmware.bootloader.as_ref()).is_some_and(|loader| loader.efi.is_some())
}

/// What the guest starts from.
pub(super) fn firmware(draft: &mut Draft<'_>) -> Result<Firmware, PlanError> {
    let spec = draft.input.domain().firmware.as_ref();
    let loader = spec.and_then(|firmware| firmware.bootloader.as_ref());
    let kernel_boot = spec.and_then(|firmware| firmware.kernel_boot.as_ref());
    let (kernel, kernel_boot) = kernel_boot.map_or((Kernel::default(), None), |boot| plan_kernel(draft, boot));
    let features = draft.input.domain().features.as_ref();
    let asked_smm = features.and_then(|features| features.smm.as_ref()).map(|smm| smm.enabled.unwrap_or(true));
    let Some(efi) = loader.and_then(|loader| loader.efi.as_ref()) else {
        let speaks_serial =
            loader.and_then(|loader| loader.bios.as_ref()).is_some_and(|bios| bios.use_serial == Some(true));
        return Ok(Firmware {
            plan: FirmwarePlan::Bios { kernel_boot },
            kernel,
            pflash: None,
            smm: asked_smm.map(Switch::from),
            graphics: speaks_serial.then_some(Switch::Off),
            flash_bytes: 0,
        });
    };
    let is_secure = efi.secure_boot.unwrap_or(true);
    let pair = uefi_pair(draft.input, is_secure)?.clone();
    let pflash = plan_flash(draft, is_secure)?;
    Ok(Firmware {
        plan: FirmwarePlan::Uefi {
            code: pair.code,
            vars_template: pair.vars_template,
            vars_bytes: pair.vars_bytes,
            persistent: efi.persistent == Some(true),
            kernel_boot,
        },
        kernel,
        pflash: Some(pflash),
        // Only SMM keeps the guest's kernel from writing the variables behind the firmware's back.
        smm: if is_secure { Some(Switch::On) } else { asked_smm.map(Switch::from) },
        graphics: None,
        flash_bytes: pair.code_bytes.saturating_add(pair.vars_bytes),
    })
}

fn uefi_pair(input: Input<'_>, is_secure: bool) -> Result<&UefiPair, PlanError> {
    let kinds: &[UefiKind] =
        if is_secure { &[UefiKind::SecureBootEnrolled, UefiKind::SecureBoot] } else { &[UefiKind::Plain] };
    kinds
        .iter()
        .find_map(|&kind| input.facts.uefi.iter().find(|pair| pair.kind == kind))
        .ok_or_else(|| PlanError::NoUefi { field: format!("{FIELD}.bootloader.efi"), kind: kinds[0] })
}

fn plan_flash(draft: &mut Draft<'_>, is_secure: bool) -> Result<[NodeName; 2], PlanError> {
    let code_set = draft.descriptor_set(DescriptorPurpose::FirmwareCode, "uefi-code".to_owned());
    let vars_set = draft.descriptor_set(DescriptorPurpose::FirmwareVars, "uefi-vars".to_owned());
    let code = flash_image(draft, "code", code_set)?;
    let vars = flash_image(draft, "vars", vars_set)?;
    if is_secure {
        let value = "on".to_owned();
        draft.globals.push(garboard_machine::clock::Global { driver: "cfi.pflash01", property: "secure", value });
    }
    Ok([code, vars])
}

fn flash_image(draft: &mut Draft<'_>, name: &str, set: u32) -> Result<NodeName, PlanError> {
    let read_only = name == "code";
    let file = node_name("file-uefi", name, FIELD)?;
    let image = node_name("uefi", name, FIELD)?;
    draft.blockdevs.push(Blockdev::File(FileNode {
        node_name: file.clone(),
        driver: FileDriver::File,
        set,
        read_only,
        cache: Cache::Page,
        aio: Aio::Threads,
        discard: Discard::Ignore,
    }));
    draft.blockdevs.push(Blockdev::Image(ImageNode {
        node_name: image.clone(),
        format: "raw",
        file,
        size: None,
        read_only,
        cache: Cache::Page,
        discard: Discard::Ignore,
        backing: Backing::NotApplicable,
    }));
    Ok(image)
}

fn plan_kernel(draft: &mut Draft<'_>, boot: &KernelBoot) -> (Kernel, Option<KernelBootPlan>) {
    let append = text(&boot.kernel_args).map(str::to_owned);
    let Some(container) = boot.container.as_ref() else { return (Kernel { append, ..Kernel::default() }, None) };
    let mut open =
        |path: &Option<String>, purpose| text(path).map(|_| format!("/proc/self/fd/{}", draft.descriptor(purpose)));
    let kernel = open(&container.kernel_path, DescriptorPurpose::Kernel);
    let initrd = open(&container.initrd_path, DescriptorPurpose::Initrd);
    let plan = KernelBootPlan {
        image: container.image.clone(),
        kernel: text(&container.kernel_path).map(str::to_owned),
        initrd: text(&container.initrd_path).map(str::to_owned),
    };
    (Kernel { kernel, initrd, append }, Some(plan))
}

/// `-boot`: somebody who starts a VM paused wants to reach the firmware's menu.
pub(super) fn boot(input: Input<'_>) -> Boot {
    let is_paused = text(&input.spec().start_strategy) == Some("Paused");
    Boot { menu_milliseconds: is_paused.then_some(MENU_MILLISECONDS) }
}

/// How the machine introduces itself.
pub(super) fn smbios(input: Input<'_>) -> Vec<Smbios> {
    let firmware = input.domain().firmware.as_ref();
    let system = Smbios::System {
        manufacturer: "KubeVirt".to_owned(),
        product: "None".to_owned(),
        version: None,
        serial: firmware.and_then(|firmware| text(&firmware.serial)).map(str::to_owned),
        uuid: uuid(input),
        sku: None,
        family: "KubeVirt".to_owned(),
    };
    let chassis = input.domain().chassis.as_ref().map(chassis);
    std::iter::once(system).chain(chassis).collect()
}

/// The UUID the guest sees.
pub(super) fn uuid(input: Input<'_>) -> Option<String> {
    input.domain().firmware.as_ref().and_then(|firmware| text(&firmware.uuid)).map(str::to_owned)
}

fn chassis(chassis: &Chassis) -> Smbios {
    let owned = |field: &Option<String>| text(field).map(str::to_owned);
    Smbios::Chassis {
        manufacturer: owned(&chassis.manufacturer),
        version: owned(&chassis.version),
        serial: owned(&chassis.serial),
        asset: owned(&chassis.asset),
        sku: owned(&chassis.sku),
    }
}
