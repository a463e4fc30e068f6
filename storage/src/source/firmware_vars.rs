//! The variables of a machine's firmware, kept from run to run in a volume of their own.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::SourceError;
use crate::beneath::BeneathPath;
use crate::open::{Dir, Direct, DiskAccess, Expected, OpenError, Opening, Sharing};

/// Name of the file in the volume.
const FILE_NAME: &str = "efi-vars.fd";

/// Opens the variables, which are made from the firmware's template the first time.
///
/// A volume belongs to a tenant: links are refused, and what is there is never replaced.
///
/// # Errors
/// [`SourceError::Open`]: no volume, not permitted, a link. [`SourceError::OtherFirmware`] where the file is of another size
/// than the template, because it is of another firmware.
pub fn open_or_copy(dir: &Dir, template: &Path) -> Result<OwnedFd, SourceError> {
    let name = BeneathPath::parse(FILE_NAME).map_err(|_| SourceError::NotAFile { path: FILE_NAME.into() })?;
    let shown = || dir.path().join(FILE_NAME);
    let failed = |attempt| move |source| OpenError::Io { path: dir.path().join(FILE_NAME), attempt, source };
    let mut fresh = File::open(template).map_err(failed("make"))?;
    if dir.look_at(&name)?.is_none() {
        // It gets its name when it is whole: a start that is cut short leaves nothing.
        let mut made = dir.create_nameless()?;
        io::copy(&mut fresh, &mut made).and_then(|_| made.sync_all()).map_err(failed("write"))?;
        dir.publish(&made, &name)?;
    }
    let opening = Opening {
        access: DiskAccess::ReadWrite,
        direct: Direct::Off,
        expected: Expected::File,
        sharing: Sharing::Shared,
    };
    let vars = dir.open_disk(&name, opening)?;
    let wanted_bytes = fresh.metadata().map_err(failed("measure"))?.len();
    if vars.size_bytes != wanted_bytes {
        return Err(SourceError::OtherFirmware { path: shown(), bytes: vars.size_bytes, wanted_bytes });
    }
    Ok(vars.fd)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn room() -> (tempfile::TempDir, Dir, std::path::PathBuf) {
        let room = tempfile::tempdir().unwrap();
        fs::create_dir(room.path().join("volume")).unwrap();
        let template = room.path().join("template");
        fs::write(&template, "fresh").unwrap();
        let dir = Dir::open(&room.path().join("volume")).unwrap();
        (room, dir, template)
    }

    #[test]
    fn what_the_firmware_wrote_is_there_again() {
        let (room, dir, template) = room();
        let mut vars = File::from(open_or_copy(&dir, &template).unwrap());
        vars.write_all(b"wrote").unwrap();
        drop(vars);
        let again = open_or_copy(&dir, &template).unwrap();
        assert_eq!(io::read_to_string(File::from(again)).unwrap(), "wrote");
        assert_eq!(fs::read_dir(room.path().join("volume")).unwrap().count(), 1);
    }

    #[test]
    fn those_of_another_firmware_are_refused_and_stay() {
        let (room, dir, template) = room();
        drop(open_or_copy(&dir, &template).unwrap());
        fs::write(&template, "another size").unwrap();
        let refused = open_or_copy(&dir, &template).unwrap_err();
        assert!(matches!(refused, SourceError::OtherFirmware { bytes: 5, wanted_bytes: 12, .. }), "{refused}");
        assert_eq!(fs::read_to_string(room.path().join("volume").join(FILE_NAME)).unwrap(), "fresh");
    }

    #[test]
    fn a_link_is_refused() {
        let (room, dir, template) = room();
        symlink("/etc/hostname", room.path().join("volume").join(FILE_NAME)).unwrap();
        let refused = open_or_copy(&dir, &template).unwrap_err();
        assert!(matches!(refused, SourceError::Open(OpenError::SymbolicLink { .. })), "{refused}");
    }
}
