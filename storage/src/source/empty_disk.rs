//! `emptyDisk`: a fresh disk of some capacity that lives as long as the VMI, reboots of the guest included.

use super::{Disk, Placement, SourceError, new_qcow2};
use crate::open::Direct;

/// Makes the disk: qcow2, so that it takes only the space the guest uses. The capacity is rounded up to whole sectors.
///
/// # Errors
/// [`SourceError`]: no space, or an impossible capacity.
pub fn create(placement: Placement<'_>, capacity_bytes: u64, direct: Direct) -> Result<Disk, SourceError> {
    new_qcow2(placement, capacity_bytes.next_multiple_of(512), direct)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::BeneathPath;
    use crate::open::Dir;
    use crate::qcow2::{CreateError, Format, inspect};
    use crate::source::Warning;

    #[test]
    fn a_new_disk_is_empty_qcow2_of_whole_sectors() {
        let room = tempfile::tempdir().unwrap();
        let dir = Dir::open(room.path()).unwrap();
        let name = BeneathPath::parse("scratch.qcow2").unwrap();
        for placement in [Placement::Nameless { dir: &dir }, Placement::Named { dir: &dir, name: &name }] {
            // Twice: the second start finds the first one's file and begins afresh.
            for _ in 0..2 {
                let disk = create(placement, 1_000_000_000, Direct::Off).unwrap();
                assert_eq!((disk.facts.format, disk.facts.virtual_bytes), (Format::Qcow2, 1_000_000_000));
                let facts = inspect(&disk.opened, disk.opened.size_bytes).unwrap();
                assert_eq!(facts, disk.facts);
            }
        }
        let names: Vec<_> = std::fs::read_dir(room.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "a nameless disk leaves nothing behind");
    }

    #[test]
    fn more_than_there_is_space_for_is_warned_of() {
        let room = tempfile::tempdir().unwrap();
        let dir = Dir::open(room.path()).unwrap();
        let disk = create(Placement::Nameless { dir: &dir }, 60 << 40, Direct::Off).unwrap();
        assert!(matches!(disk.warnings.as_slice(), [Warning::Overcommitted { .. }]), "{:?}", disk.warnings);
    }

    #[test]
    fn impossible_capacities_are_refused() {
        let room = tempfile::tempdir().unwrap();
        let dir = Dir::open(room.path()).unwrap();
        for bytes in [0, 65 << 40] {
            let refused = create(Placement::Nameless { dir: &dir }, bytes, Direct::Off).unwrap_err();
            assert!(matches!(refused, SourceError::Create { source: CreateError::Size { .. }, .. }), "{refused}");
        }
    }
}
