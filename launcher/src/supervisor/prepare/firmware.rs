//! Firmware images and the kernel of `kernelBoot`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use garboard_agent::client::AgentClient;
use garboard_plan::{FirmwarePlan, KernelBootPlan, LaunchPlan};
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::volumes::{FIRMWARE_VARS_VOLUME, KERNEL_BOOT_PREFIX, KERNEL_BOOT_VOLUME};
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, Opening, open_disk};
use garboard_storage::source::{firmware_vars, kernel_boot};

use super::container_disk_client;
use super::descriptors::OpenedDescriptors;
use super::order::Order;
use super::survey::io;
use super::{PrepareError, VolumeError};

/// Opens or makes what the guest starts from.
pub(super) async fn fill(
    order: &Order,
    plan: &LaunchPlan,
    agent: Option<&mut AgentClient>,
    stock: &mut OpenedDescriptors,
) -> Result<(), PrepareError> {
    let kernel_boot = match &plan.firmware {
        FirmwarePlan::Bios { kernel_boot } => kernel_boot,
        FirmwarePlan::Uefi { code, vars_template, persistent, kernel_boot, .. } => {
            let code = open_disk(Path::new(code), Opening::BASE).map_err(VolumeError::from);
            stock.firmware_code = Some(code.map_err(PrepareError::Firmware)?.fd);
            let vars = if *persistent {
                kept_vars(order, vars_template, agent).await
            } else {
                fresh_vars(order, vars_template)
            };
            stock.firmware_vars = Some(vars.map_err(PrepareError::Firmware)?);
            kernel_boot
        }
    };
    if let Some(kernel_boot) = kernel_boot {
        kernel(order, kernel_boot, stock)
            .await
            .map_err(|source| PrepareError::Volume { volume: "kernelBoot".to_owned(), source })?;
    }
    Ok(())
}

/// Variables that stay: in a volume of the pod, or where the shim has them.
async fn kept_vars(order: &Order, template: &str, agent: Option<&mut AgentClient>) -> Result<OwnedFd, VolumeError> {
    if let Some(VolumePlace::Directory { path }) = order.volumes.places.get(FIRMWARE_VARS_VOLUME) {
        return Ok(firmware_vars::open_or_copy(&Dir::open(Path::new(path))?, Path::new(template))?);
    }
    let agent = agent.ok_or(VolumeError::Nowhere)?;
    Ok(agent.volume(FIRMWARE_VARS_VOLUME).await?)
}

fn fresh_vars(order: &Order, template: &str) -> Result<OwnedFd, VolumeError> {
    let mut source = File::open(template).map_err(|error| io(&format!("open {template}"), error))?;
    let mut vars = super::disks::scratch_file(order)?;
    std::io::copy(&mut source, &mut vars).map_err(|error| io("copy the firmware's variables", error))?;
    Ok(vars.into())
}

async fn kernel(order: &Order, plan: &KernelBootPlan, stock: &mut OpenedDescriptors) -> Result<(), VolumeError> {
    for (name, place) in [(&plan.kernel, &mut stock.kernel), (&plan.initrd, &mut stock.initrd)] {
        if let Some(name) = name {
            *place = Some(boot_file(order, name).await?);
        }
    }
    Ok(())
}

/// One file of the image: out of the cache, out of an unpacked image, or opened in the image's own container.
async fn boot_file(order: &Order, name: &str) -> Result<OwnedFd, VolumeError> {
    let places = &order.volumes.places;
    match places.get(&format!("{KERNEL_BOOT_PREFIX}{name}")) {
        Some(VolumePlace::File { path }) => return Ok(kernel_boot::open_file(Path::new(path))?.fd),
        Some(VolumePlace::Handed { socket }) => {
            let (file, shown) = container_disk_client::file(Path::new(socket)).await?;
            return Ok(kernel_boot::received(file, &shown)?.fd);
        }
        Some(VolumePlace::Directory { .. } | VolumePlace::Descriptor) | None => {}
    }
    let Some(VolumePlace::Directory { path }) = places.get(KERNEL_BOOT_VOLUME) else {
        return Err(VolumeError::Nowhere);
    };
    let beneath = BeneathPath::parse(name).map_err(|error| io(&format!("use {name}"), std::io::Error::other(error)))?;
    Ok(kernel_boot::open(&Dir::open(Path::new(path))?, &beneath)?.fd)
}
