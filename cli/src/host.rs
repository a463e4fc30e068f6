//! The facts of this host.

use std::path::Path;

use anyhow::Context;
use garboard_common::private;
use garboard_host::{GatherOptions, ProbeCache, gather};
use garboard_machine::facts::HostFacts;
use garboard_shim_client::places::Places;

use crate::exit::{FAILED, exit_error};

/// Gathers them; answers that cannot change are kept in the cache directory.
pub(crate) fn facts(qemu: Option<&Path>) -> anyhow::Result<HostFacts> {
    let places = Places::of_caller(None)?;
    gather(&gather_options(&places, qemu))
        .context("this host cannot run a machine; `garboard doctor` names the remedy")
        .map_err(|error| exit_error(FAILED, format!("{error:#}")))
}

/// Where every command looks for QEMU and keeps what it found out.
pub(crate) fn gather_options(places: &Places, qemu: Option<&Path>) -> GatherOptions {
    // Images are beneath it too, and users of machines must reach them, so the umask of the first command does not count. Where the directory cannot
    // be made, nothing is kept.
    if let Err(error) = private::make_passage(&places.cache) {
        tracing::debug!(cache = %places.cache.display(), %error, "cache directory not created");
    }
    let mut options = GatherOptions::new(ProbeCache::at(places.cache.join("probe")), std::env::var_os("PATH"));
    options.qemu = qemu.map(Path::to_owned);
    options
}
