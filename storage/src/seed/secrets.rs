//! Reads what Kubernetes mounts (Secrets, ConfigMaps, the downward API, service accounts), and picks from it.

use std::collections::BTreeMap;

use crate::beneath::BeneathPath;
use crate::iso::{DiscTree, MOST_BYTES, MOST_ENTRIES, Readers};
use crate::open::{Dir, Links, OpenError};

/// Keys under which a Secret may keep user data; the first found counts.
const USER_DATA_KEYS: [&str; 2] = ["userdata", "userData"];
/// The same for network data.
const NETWORK_DATA_KEYS: [&str; 2] = ["networkdata", "networkData"];
/// Directories inside directories that are followed: what fits on a disc.
const MOST_LEVELS: usize = 7;

/// The user data of a `secretRef`, if the Secret has any.
pub fn user_data_key(secret: &BTreeMap<String, Vec<u8>>) -> Option<&[u8]> {
    USER_DATA_KEYS.iter().find_map(|key| secret.get(*key)).map(Vec::as_slice)
}

/// The network data of a `networkDataSecretRef`, if the Secret has any.
pub fn network_data_key(secret: &BTreeMap<String, Vec<u8>>) -> Option<&[u8]> {
    NETWORK_DATA_KEYS.iter().find_map(|key| secret.get(*key)).map(Vec::as_slice)
}

/// The SSH keys of an `accessCredentials` Secret: one from each entry, in the order of the names. Several keys in one
/// entry, one a line, stay together as cloud-init takes them.
pub fn ssh_public_keys(secret: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let keys = secret.values().map(|value| String::from_utf8_lossy(value).trim_end().to_owned());
    keys.filter(|key| !key.is_empty()).collect()
}

/// Reads a directory that the kubelet filled, links inside it followed, names beginning with `..` (its own machinery)
/// left out. At most what fits on a disc.
///
/// # Errors
/// [`OpenError`]: unreadable, too many or too large.
pub fn read_folder(dir: &Dir) -> Result<BTreeMap<String, Vec<u8>>, OpenError> {
    let mut files = BTreeMap::new();
    let mut pending = vec![String::new()];
    let mut left_bytes = MOST_BYTES as u64;
    let mut left_entries = MOST_ENTRIES;
    while let Some(folder) = pending.pop() {
        let names = match folder.as_str() {
            "" => dir.names(left_entries)?,
            inside => dir.open_folder(&path(dir, inside)?, Links::Inside)?.names(left_entries)?,
        };
        left_entries -= names.len();
        for name in names {
            let Some(name) = name.to_str().filter(|name| !name.starts_with("..")) else { continue };
            let inside = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            let place = path(dir, &inside)?;
            match dir.read_file(&place, Links::Inside, left_bytes) {
                Ok(content) => {
                    left_bytes -= content.len() as u64;
                    files.insert(inside, content);
                }
                Err(OpenError::WrongKind { found: "directory", .. }) if place.names().count() < MOST_LEVELS => {
                    pending.push(inside);
                }
                Err(other) => return Err(other),
            }
        }
    }
    Ok(files)
}

fn path(dir: &Dir, name: &str) -> Result<BeneathPath, OpenError> {
    BeneathPath::parse(name).map_err(|error| OpenError::Io {
        path: dir.path().to_path_buf(),
        attempt: "use a name in",
        source: std::io::Error::other(error),
    })
}

/// A disc of the files of a ConfigMap, Secret, downward API volume or service account.
///
/// # Errors
/// [`crate::iso::TreeError`].
pub(crate) fn files_disc(files: &BTreeMap<String, Vec<u8>>) -> Result<DiscTree, crate::iso::TreeError> {
    let mut tree = DiscTree::new(Readers::All);
    for (name, content) in files {
        tree.add(name, content.clone())?;
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn secret(entries: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn either_spelling_of_a_key_is_found() {
        assert_eq!(user_data_key(&secret(&[("userdata", "a"), ("userData", "b")])), Some(&b"a"[..]));
        assert_eq!(user_data_key(&secret(&[("userData", "b")])), Some(&b"b"[..]));
        assert_eq!(network_data_key(&secret(&[("networkData", "n")])), Some(&b"n"[..]));
        assert_eq!(user_data_key(&secret(&[("other", "x")])), None);
    }

    #[test]
    fn empty_keys_are_left_out() {
        let keys = ssh_public_keys(&secret(&[("b", "ssh-rsa B\n"), ("a", "ssh-rsa A"), ("c", "\n")]));
        assert_eq!(keys, ["ssh-rsa A", "ssh-rsa B"]);
    }

    #[test]
    fn a_mount_of_the_kubelet_is_read_without_its_machinery() {
        let room = tempfile::tempdir().unwrap();
        let data = room.path().join("..2026_01_01");
        fs::create_dir_all(data.join("nested")).unwrap();
        fs::write(data.join("key"), "value").unwrap();
        fs::write(data.join("nested/deep"), "down").unwrap();
        symlink("..2026_01_01", room.path().join("..data")).unwrap();
        symlink("..data/key", room.path().join("key")).unwrap();
        symlink("..data/nested", room.path().join("nested")).unwrap();
        let files = read_folder(&Dir::open(room.path()).unwrap()).unwrap();
        assert_eq!(files, secret(&[("key", "value"), ("nested/deep", "down")]));
    }

    #[test]
    fn a_link_out_of_the_mount_is_refused() {
        let room = tempfile::tempdir().unwrap();
        symlink("/etc/passwd", room.path().join("key")).unwrap();
        let refused = read_folder(&Dir::open(room.path()).unwrap()).unwrap_err();
        assert!(matches!(refused, OpenError::Escapes { .. }), "{refused}");
    }

    #[test]
    fn a_link_to_its_own_directory_ends() {
        let room = tempfile::tempdir().unwrap();
        symlink(".", room.path().join("loop")).unwrap();
        fs::write(room.path().join("key"), "v").unwrap();
        assert!(matches!(read_folder(&Dir::open(room.path()).unwrap()), Err(OpenError::WrongKind { .. })));
    }
}
