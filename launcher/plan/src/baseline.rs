//! The features of a CPU that is no model of QEMU's: `host` and `max` are what host and QEMU can do, which another host and
//! another QEMU do otherwise. Those of the first start are kept: what came later is switched off.

use std::collections::BTreeSet;

use garboard_machine::cpu::{Cpu, Switch, canonical_feature, is_feature};

use super::cpu::token_error;
use super::draft::Draft;
use super::error::PlanError;

/// The most names of features in a note.
const MOST_NAMES: usize = 8;

/// Whether QEMU makes such a CPU of whatever host and build can do.
pub(super) fn is_open(cpu: &Cpu) -> bool {
    matches!(cpu.model.as_str(), "host" | "max")
}

/// The features of earlier starts.
pub(super) struct Baseline {
    /// By QEMU's names, with spaces between them.
    pub(super) features: String,
    /// Those that a manifest of before has named and that of now does not: of these it is decided anew.
    pub(super) released: BTreeSet<String>,
}

/// Takes from `cpu` the features that the guest's first CPU had not, and returns those it had: those of `kept`, or what there is now
/// if nothing was kept. What the CPU names itself is left alone; it comes from the manifest. Without knowledge of what this
/// host offers nothing is switched.
pub(super) fn pin(
    draft: &mut Draft<'_>,
    cpu: &mut Cpu,
    kept: Option<Baseline>,
    field: &str,
) -> Result<Option<String>, PlanError> {
    let Some(offered) = offered(draft) else { return Ok(kept.map(|kept| kept.features)) };
    let named: BTreeSet<String> = cpu.properties.iter().map(|(name, _)| canonical_feature(name.as_str())).collect();
    let Some(kept) = kept else { return Ok(Some(seen(cpu, offered))) };
    let had = kept.features.split_whitespace().filter(|name| !kept.released.contains(*name)).map(str::to_owned);
    let had: BTreeSet<String> = had.chain(kept.released.intersection(&offered).cloned()).collect();
    let is_open = |name: &&String| !named.contains(*name);
    for feature in offered.difference(&had).filter(is_open) {
        cpu.switch(feature, Switch::Off).map_err(token_error(field))?;
    }
    let lacking: Vec<&str> = had.difference(&offered).filter(is_open).map(String::as_str).collect();
    if !lacking.is_empty() {
        let (count, names) = (lacking.len(), lacking[..lacking.len().min(MOST_NAMES)].join(", "));
        let more = if count > MOST_NAMES { " and others" } else { "" };
        let text = format!("the guest's CPU had {count} features that are not available here: {names}{more}");
        draft.note(Some(field), text);
    }
    Ok(Some(had.into_iter().collect::<Vec<_>>().join(" ")))
}

/// Features that a guest can have here, by their canonical names; nothing if QEMU was not asked.
fn offered(draft: &Draft<'_>) -> Option<BTreeSet<String>> {
    let offered = draft.input.facts.cpu.features.get(&draft.accelerator).filter(|offered| !offered.is_empty())?;
    Some(offered.iter().filter(|name| is_feature(name)).map(|name| canonical_feature(name)).collect())
}

/// The features that the guest gets of this CPU, as one text.
fn seen(cpu: &Cpu, mut offered: BTreeSet<String>) -> String {
    for (name, value) in &cpu.properties {
        let name = canonical_feature(name.as_str());
        if value.as_str() == Switch::Off.as_str() {
            offered.remove(&name);
        } else if value.as_str() == Switch::On.as_str() && is_feature(&name) && !name.starts_with("hv-") {
            offered.insert(name);
        }
    }
    offered.into_iter().collect::<Vec<_>>().join(" ")
}
