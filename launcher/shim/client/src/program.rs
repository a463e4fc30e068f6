//! Our other programs: each is beside the one that asks, or where a package puts it.

use std::path::{Path, PathBuf};

use crate::ShimError;

/// The shim: [`crate::calls`] starts it.
pub const SHIM: &str = "garboard-shim";
/// The supervisor.
pub const SUPERVISOR: &str = "garboard-launcher";
/// PID 1.
pub const INIT: &str = "garboard-init";

/// The directory of a package's internal programs.
const LIBEXEC: &str = "/usr/libexec/garboard";

/// Finds one of our programs.
///
/// # Errors
/// [`ShimError`] if it is at neither place.
pub fn find(name: &'static str) -> Result<PathBuf, ShimError> {
    let own = std::env::current_exe().map_err(ShimError::file("find", Path::new("/proc/self/exe")))?;
    let beside = own.parent().map(|directory| directory.join(name));
    let candidates = [beside, Some(Path::new(LIBEXEC).join(name))];
    candidates.into_iter().flatten().find(|path| path.exists()).ok_or(ShimError::MissingProgram { name, own })
}
