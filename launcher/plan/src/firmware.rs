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
use super::stored::StoredFirmware;

const FIELD: &str = "spec.domain.firmware";

/// How long the firmware offers its menu when the VM was started paused, milliseconds.
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
    /// For the next start.
    pub(super) stored: Option<StoredFirmware>,
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
        let uses_serial =
            loader.and_then(|loader| loader.bios.as_ref()).is_some_and(|bios| bios.use_serial == Some(true));
        return Ok(Firmware {
            plan: FirmwarePlan::Bios { kernel_boot },
            kernel,
            pflash: None,
            smm: asked_smm.map(Switch::from),
            graphics: uses_serial.then_some(Switch::Off),
            flash_bytes: 0,
            stored: None,
        });
    };
    let is_secure = efi.secure_boot.unwrap_or(true);
    let is_persistent = efi.persistent == Some(true);
    let pair = uefi_pair(draft.input, is_secure, is_persistent)?.clone();
    let pflash = plan_flash(draft, is_secure)?;
    Ok(Firmware {
        stored: Some(to_store(kept(draft.input, is_secure), &pair, is_persistent)),
        plan: FirmwarePlan::Uefi {
            code: pair.code,
            vars_template: pair.vars_template,
            vars_bytes: pair.vars_bytes,
            persistent: is_persistent,
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

/// Kinds of builds that serve, the best one first.
fn kinds(is_secure: bool) -> &'static [UefiKind] {
    if is_secure { &[UefiKind::SecureBootEnrolled, UefiKind::SecureBoot] } else { &[UefiKind::Plain] }
}

/// The build of the first start, while it is of a kind that is asked for.
fn kept(input: Input<'_>, is_secure: bool) -> Option<&StoredFirmware> {
    input.stored?.firmware.as_ref().filter(|kept| kinds(is_secure).contains(&kept.kind))
}

/// What the next start is to find: a build that stood in for the kept one is not remembered, unless it made variables that stay.
fn to_store(kept: Option<&StoredFirmware>, pair: &UefiPair, is_persistent: bool) -> StoredFirmware {
    match kept {
        Some(kept) if kept.persistent != Some(false) || !is_persistent => kept.clone(),
        Some(_) | None => StoredFirmware {
            kind: pair.kind,
            code: pair.code.clone(),
            code_bytes: pair.code_bytes,
            vars_bytes: pair.vars_bytes,
            persistent: Some(is_persistent),
        },
    }
}

/// The build that the guest has always booted by, else the one that is most like it, else the best for what is asked for. The
/// variables that a guest left are of no use to a build that requires another size.
fn uefi_pair(input: Input<'_>, is_secure: bool, is_persistent: bool) -> Result<&UefiPair, PlanError> {
    let kinds = kinds(is_secure);
    let field = format!("{FIELD}.bootloader.efi");
    let of_kind = |kind: UefiKind| input.facts.uefi.iter().filter(move |pair| pair.kind == kind);
    let mut found = kinds.iter().flat_map(|&kind| of_kind(kind));
    let Some(kept) = kept(input, is_secure) else {
        return found.next().ok_or_else(|| PlanError::NoUefi { field, kind: kinds[0] });
    };
    let fits = |pair: &UefiPair| pair.vars_bytes == kept.vars_bytes && pair.code_bytes == kept.code_bytes;
    let unlike = |pair: &&UefiPair| (pair.kind != kept.kind, !fits(pair), pair.code != kept.code);
    let best = found.min_by_key(unlike).ok_or_else(|| PlanError::NoUefi { field: field.clone(), kind: kinds[0] })?;
    if is_persistent && kept.persistent != Some(false) && best.vars_bytes != kept.vars_bytes {
        let (kept, kib) = (&kept.code, kept.vars_bytes >> 10);
        return Err(PlanError::HostLacks {
            field,
            message: format!(
                "the guest has UEFI variables of {kib} KiB, for {kept}, and no UEFI build here takes them"
            ),
            instead: "install that build (package ovmf), or use another host".to_owned(),
        });
    }
    Ok(best)
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

/// `-boot`: a user who starts a VM paused may need the firmware's menu.
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
