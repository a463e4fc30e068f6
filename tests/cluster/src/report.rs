//! What a person sees while something takes its time, on standard error.

use std::io::Write;

/// One line.
pub fn step(text: &str) {
    // Nobody listens: then nobody misses it.
    let _ = writeln!(std::io::stderr(), "==> {text}");
}
