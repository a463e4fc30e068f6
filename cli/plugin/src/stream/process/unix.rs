//! A proxy at a unix socket, whose directory only its user may enter.

use std::fs::Permissions;
#[cfg(unix)]
use std::os::unix::fs::{MetadataExt, PermissionsExt};
#[cfg(unix)]
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
#[cfg(unix)]
use rustix::process::geteuid;

use super::{Bounds, Place, Proxy, SERVER_PATH, spawn};
use crate::kubectl::Kubectl;

/// A shell that ends kubectl, with all processes that it has started, when its standard input ends: a plugin that is killed leaves no
/// proxy. Its arguments are a directory, which it removes, and the call of kubectl. It leaves kubectl's output to kubectl, so
/// that the end of this is the end of kubectl's.
const KEEPER: &str = r#"directory=$1
shift
"$@" &
exec >&- 2>&-
read -r line
trap '' TERM
kill -s TERM 0
wait
rm -f "$directory/api" "$directory/open.html"
rmdir "$directory"
"#;
/// The name of the socket.
const SOCKET: &str = "api";
/// A file that a command may put beside it; the keeper removes it.
pub(crate) const BESIDE: &str = "open.html";
/// What the shortest `sun_path` of a system takes, with its last zero.
const LONGEST_PATH: usize = 100;

/// Starts one.
pub(super) fn start(kubectl: &Kubectl, bounds: &Bounds) -> anyhow::Result<Proxy> {
    let directory = private_directory()?;
    let socket = directory.path().join(SOCKET);
    let at = format!("--unix-socket={}", socket.display());
    let [paths, methods] = bounds.options();
    let proxy = kubectl.command(&["proxy", &at, &paths, &methods, SERVER_PATH]);
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER, "sh"]).arg(directory.path()).arg(proxy.get_program()).args(proxy.get_args());
    // Ctrl-C at this terminal is the guest's, or the plugin's; and the keeper ends a whole group.
    keeper.process_group(0);
    let child = spawn(keeper, kubectl)?;
    // From now on the keeper removes it.
    let _ = directory.keep();
    Proxy::listening(child, |_| Some(Place::Socket(socket)))
}

/// A new directory that nobody else enters (mode 0700), with a path that a socket may have.
fn private_directory() -> anyhow::Result<tempfile::TempDir> {
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let user = geteuid().as_raw();
    let of_session = of_session.filter(|path| path.is_absolute() && is_of(path, user));
    let parents = of_session.into_iter().chain([std::env::temp_dir(), PathBuf::from("/tmp")]);
    let own = Permissions::from_mode(0o700);
    let mut made = None;
    for parent in parents.filter(|parent| fits(parent)) {
        made = Some(tempfile::Builder::new().prefix("garboard-").permissions(own.clone()).tempdir_in(&parent));
        if matches!(made, Some(Ok(_))) {
            break;
        }
    }
    made.context("no directory for a socket has a path that is short enough; set TMPDIR to one of less than 70 bytes")?
        .context("a directory for a socket cannot be made; set TMPDIR to one in which you may write")
}

/// Whether a directory is this user's. After `su`, or with `sudo -E`, the variable names that of another one.
fn is_of(directory: &Path, user: u32) -> bool {
    std::fs::metadata(directory).is_ok_and(|found| found.uid() == user)
}

fn fits(parent: &Path) -> bool {
    parent.join("garboard-123456").join(SOCKET).as_os_str().len() <= LONGEST_PATH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_another_user_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let user = geteuid().as_raw();
        assert!(is_of(directory.path(), user) && !is_of(directory.path(), user + 1));
        assert!(!is_of(&directory.path().join("none"), user));
    }

    #[test]
    fn the_keeper_removes_what_is_in_the_directory() {
        for name in [SOCKET, BESIDE] {
            assert!(KEEPER.contains(&format!("\"$directory/{name}\"")), "{name}");
        }
    }
}
