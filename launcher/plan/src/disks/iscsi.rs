//! The block nodes of a disk on iSCSI: an image over a node that QEMU connects itself.

use garboard_machine::blockdev::{Backing, Blockdev, Cache, Discard, ImageNode, IscsiNode};
use garboard_machine::id::DeviceId;
use garboard_machine::object::Object;

use super::Asked;
use super::source::Source;
use crate::disk::{DiskNodes, DiskSource, ImageFormat};
use crate::draft::{Draft, device_id, invalid, node_name, text};
use crate::error::PlanError;
use crate::launch::DescriptorPurpose;

/// `image` over `file`, as every disk has them.
pub(super) fn layer(
    draft: &mut Draft<'_>,
    asked: Asked<'_>,
    source: &Source,
    read_only: bool,
) -> Result<DiskNodes, PlanError> {
    let DiskSource::Iscsi { portal, target, lun, chap } = &source.source else { return Ok(DiskNodes::default()) };
    let name = asked.disk.name.as_str();
    if text(&asked.disk.io).is_some() {
        let message = "requests of a disk on iSCSI are submitted by its own protocol";
        return Err(invalid(format!("{}.io", asked.field), message, "leave it out"));
    }
    let sizes = asked.disk.block_size.as_ref().and_then(|sizes| sizes.match_volume.as_ref());
    if sizes.is_some_and(|state| state.enabled != Some(false)) {
        let message = "nothing is known of a unit before QEMU opens it";
        let field = format!("{}.blockSize.matchVolume", asked.field);
        return Err(invalid(field, message, "write `blockSize.custom`, or leave it out"));
    }
    let password_secret = if *chap { Some(password(draft, asked)?) } else { None };
    let (image, file) = (node_name("image", name, asked.field)?, node_name("file", name, asked.field)?);
    let nodes = DiskNodes { image: Some(image.to_string()), file: Some(file.to_string()), ..DiskNodes::default() };
    let discard = if read_only { Discard::Ignore } else { Discard::Unmap };
    // There is no page cache between QEMU and the target.
    let cache = Cache::Direct;
    draft.blockdevs.push(Blockdev::Iscsi(IscsiNode {
        node_name: file.clone(),
        portal: portal.clone(),
        target: target.clone(),
        lun: *lun,
        user: source.facts.chap_user.clone(),
        password_secret,
        read_only,
        cache,
        discard,
    }));
    draft.blockdevs.push(Blockdev::Image(ImageNode {
        node_name: image,
        format: ImageFormat::Raw.as_str(),
        file,
        size: None,
        read_only,
        cache,
        discard,
        backing: Backing::NotApplicable,
    }));
    Ok(nodes)
}

/// CHAP's password: an object that reads it from a descriptor, so that no argument has it.
fn password(draft: &mut Draft<'_>, asked: Asked<'_>) -> Result<DeviceId, PlanError> {
    let volume = asked.disk.name.clone();
    let id = device_id("chap", &volume, asked.field)?;
    let fd = draft.descriptor(DescriptorPurpose::IscsiPassword { volume });
    draft.objects.push(Object::Secret { id: id.clone(), fd });
    Ok(id)
}
