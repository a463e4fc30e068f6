//! Answer files for Windows: a disc that Windows Setup or sysprep looks through by itself.

use std::collections::BTreeMap;

use super::secrets::files_disc;
use crate::iso::{DiscTree, TreeError};

/// The names Windows looks for; it ignores case.
const ANSWERS: [&str; 2] = ["autounattend.xml", "unattend.xml"];

/// Why no disc could be made.
#[derive(Debug, thiserror::Error)]
pub enum SysprepError {
    /// Windows would find nothing.
    #[error(
        "the sysprep volume has neither autounattend.xml nor unattend.xml; add one of them to the ConfigMap or Secret"
    )]
    NoAnswers,
    /// Too large for a disc.
    #[error("the sysprep volume does not fit on its disc")]
    Tree(#[source] TreeError),
}

/// The disc of a sysprep volume.
///
/// # Errors
/// [`SysprepError`]: no answer file, or too large.
pub fn sysprep(files: &BTreeMap<String, Vec<u8>>) -> Result<DiscTree, SysprepError> {
    let answers = |name: &String| ANSWERS.iter().any(|answer| name.eq_ignore_ascii_case(answer));
    if !files.keys().any(answers) {
        return Err(SysprepError::NoAnswers);
    }
    files_disc(files).map_err(SysprepError::Tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_file_must_be_there_in_any_case() {
        let files = |name: &str| BTreeMap::from([(name.to_owned(), b"<unattend/>".to_vec())]);
        assert!(sysprep(&files("AutoUnattend.xml")).is_ok());
        assert!(sysprep(&files("unattend.xml")).is_ok());
        assert!(matches!(sysprep(&files("answers.xml")), Err(SysprepError::NoAnswers)));
    }
}
