//! What a person sees while something takes its time, on standard error.

use std::io::Write;

/// One line.
pub fn step(text: &str) {
    // Standard error may be closed: then the line is dropped.
    let _ = writeln!(std::io::stderr(), "==> {text}");
}
