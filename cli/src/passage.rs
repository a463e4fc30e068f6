//! Whether the user that a machine's processes run as can reach a path. Looked at before anything is started: afterwards
//! the only symptom would be a supervisor that dies again and again.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::exit::{FAILED, exit_error};

/// Refuses a path that user and group `identity` cannot reach, with the directory that is in the way. What does not
/// exist yet will be made with the right permissions.
pub(crate) fn check(path: &Path, what: &str, identity: u32) -> anyhow::Result<()> {
    let Some(closed) = first_closed(path, identity) else { return Ok(()) };
    let text = format!(
        "{what} {} cannot be reached by user {identity}, as which the machine runs: {} is closed to it; \
         `chmod o+x {}`, or use another directory",
        path.display(),
        closed.display(),
        closed.display()
    );
    Err(exit_error(FAILED, text))
}

fn first_closed(path: &Path, identity: u32) -> Option<PathBuf> {
    // Through symbolic links, as the kernel would go.
    let existing = path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok())?;
    let mut directories: Vec<&Path> = existing.ancestors().filter(|directory| directory.is_dir()).collect();
    directories.reverse();
    let closed = |directory: &&Path| directory.metadata().is_ok_and(|metadata| !may_pass(&metadata, identity));
    directories.into_iter().find(closed).map(Path::to_owned)
}

fn may_pass(metadata: &Metadata, identity: u32) -> bool {
    let bit = if metadata.uid() == identity {
        0o100
    } else if metadata.gid() == identity {
        0o010
    } else {
        0o001
    };
    metadata.mode() & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_closed_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (closed, inner) = (directory.path().join("closed"), directory.path().join("closed/inner"));
        create_dir(&closed).unwrap();
        create_dir(&inner).unwrap();
        for open in [directory.path(), &inner] {
            set_permissions(open, Permissions::from_mode(0o755)).unwrap();
        }
        let stranger = nix::unistd::geteuid().as_raw() + 4711;
        set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        let text = check(&inner.join("not/yet"), "the directory", stranger).unwrap_err().to_string();
        assert!(text.contains(&format!("{} is closed", closed.canonicalize().unwrap().display())), "{text}");
        set_permissions(&closed, Permissions::from_mode(0o711)).unwrap();
        assert!(check(&inner, "the directory", stranger).is_ok());
    }
}
