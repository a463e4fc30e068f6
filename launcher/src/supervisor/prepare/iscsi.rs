//! CHAP's user and password of a disk on iSCSI: from the files of its Secret, the password into a memfd that QEMU alone is given.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use garboard_api::v1::Volume;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::VolumeError;
use super::order::Order;
use super::seeds::files;
use super::survey::io;

/// The keys are those of Kubernetes' own iSCSI volumes.
const USER: &str = "node.session.auth.username";
const PASSWORD: &str = "node.session.auth.password";

/// CHAP's user; nothing if no Secret is named.
pub(super) fn user(order: &Order, volume: &Volume) -> Result<Option<String>, VolumeError> {
    let is_named = volume.iscsi.as_ref().is_some_and(|source| source.secret_ref.is_some());
    if is_named { value(order, &volume.name, USER).map(Some) } else { Ok(None) }
}

/// CHAP's password, to be read once from its beginning.
pub(super) fn password(order: &Order, volume: &str) -> Result<OwnedFd, VolumeError> {
    let password = value(order, volume, PASSWORD)?;
    let failed = |source| io("keep the password of the disk", source);
    let memory = memfd_create(c"iscsi-password", MFdFlags::MFD_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let mut file = File::from(memory);
    file.write_all(password.as_bytes()).map_err(failed)?;
    Ok(file.into())
}

/// What CHAP and the command line take of either, bytes.
const LONGEST: usize = 255;

/// A value of the Secret, without the line feed that an editor leaves at its end.
fn value(order: &Order, volume: &str, key: &'static str) -> Result<String, VolumeError> {
    let mut files = files(order, volume)?;
    let text = files.remove(key).and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
    // QEMU would end a text at a NUL.
    let is_fit = |text: &String| (1..=LONGEST).contains(&text.len()) && !text.chars().any(char::is_control);
    text.filter(is_fit).ok_or(VolumeError::Chap { key })
}
