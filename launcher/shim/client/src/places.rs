//! Where things are on a bare host. One place for every path; root and users each have their own.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_protocol::paths::Layout;
use nix::unistd::Uid;

use crate::ShimError;

/// Name of the directory of all records.
pub const RECORDS: &str = "records";

/// The directories Garboard uses on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Running machines; gone after a reboot of the host.
    pub runtime: PathBuf,
    /// Records of ended runs, kept machines, PVC stand-ins, EFI variables: what must survive.
    pub state: PathBuf,
    /// Images, probed features: what can be made again.
    pub cache: PathBuf,
}

impl Places {
    /// The directories of the calling user; `state` overrides where things survive.
    ///
    /// # Errors
    /// [`ShimError`]: an ordinary user has no home, or another user owns the directory in `/tmp`.
    pub fn of_caller(state: Option<&Path>) -> Result<Self, ShimError> {
        let mut places = if nix::unistd::geteuid().is_root() { Self::of_root() } else { Self::of_user()? };
        if let Some(state) = state {
            places.state = std::path::absolute(state).map_err(ShimError::file("use --state-dir", state))?;
        }
        Ok(places)
    }

    fn of_root() -> Self {
        Self {
            runtime: from_environment("GARBOARD_RUNTIME_DIR").unwrap_or_else(|| "/run/garboard".into()),
            state: from_environment("GARBOARD_STATE_DIR").unwrap_or_else(|| "/var/lib/garboard".into()),
            cache: from_environment("GARBOARD_CACHE_DIR").unwrap_or_else(|| "/var/cache/garboard".into()),
        }
    }

    fn of_user() -> Result<Self, ShimError> {
        let home = from_environment("HOME").ok_or(ShimError::NoHome)?;
        let uid = nix::unistd::geteuid();
        let runtime = from_environment("XDG_RUNTIME_DIR").map(|directory| directory.join("garboard"));
        let runtime = match from_environment("GARBOARD_RUNTIME_DIR").or(runtime) {
            Some(runtime) => runtime,
            None => ours_or_missing(format!("/tmp/garboard-{uid}").into(), uid)?,
        };
        Ok(Self {
            runtime,
            state: from_environment("GARBOARD_STATE_DIR")
                .or_else(|| from_environment("XDG_STATE_HOME").map(|directory| directory.join("garboard")))
                .unwrap_or_else(|| home.join(".local/state/garboard")),
            cache: from_environment("GARBOARD_CACHE_DIR")
                .or_else(|| from_environment("XDG_CACHE_HOME").map(|directory| directory.join("garboard")))
                .unwrap_or_else(|| home.join(".cache/garboard")),
        })
    }

    /// The directory of one machine while it runs.
    pub fn machine(&self, id: &MachineId) -> PathBuf {
        self.runtime.join(&id.namespace).join(&id.name)
    }

    /// The directories of its supervisor and its PID 1.
    pub fn layout(&self, id: &MachineId) -> Layout {
        Layout::new(self.machine(id))
    }

    /// Where the records of a machine's runs are, one directory each, named by time.
    pub fn records(&self, id: &MachineId) -> PathBuf {
        self.state.join(RECORDS).join(&id.namespace).join(&id.name)
    }

    /// Where the machine of a VirtualMachine is kept from run to run.
    pub fn kept_machine(&self, id: &MachineId) -> PathBuf {
        self.state.join("machines").join(&id.namespace).join(&id.name).join(garboard_protocol::paths::STORED)
    }

    /// The stand-in of a claim.
    pub fn claim(&self, namespace: &str, name: &str) -> PathBuf {
        self.state.join("claims").join(namespace).join(name)
    }

    /// Where a machine's overlays and empty disks are while it runs.
    pub fn scratch(&self, id: &MachineId) -> PathBuf {
        self.state.join("scratch").join(&id.namespace).join(&id.name)
    }

    /// Where a machine's UEFI variables are kept.
    pub fn firmware_vars(&self, id: &MachineId) -> PathBuf {
        self.state.join("firmware").join(&id.namespace).join(format!("{}_VARS.fd", id.name))
    }

    /// Every machine that has a directory, sorted.
    pub fn machines(&self) -> Vec<MachineId> {
        let mut found = Vec::new();
        for namespace in directories(&self.runtime) {
            for name in directories(&self.runtime.join(&namespace)) {
                found.push(MachineId { namespace: namespace.clone(), name });
            }
        }
        found.sort();
        found
    }

    /// Every machine that has records, sorted.
    pub fn recorded_machines(&self) -> Vec<MachineId> {
        Self { runtime: self.state.join("records"), ..self.clone() }.machines()
    }
}

/// A directory in `/tmp`, where every user may make one of any name. Its owner could exchange what is in it.
fn ours_or_missing(path: PathBuf, user: Uid) -> Result<PathBuf, ShimError> {
    let found = match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path),
        other => other.map_err(ShimError::file("look at", &path))?,
    };
    if found.is_dir() && found.uid() == user.as_raw() && found.mode() & 0o022 == 0 {
        return Ok(path);
    }
    Err(ShimError::NotOurs { path })
}

fn directories(parent: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        // What is being removed; no name of Kubernetes begins with a dot.
        .filter(|name| !name.starts_with('.'))
        .collect()
}

fn from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Namespace and name of a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MachineId {
    /// Its namespace, `default` unless the manifest has another.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for MachineId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl std::str::FromStr for MachineId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').unwrap_or((DEFAULT_NAMESPACE, text));
        for part in [namespace, name] {
            let allowed = |character: char| {
                character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character)
            };
            if part.is_empty() || part.starts_with('.') || !part.chars().all(allowed) {
                return Err(format!(
                    "`{text}` is not NAME or NAMESPACE/NAME of lower-case letters, digits, `-` and `.`"
                ));
            }
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let room = tempfile::tempdir().unwrap();
        let (own, link) = (room.path().join("own"), room.path().join("link"));
        let user = nix::unistd::geteuid();
        assert!(ours_or_missing(own.clone(), user).is_ok(), "missing");
        std::fs::create_dir(&own).unwrap();
        set_permissions(&own, Permissions::from_mode(0o711)).unwrap();
        assert!(ours_or_missing(own.clone(), user).is_ok());
        let stranger = Uid::from_raw(user.as_raw() + 4711);
        let error = ours_or_missing(own.clone(), stranger).unwrap_err().to_string();
        assert!(error.contains("XDG_RUNTIME_DIR"), "{error}");
        symlink(&own, &link).unwrap();
        assert!(ours_or_missing(link, user).is_err(), "a link");
        set_permissions(&own, Permissions::from_mode(0o777)).unwrap();
        assert!(ours_or_missing(own, user).is_err(), "writable by all");
    }

    #[test]
    fn a_name_is_in_the_default_namespace_and_never_a_path() {
        let id: MachineId = "hello".parse().unwrap();
        assert_eq!(id.to_string(), "default/hello");
        assert_eq!("prod/db-1".parse::<MachineId>().unwrap().namespace, "prod");
        for bad in ["", "/", "../x", "a/../b", "a/b/c", "Upper", ".hidden"] {
            assert!(bad.parse::<MachineId>().is_err(), "{bad}");
        }
    }
}
