//! Running a target on stable Rust.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Target;
use crate::mutate::{Dice, mutated};

/// An input that takes longer than this is a finding: another process chooses it, and the supervisor waits for it.
pub const INPUT_LIMIT: Duration = Duration::from_secs(2);

/// How often an input may take too long before it is a finding.
const TRIES: u32 = 3;

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub enum Budget {
    /// After this much time.
    Time(Duration),
    /// After this many inputs.
    Inputs(u64),
}

/// What came of a run.
#[derive(Debug)]
pub enum Outcome {
    /// This many inputs, no finding.
    Clean(u64),
    /// An input that panicked or took too long, and where it was saved.
    Finding {
        /// The file.
        saved: PathBuf,
        /// What went wrong.
        what: String,
    },
}

/// The seeds of a target.
pub fn seeds(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<_> = std::fs::read_dir(directory("seeds", target))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    paths.sort();
    paths.iter().map(std::fs::read).collect()
}

fn directory(kind: &str, target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target.name)
}

/// Runs the seeds themselves and then mutations of them. The same `seed` gives the same inputs.
pub fn run(target: &Target, budget: Budget, seed: u64) -> io::Result<Outcome> {
    let seeds = seeds(target)?;
    let began = Instant::now();
    let mut dice = Dice::new(seed);
    let mut count = 0;
    loop {
        let index = usize::try_from(count).unwrap_or(usize::MAX);
        let input = seeds.get(index).cloned().unwrap_or_else(|| mutated(&mut dice, target, &seeds));
        if let Err(what) = feed(target, &input) {
            return Ok(Outcome::Finding { saved: save(target, &input)?, what });
        }
        count += 1;
        let is_over = match budget {
            Budget::Time(limit) => began.elapsed() >= limit,
            Budget::Inputs(limit) => count >= limit,
        };
        if is_over && index >= seeds.len() {
            return Ok(Outcome::Clean(count));
        }
    }
}

/// Feeds one input; the error is what went wrong. One that took too long is fed again: an input that is slow by itself is slow
/// each time, and one that had to wait for a processor is not.
pub fn feed(target: &Target, input: &[u8]) -> Result<(), String> {
    let mut fastest = feed_once(target, input)?;
    for _ in 1..TRIES {
        if fastest <= INPUT_LIMIT {
            break;
        }
        fastest = fastest.min(feed_once(target, input)?);
    }
    if fastest > INPUT_LIMIT { Err(format!("took {fastest:?}")) } else { Ok(()) }
}

/// Feeds one input and returns how long it took; the error is its panic.
fn feed_once(target: &Target, input: &[u8]) -> Result<Duration, String> {
    let began = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    if let Err(panic) = result {
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        return Err(format!("panic: {}", message.unwrap_or_default()));
    }
    Ok(began.elapsed())
}

fn save(target: &Target, input: &[u8]) -> io::Result<PathBuf> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let directory = directory("artifacts", target);
    std::fs::create_dir_all(&directory)?;
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = directory.join(format!("crash-{:016x}", hasher.finish()));
    std::fs::write(&path, input)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    #[test]
    fn every_target_survives_its_seeds_and_some_mutations() {
        for target in TARGETS {
            assert!(!seeds(target).unwrap().is_empty(), "{} has no seeds", target.name);
            match run(target, Budget::Inputs(3_000), 1).unwrap() {
                Outcome::Clean(count) => assert!(count >= 3_000),
                Outcome::Finding { saved, what } => panic!("{}: {what}; saved as {}", target.name, saved.display()),
            }
        }
    }

    #[test]
    fn a_panic_and_a_slow_input_are_findings() {
        let panics = Target { name: "none", run: |data| assert!(data.is_empty(), "not empty"), tokens: &[] };
        assert_eq!(feed(&panics, b""), Ok(()));
        assert_eq!(feed(&panics, b"x"), Err("panic: not empty".to_owned()));
        let crawls = Target {
            name: "none",
            run: |_| {
                let began = Instant::now();
                while began.elapsed() <= INPUT_LIMIT {}
            },
            tokens: &[],
        };
        assert!(feed(&crawls, b"").unwrap_err().starts_with("took"));
    }

    #[test]
    fn mutations_repeat_with_their_seed() {
        let target = TARGETS[0];
        let seeds = [b"{\"return\": {}}".to_vec()];
        let make = |seed| {
            let mut dice = Dice::new(seed);
            (0..50).map(|_| mutated(&mut dice, &target, &seeds)).collect::<Vec<_>>()
        };
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
    }

    #[test]
    fn every_target_has_its_libfuzzer_binary() {
        let manifest = include_str!("../Cargo.toml");
        for target in TARGETS {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{}.rs\"", target.name)), "{}", target.name);
        }
    }
}
