//! Labels of discs: what a guest finds them by.

/// A label: 1 to 32 printable ASCII characters.
///
/// ISO 9660 proper allows capitals and digits only, but all tools write `cidata` as it is, and guests compare it so. The
/// Joliet tree has room for 16 characters and carries the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeLabel(String);

/// Why a text is no label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{label}` is not a volume label; use 1 to 32 printable ASCII characters")]
pub struct LabelError {
    /// The text, escaped and cut.
    pub label: String,
}

impl VolumeLabel {
    /// Where cloud-init looks for its NoCloud data source.
    pub fn nocloud() -> Self {
        Self("cidata".to_owned())
    }

    /// Where cloud-init and cloudbase-init look for a configuration drive.
    pub fn config_drive() -> Self {
        Self("config-2".to_owned())
    }

    /// Discs of ConfigMaps, Secrets, the downward API and service accounts.
    pub fn files() -> Self {
        Self("cfgdata".to_owned())
    }

    /// Windows' answer files; Windows looks at every disc, whatever its label.
    pub fn sysprep() -> Self {
        Self("unattendCD".to_owned())
    }

    /// Reads a label of a manifest (`volumeLabel`).
    ///
    /// # Errors
    /// [`LabelError`] for an empty or long one, or other characters.
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        if (1..=32).contains(&text.len()) && text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Ok(Self(text.to_owned()));
        }
        Err(LabelError { label: crate::beneath::shown(text) })
    }

    /// The label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_printable() {
        assert_eq!(VolumeLabel::parse("My Label-1").unwrap().as_str(), "My Label-1");
        for text in ["", "ä", "a\nb", &"x".repeat(33)] {
            assert!(VolumeLabel::parse(text).is_err(), "{text:?}");
        }
    }
}
