//! What a program logs, and how that is changed while it runs.
//!
//! KubeVirt's settings have a number for each part, its verbosity. Here the number decides on our own code; what other crates
//! log is logged from `INFO` on, whatever the number is: their lines may have what clients send.
//!
//! | number | our own code is logged from |
//! | --- | --- |
//! | 0 to 2 | `INFO`; 2 is what KubeVirt's parts have by default |
//! | 3 to 5 | `DEBUG` |
//! | 6 and more | `TRACE` |
//!
//! Where [`VARIABLE`] is set, it alone decides, and no number changes anything. Not for: the form of lines, nor where they go.
//!
//! No `EnvFilter`: its regular expressions would make up a good part of a supervisor, which must stay small.
//!
//! With the feature `otlp` a program may send its spans to a collector, too (`otlp`).

#![forbid(unsafe_code)]

#[cfg(feature = "otlp")]
pub mod otlp;

use std::sync::Arc;

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::reload;

/// The variable of the environment that says what is logged, `TARGET=LEVEL,…,LEVEL`. One that cannot be parsed counts as none.
pub const VARIABLE: &str = "GARBOARD_LOG";

/// The verbosity of a part for which no number is set; KubeVirt's default.
pub const USUAL: u32 = 2;

/// How the targets of all our crates begin.
const OWN: &str = "garboard";

/// From which level on our own code is logged.
#[must_use]
pub const fn level(verbosity: u32) -> LevelFilter {
    match verbosity {
        0..=2 => LevelFilter::INFO,
        3..=5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    }
}

/// What is logged with a number. A module may get another level beside it: the longest target that fits a line counts.
#[must_use]
pub fn targets(verbosity: u32) -> Targets {
    Targets::new().with_default(LevelFilter::INFO).with_target(OWN, level(verbosity))
}

/// What became of levels that were to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They count from now on.
    Set,
    /// They counted already.
    AlreadySo,
    /// Others count, and stay: those of [`VARIABLE`].
    Fixed,
}

type Set = dyn Fn(Targets) -> Outcome + Send + Sync;

/// The levels of this program, which can be set while it runs.
#[derive(Clone)]
pub struct Levels(Arc<Set>);

impl Levels {
    /// Levels that stay as they are.
    #[must_use]
    pub fn fixed() -> Self {
        Self(Arc::new(|_: Targets| Outcome::Fixed))
    }

    /// Has this logged from now on, by every thread.
    #[must_use]
    pub fn set(&self, wanted: Targets) -> Outcome {
        (self.0)(wanted)
    }
}

/// The filter of a program's log, and what sets it. `asked` is the value of [`VARIABLE`], which is read by the program itself.
#[must_use]
pub fn filter<S: Subscriber>(asked: Option<&str>) -> (reload::Layer<Targets, S>, Levels) {
    let asked = asked.filter(|text| !text.is_empty()).and_then(|text| text.parse::<Targets>().ok());
    let is_fixed = asked.is_some();
    let (layer, handle) = reload::Layer::new(asked.unwrap_or_else(|| targets(USUAL)));
    let levels =
        if is_fixed { Levels::fixed() } else { Levels(Arc::new(move |wanted: Targets| reloaded(&handle, wanted))) };
    (layer, levels)
}

fn reloaded<S>(handle: &reload::Handle<Targets, S>, wanted: Targets) -> Outcome {
    if handle.with_current(|current| *current == wanted).unwrap_or(false) {
        return Outcome::AlreadySo;
    }
    // Fails only where nothing is logged any more.
    handle.reload(wanted).map_or(Outcome::Fixed, |()| Outcome::Set)
}

#[cfg(test)]
mod tests;
