//! The QEMU that would be executed, and what it can do.
//!
//! ```text
//! locate ─► identity (which build) ─► stored answers? ─ yes ─────────────► QemuReport
//!                                        └ no ─► session ─► probe ─► store ─┘
//! ```
//!
//! QEMU is asked over QMP, started once without a machine; under KVM a second time for the CPU features that only KVM
//! can report. Answers are stored per build, those of KVM per build and boot of the host.

mod identity;
mod locate;
mod probe;
mod schema;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use garboard_machine::facts::QemuFacts;
use garboard_machine::features::Accelerator;

pub use locate::{LocateError, QemuBinary};
pub use session::SessionError;

use crate::boot::BootId;
use crate::cache::ProbeCache;
use crate::root::ReadError;

/// There is no QEMU that could be asked.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// None was found.
    #[error(transparent)]
    Locate(LocateError),
    /// It could not be looked at.
    #[error("the QEMU found could not be read")]
    Identify(#[source] ReadError),
    /// It did not answer.
    #[error("{binary} could not be queried for its capabilities")]
    Ask {
        /// The binary.
        binary: PathBuf,
        /// Why.
        #[source]
        source: SessionError,
    },
}

/// A QEMU and what it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QemuReport {
    /// Facts for the planner.
    pub facts: QemuFacts,
    /// CPU features a guest can have, by accelerator.
    pub cpu_features: BTreeMap<Accelerator, BTreeSet<String>>,
    /// Why KVM could not be asked although `/dev/kvm` opens: QEMU's error.
    pub kvm_refusal: Option<String>,
}

/// Whether to put the questions to KVM too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKvm {
    /// `/dev/kvm` opens.
    Yes,
    /// It would only fail.
    No,
}

/// Whether a stored answer will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Take what is stored.
    Stored,
    /// Ask again, and store that.
    Fresh,
}

/// Asks `binary`, or takes the stored answers about this very build.
///
/// # Errors
/// It cannot be read, started, or does not answer in time.
pub fn examine(
    binary: &QemuBinary,
    cache: &ProbeCache,
    boot: &BootId,
    kvm: ProbeKvm,
    freshness: Freshness,
) -> Result<QemuReport, QemuError> {
    let key = identity::key(binary).map_err(QemuError::Identify)?;
    let kvm_key = format!("{key}; boot {boot}");
    // Both starts at once: half of each is waiting for pages of the binary.
    let (build, kvm_cpu) = std::thread::scope(|scope| {
        let kvm_cpu = scope.spawn(|| match kvm {
            ProbeKvm::Yes => Some(stored_or(cache, "qemu-kvm", &kvm_key, freshness, || probe::ask_kvm_cpu(binary))),
            ProbeKvm::No => None,
        });
        let build = stored_or(cache, "qemu", &key, freshness, || probe::ask_build(binary));
        (build, kvm_cpu.join().ok().flatten())
    });
    let build = build.map_err(|source| QemuError::Ask { binary: binary.path.clone(), source })?;
    let mut cpu_features = BTreeMap::new();
    cpu_features.extend(build.tcg_cpu.map(|features| (Accelerator::Tcg, features)));
    let mut kvm_refusal = None;
    match kvm_cpu {
        Some(Ok(features)) => {
            cpu_features.insert(Accelerator::Kvm, features);
        }
        Some(Err(error)) => kvm_refusal = Some(error.to_string()),
        None => {}
    }
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let facts = QemuFacts {
        binary: text(&binary.path),
        features: build.features,
        firmware_dirs: binary.firmware_dirs.iter().map(text).collect(),
        module_dir: binary.module_dir.as_ref().map(text),
    };
    Ok(QemuReport { facts, cpu_features, kvm_refusal })
}

/// The CPU models of a QEMU, and which features of each a guest would not get under that accelerator on this processor.
/// Queried each time: it takes one start, and a caller asks once.
///
/// # Errors
/// It cannot be started, or does not answer in time.
pub fn models(binary: &QemuBinary, accelerator: Accelerator) -> Result<BTreeMap<String, BTreeSet<String>>, QemuError> {
    let failed = |source| QemuError::Ask { binary: binary.path.clone(), source };
    probe::ask_models(binary, accelerator).map_err(failed)
}

fn stored_or<T: serde::Serialize + serde::de::DeserializeOwned>(
    cache: &ProbeCache,
    kind: &str,
    key: &str,
    freshness: Freshness,
    ask: impl FnOnce() -> Result<T, SessionError>,
) -> Result<T, SessionError> {
    if freshness == Freshness::Stored
        && let Some(stored) = cache.get(kind, key)
    {
        return Ok(stored);
    }
    let answer = ask()?;
    cache.put(kind, key, &answer);
    Ok(answer)
}

#[cfg(test)]
mod tests;
