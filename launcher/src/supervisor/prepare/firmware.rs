//! Firmware images and the kernel of `kernelBoot`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use garboard_protocol::agent::VolumePlace;
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, Opening, open_disk};
use garboard_storage::source::kernel_boot;

use super::descriptors::Stock;
use super::order::Order;
use super::survey::io;
use super::{PrepareError, VolumeError};
use crate::plan::{FirmwarePlan, KernelBootPlan, LaunchPlan};
use crate::supervisor::agent_client::AgentClient;
use crate::supervisor::{FIRMWARE_VARS_VOLUME, KERNEL_BOOT_PREFIX, KERNEL_BOOT_VOLUME};

/// Opens or makes what the guest starts from.
pub(super) async fn fill(
    order: &Order,
    plan: &LaunchPlan,
    agent: Option<&mut AgentClient>,
    stock: &mut Stock,
) -> Result<(), PrepareError> {
    let kernel_boot = match &plan.firmware {
        FirmwarePlan::Bios { kernel_boot } => kernel_boot,
        FirmwarePlan::Uefi { code, vars_template, persistent, kernel_boot, .. } => {
            let code = open_disk(Path::new(code), Opening::BASE).map_err(VolumeError::from);
            stock.firmware_code = Some(code.map_err(PrepareError::Firmware)?.fd);
            let vars = if *persistent { kept_vars(agent).await } else { fresh_vars(order, vars_template) };
            stock.firmware_vars = Some(vars.map_err(PrepareError::Firmware)?);
            kernel_boot
        }
    };
    if let Some(kernel_boot) = kernel_boot {
        kernel(order, kernel_boot, stock)
            .map_err(|source| PrepareError::Volume { volume: "kernelBoot".to_owned(), source })?;
    }
    Ok(())
}

/// Variables that live where the user said; whoever keeps them made them from the template.
async fn kept_vars(agent: Option<&mut AgentClient>) -> Result<OwnedFd, VolumeError> {
    let agent = agent.ok_or(VolumeError::Nowhere)?;
    Ok(agent.volume(FIRMWARE_VARS_VOLUME).await?)
}

fn fresh_vars(order: &Order, template: &str) -> Result<OwnedFd, VolumeError> {
    let mut source = File::open(template).map_err(|error| io(&format!("open {template}"), error))?;
    let mut vars = super::disks::scratch_file(order)?;
    std::io::copy(&mut source, &mut vars).map_err(|error| io("copy the firmware's variables", error))?;
    Ok(vars.into())
}

fn kernel(order: &Order, plan: &KernelBootPlan, stock: &mut Stock) -> Result<(), VolumeError> {
    stock.kernel = plan.kernel.as_deref().map(|name| boot_file(order, name)).transpose()?;
    stock.initrd = plan.initrd.as_deref().map(|name| boot_file(order, name)).transpose()?;
    Ok(())
}

/// One file of the image, out of the cache or out of an unpacked image.
fn boot_file(order: &Order, name: &str) -> Result<OwnedFd, VolumeError> {
    let places = &order.volumes.places;
    if let Some(VolumePlace::File { path }) = places.get(&format!("{KERNEL_BOOT_PREFIX}{name}")) {
        return Ok(kernel_boot::open_file(Path::new(path))?.fd);
    }
    let Some(VolumePlace::Directory { path }) = places.get(KERNEL_BOOT_VOLUME) else {
        return Err(VolumeError::Nowhere);
    };
    let beneath = BeneathPath::parse(name).map_err(|error| io(&format!("use {name}"), std::io::Error::other(error)))?;
    Ok(kernel_boot::open(&Dir::open(Path::new(path))?, &beneath)?.fd)
}
