//! Files of ConfigMaps, Secrets and the like, laid out as a kubelet lays out a projected volume.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Writes files below a new directory that the machine's group may read, and only we change.
pub(crate) fn write(directory: &Path, files: &BTreeMap<String, String>, group: Option<u32>) -> anyhow::Result<()> {
    make_directory(directory, group)?;
    for (name, content) in files {
        let relative = safe_relative(name)?;
        let bytes = STANDARD.decode(content).with_context(|| format!("decode {name}"))?;
        let path = directory.join(&relative);
        if let Some(parent) = relative.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            make_directory(&directory.join(parent), group)?;
        }
        write_file(&path, &bytes, group)?;
    }
    Ok(())
}

/// Writes a new file that the machine's group may read.
pub(crate) fn write_file(path: &Path, bytes: &[u8], group: Option<u32>) -> anyhow::Result<()> {
    let open = OpenOptions::new().write(true).create_new(true).mode(0o400).open(path);
    let mut file = open.with_context(|| format!("create {}", path.display()))?;
    let written = file.write_all(bytes).and_then(|()| share(&file, group, 0o440));
    written.with_context(|| format!("write {}", path.display()))
}

/// Makes a directory that the machine's group may look into.
pub(crate) fn make_directory(path: &Path, group: Option<u32>) -> anyhow::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => other.with_context(|| format!("create {}", path.display()))?,
    }
    open_directory(path)
        .and_then(|directory| share(&directory, group, 0o750))
        .with_context(|| format!("share {}", path.display()))
}

/// Makes a directory that is the machine's own, in one of ours.
pub(crate) fn make_own(path: &Path, owner: Option<u32>) -> std::io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => other?,
    }
    let directory = open_directory(path)?;
    directory.set_permissions(Permissions::from_mode(0o700))?;
    owner.map_or(Ok(()), |owner| fchown(&directory, Some(owner), Some(owner)))
}

/// By descriptor: another user who may write to a directory could exchange what is at a name in it.
fn share(file: &File, group: Option<u32>, mode: u32) -> std::io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    fchown(file, None, Some(group))?;
    file.set_permissions(Permissions::from_mode(mode))
}

fn open_directory(path: &Path) -> std::io::Result<File> {
    let flags = nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// A key of a ConfigMap is one name, a downward API path may have several; neither leads out.
fn safe_relative(name: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(name);
    let harmless = path.components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !harmless {
        anyhow::bail!("`{name}` cannot be a file name of a volume");
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_land_where_they_belong_and_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("v");
        let files = BTreeMap::from([("a".to_owned(), STANDARD.encode("x")), ("b/c".to_owned(), STANDARD.encode("y"))]);
        write(&volume, &files, None).unwrap();
        assert_eq!(std::fs::read_to_string(volume.join("b/c")).unwrap(), "y");
        for bad in ["../x", "/etc/x", "a/../../x", ""] {
            let files = BTreeMap::from([(bad.to_owned(), String::new())]);
            assert!(write(&directory.path().join("w"), &files, None).is_err(), "{bad}");
        }
    }
}
