//! Where things are on a bare host. One place for every path; root and users each have their own.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_protocol::paths::Layout;
use nix::unistd::Uid;

use crate::exit::{FAILED, complaint};

/// Name of the directory of all records.
pub(crate) const RECORDS: &str = "records";

/// The directories Garboard uses on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Running machines; gone after a reboot of the host.
    pub(crate) runtime: PathBuf,
    /// Records of ended runs, kept machines, PVC stand-ins, EFI variables: what must survive.
    pub(crate) state: PathBuf,
    /// Images, probed features: what can be made again.
    pub(crate) cache: PathBuf,
}

impl Places {
    /// The directories of the calling user; `state` overrides where things survive.
    pub(crate) fn of_caller(state: Option<&Path>) -> anyhow::Result<Self> {
        let mut places = if nix::unistd::geteuid().is_root() { Self::of_root() } else { Self::of_user()? };
        if let Some(state) = state {
            places.state = std::path::absolute(state).with_context(|| format!("--state-dir {}", state.display()))?;
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

    fn of_user() -> anyhow::Result<Self> {
        let home = from_environment("HOME").context("HOME is not set, so there is no place for state and images")?;
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
    pub(crate) fn machine(&self, id: &MachineId) -> PathBuf {
        self.runtime.join(&id.namespace).join(&id.name)
    }

    /// The directories of its supervisor and its PID 1.
    pub(crate) fn layout(&self, id: &MachineId) -> Layout {
        Layout::new(self.machine(id))
    }

    /// Where the records of a machine's runs are, one directory each, named by time.
    pub(crate) fn records(&self, id: &MachineId) -> PathBuf {
        self.state.join(RECORDS).join(&id.namespace).join(&id.name)
    }

    /// Where the machine of a VirtualMachine is kept from run to run.
    pub(crate) fn kept_machine(&self, id: &MachineId) -> PathBuf {
        self.state.join("machines").join(&id.namespace).join(&id.name).join(garboard_protocol::paths::STORED)
    }

    /// The stand-in of a claim.
    pub(crate) fn claim(&self, namespace: &str, name: &str) -> PathBuf {
        self.state.join("claims").join(namespace).join(name)
    }

    /// Where a machine's overlays and empty disks are while it runs.
    pub(crate) fn scratch(&self, id: &MachineId) -> PathBuf {
        self.state.join("scratch").join(&id.namespace).join(&id.name)
    }

    /// Where a machine's UEFI variables are kept.
    pub(crate) fn firmware_vars(&self, id: &MachineId) -> PathBuf {
        self.state.join("firmware").join(&id.namespace).join(format!("{}_VARS.fd", id.name))
    }

    /// Every machine that has a directory, sorted.
    pub(crate) fn machines(&self) -> Vec<MachineId> {
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
    pub(crate) fn recorded_machines(&self) -> Vec<MachineId> {
        Self { runtime: self.state.join("records"), ..self.clone() }.machines()
    }
}

/// A directory in `/tmp`, where everybody may make one of any name. Whoever owns it could exchange what is in it.
fn ours_or_missing(path: PathBuf, user: Uid) -> anyhow::Result<PathBuf> {
    let found = match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path),
        other => other.with_context(|| format!("look at {}", path.display()))?,
    };
    if found.is_dir() && found.uid() == user.as_raw() && found.mode() & 0o022 == 0 {
        return Ok(path);
    }
    let text = format!(
        "{} is not a directory that only this user writes to; set XDG_RUNTIME_DIR or GARBOARD_RUNTIME_DIR",
        path.display()
    );
    Err(complaint(FAILED, text))
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
pub(crate) struct MachineId {
    /// Its namespace, `default` unless the manifest says otherwise.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
}

impl std::fmt::Display for MachineId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl std::str::FromStr for MachineId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
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
    fn a_directory_that_somebody_else_made_is_refused() {
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
        assert!(ours_or_missing(own, user).is_err(), "everybody writes");
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
