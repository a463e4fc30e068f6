//! Taking a machine's directory away at once, and removing what interrupted removals have left.
//!
//! ```text
//!   NAMESPACE/NAME ── rename ──► NAMESPACE/.NAME-PID ── removed by the process PID; if that was killed, by the next shim
//! ```
//!
//! No name of Kubernetes begins with a dot, so no command takes it for a machine.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use garboard_shim_client::lock;
use garboard_shim_client::processes::{MachineProcess, find};
use nix::unistd::Pid;

/// Takes a directory away at once: no command may find half of it, its lock gone and its launch request still there.
/// The answer is where it is now.
pub(crate) fn set_aside(machine: &Path) -> PathBuf {
    let name = machine.file_name().unwrap_or_default().to_string_lossy();
    let aside = machine.with_file_name(format!(".{name}-{}", std::process::id()));
    if std::fs::rename(machine, &aside).is_ok() { aside } else { machine.to_owned() }
}

/// Removes what is aside in all namespaces and whose process is gone; logs it.
pub(crate) fn collect(runtime: &Path) {
    for namespace in directories(runtime) {
        for directory in directories(&namespace) {
            if is_left(&directory) {
                remove(&directory);
                // It stays while a machine is in it.
                let _ = std::fs::remove_dir(&namespace);
            }
        }
    }
}

fn remove(directory: &Path) {
    match std::fs::remove_dir_all(directory) {
        Ok(()) => tracing::warn!(directory = %directory.display(), "what an interrupted removal had left was removed"),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            tracing::error!(directory = %directory.display(), %error, "what an interrupted removal has left cannot be removed")
        }
    }
}

/// Whether a directory is one that was set aside, and no process removes it any more.
fn is_left(directory: &Path) -> bool {
    let Some((name, process)) = directory.file_name().and_then(parts) else { return false };
    // Of another PID namespace only the lock is seen, as long as it is there.
    !lock::is_held(directory) && !removes(&directory.with_file_name(name), process)
}

/// Whether a process is a shim of this machine. Another that has its number by now is none; nor are we, who begin only now.
fn removes(machine: &Path, process: Pid) -> bool {
    let mut shims = [MachineProcess::Shim, MachineProcess::Deleter].into_iter().flat_map(|part| find(machine, part));
    process != Pid::this() && shims.any(|shim| shim.pid() == process)
}

/// The machine and the process that [`set_aside`] has made a name of.
fn parts(name: &OsStr) -> Option<(&str, Pid)> {
    let (machine, process) = name.to_str()?.strip_prefix('.')?.rsplit_once('-')?;
    let process = process.parse::<i32>().ok().filter(|number| *number > 0)?;
    (!machine.is_empty()).then_some((machine, Pid::from_raw(process)))
}

fn directories(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that no process has: the kernel gives none above 2^22.
    const NO_PROCESS: i32 = i32::MAX;

    #[test]
    fn a_name_is_taken_apart_and_others_are_not_touched() {
        let read =
            |name: &str| parts(OsStr::new(name)).map(|(machine, process)| (machine.to_owned(), process.as_raw()));
        assert_eq!(read(".web-1-4711"), Some(("web-1".to_owned(), 4711)));
        for other in ["web-1-4711", ".web", ".web-", ".web-x", ".-4711", ".web-0"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn what_ended_processes_left_is_removed_and_machines_stay() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("default/vm");
        let (left, own) = (room.path().join(format!("default/.vm-{NO_PROCESS}")), room.path().join("default/.vm-keep"));
        for directory in [&machine, &left.join("supervisor"), &own] {
            std::fs::create_dir_all(directory).unwrap();
        }
        collect(room.path());
        assert!(machine.exists() && own.exists() && !left.exists());
    }

    #[test]
    fn what_its_process_removes_is_left_to_it() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("default/vm");
        std::fs::create_dir_all(&machine).unwrap();
        let held = lock::hold(&machine).unwrap();
        let aside = set_aside(&machine);
        assert!(!machine.exists() && aside.exists());
        // The lock goes with the directory, so its holder is seen from another PID namespace, too.
        collect(room.path());
        assert!(aside.exists(), "it was removed while its process lives");
        drop(held);
    }
}
