//! Files of ConfigMaps, Secrets and the like, laid out as a kubelet lays out a projected volume.

use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Writes files below a new directory that only the machine's user may read.
pub(crate) fn write(directory: &Path, files: &BTreeMap<String, String>, owner: Option<u32>) -> anyhow::Result<()> {
    make_directory(directory, owner)?;
    for (name, content) in files {
        let relative = safe_relative(name)?;
        let bytes = STANDARD.decode(content).with_context(|| format!("decode {name}"))?;
        let path = directory.join(&relative);
        if let Some(parent) = relative.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            make_directory(&directory.join(parent), owner)?;
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(&path)
            .with_context(|| format!("create {}", path.display()))?;
        std::io::Write::write_all(&mut file, &bytes).with_context(|| format!("write {}", path.display()))?;
        give(&path, owner)?;
    }
    Ok(())
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

fn make_directory(path: &Path, owner: Option<u32>) -> anyhow::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => other.with_context(|| format!("create {}", path.display()))?,
    }
    give(path, owner)
}

/// Gives a path to the machine's user, if the keeper is root.
pub(crate) fn give(path: &Path, owner: Option<u32>) -> anyhow::Result<()> {
    match owner {
        Some(owner) => std::os::unix::fs::chown(path, Some(owner), Some(owner))
            .with_context(|| format!("give {} to user {owner}", path.display())),
        None => Ok(()),
    }
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
