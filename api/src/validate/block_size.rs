//! The block sizes a disk shows to its guest.

use super::disks::{Place, target};
use super::report::{Report, invalid};
use crate::fault::FieldPath;

/// The smallest block, in bytes: what every device driver can read.
const SMALLEST: i64 = 512;
/// The largest block QEMU shows, in bytes (2 MiB).
const LARGEST: i64 = 2 * 1024 * 1024;

/// Judges the block sizes of one disk. The first rule broken is the only one reported: the others follow from it.
pub(crate) fn check(place: &Place<'_>, report: &mut Report) {
    let Some(sizes) = &place.disk.block_size else { return };
    let Some(custom) = &sizes.custom else { return };
    let at = place.at.child("blockSize");
    if sizes.match_volume.as_ref().is_some_and(|matched| matched.enabled != Some(false)) {
        report.push(
            invalid(at, "sizes are both written and taken from the volume")
                .instead("keep one of `custom` and `matchVolume`"),
        );
        return;
    }
    let at = at.child("custom");
    let (logical, physical) = (i64::from(custom.logical.unwrap_or(0)), i64::from(custom.physical.unwrap_or(0)));
    if logical > physical {
        report.push(
            invalid(
                at.child("logical"),
                format!("a logical block of {logical} bytes is larger than a physical one of {physical}"),
            )
            .instead("write a logical size that is at most the physical one"),
        );
        return;
    }
    if target(place.disk).is_some_and(|(_, bus)| bus == "sata") && logical != SMALLEST {
        report.push(
            invalid(at.child("logical"), format!("a SATA disk cannot have logical blocks of {logical} bytes"))
                .instead(format!("write {SMALLEST}, or the bus `virtio` or `scsi`")),
        );
        return;
    }
    let granularity = custom.discard_granularity.map(i64::from);
    if let Some(granularity) = granularity
        && logical != 0
        && granularity % logical != 0
    {
        report.push(
            invalid(
                at.child("discardGranularity"),
                format!("{granularity} bytes are not a multiple of the logical block of {logical} bytes"),
            )
            .instead(format!("write a multiple of {logical}")),
        );
        return;
    }
    size(&at.child("logical"), logical, report);
    size(&at.child("physical"), physical, report);
}

fn size(at: &FieldPath, bytes: i64, report: &mut Report) {
    let power_of_two = bytes > 0 && bytes & (bytes - 1) == 0;
    if !(SMALLEST..=LARGEST).contains(&bytes) || !power_of_two {
        report.push(
            invalid(at.clone(), format!("a block cannot have {bytes} bytes"))
                .instead(format!("write a power of two from {SMALLEST} to {LARGEST}")),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, refused};

    const SIZES: &str = "spec.domain.devices.disks[0].blockSize";

    #[test]
    fn powers_of_two_up_to_two_mebibytes_are_block_sizes() {
        accepted(&[
            &[(SIZES, json!({"custom": {"logical": 4096, "physical": 2_097_152}}))],
            &[(SIZES, json!({"custom": {"logical": 512, "physical": 512, "discardGranularity": 1024}}))],
            &[(SIZES, json!({"matchVolume": {}}))],
        ]);
    }

    #[test]
    fn other_block_sizes_are_refused() {
        refused(&[
            (&[(SIZES, json!({"custom": {"logical": 512, "physical": 512}, "matchVolume": {}}))], SIZES, "keep one"),
            (
                &[(SIZES, json!({"custom": {"logical": 4096, "physical": 512}}))],
                "spec.domain.devices.disks[0].blockSize.custom.logical",
                "larger",
            ),
            (
                &[(SIZES, json!({"custom": {"logical": 0, "physical": 512}}))],
                "spec.domain.devices.disks[0].blockSize.custom.logical",
                "0 bytes",
            ),
            (
                &[(SIZES, json!({"custom": {"logical": 512, "physical": 4_194_304}}))],
                "spec.domain.devices.disks[0].blockSize.custom.physical",
                "power of two",
            ),
            (
                &[(SIZES, json!({"custom": {"logical": 512, "physical": 4096, "discardGranularity": 1000}}))],
                "spec.domain.devices.disks[0].blockSize.custom.discardGranularity",
                "multiple of 512",
            ),
            (
                &[
                    ("spec.domain.devices.disks[0].disk.bus", json!("sata")),
                    (SIZES, json!({"custom": {"logical": 4096, "physical": 4096}})),
                ],
                "spec.domain.devices.disks[0].blockSize.custom.logical",
                "SATA",
            ),
        ]);
    }
}
