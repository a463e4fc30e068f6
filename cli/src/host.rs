//! The facts of this host.

use std::path::Path;

use anyhow::Context;
use garboard_host::{GatherOptions, ProbeCache, gather};
use garboard_machine::facts::HostFacts;
use garboard_shim_client::places::Places;

use crate::exit::{FAILED, complaint};

/// Gathers them; answers that cannot change are kept in the cache directory.
pub(crate) fn facts(qemu: Option<&Path>) -> anyhow::Result<HostFacts> {
    let places = Places::of_caller(None)?;
    let mut options = GatherOptions::new(ProbeCache::at(&places.cache), std::env::var_os("PATH"));
    options.qemu = qemu.map(Path::to_owned);
    gather(&options)
        .context("this host cannot run a machine; `garboard doctor` names the remedy")
        .map_err(|error| complaint(FAILED, format!("{error:#}")))
}
