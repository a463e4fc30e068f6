//! Stand-ins for the kernel: a namespace kept in memory, and a namespace of any kind that fails at a chosen step.
//!
//! The contract tests of this crate run the fake and the real kernel through the same steps, so code tested
//! against the fake may rely on it for what those cover.

mod fake;
mod faulty;
mod state;

use std::io::Write as _;
use std::path::Path;

pub use fake::{FakeHost, FakeNamespace};
pub use faulty::Faulty;

/// Whether this process may make namespaces. If not, reports that on stderr: the test that asks is skipped.
pub fn root_or_skip(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skipped(test, "root");
    }
    root
}

/// Whether all these programs are there. If not, reports that on stderr: the test that asks is skipped.
pub fn programs_or_skip(test: &str, programs: &[&str]) -> bool {
    let directories = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(Path::new);
    let missing = |program: &&&str| !directories.iter().any(|directory| directory.join(program).exists());
    let missing: Vec<&str> = programs.iter().filter(missing).copied().collect();
    if !missing.is_empty() {
        skipped(test, &missing.join(", "));
    }
    missing.is_empty()
}

/// Written past the test harness, which swallows what a passing test prints.
fn skipped(test: &str, needs: &str) {
    let line = format!("skipped: {test} needs {needs}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
