//! `key=value,…`

use std::fmt;

/// An ordered list of `key=value`, optionally led by a value whose key QEMU implies (`-chardev socket,…`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    head: Option<String>,
    pairs: Vec<(String, String)>,
}

impl Options {
    /// No head, no pair.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Led by `head`, which must have no `=`: it is one of QEMU's own names.
    #[must_use]
    pub fn led_by(head: impl Into<String>) -> Self {
        Self { head: Some(head.into()), pairs: Vec::new() }
    }

    /// Appends `key=value`. The key is one of QEMU's own names: no `=`, no comma.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<OptionValue>) -> Self {
        self.pairs.push((key.into(), value.into().0));
        self
    }

    /// Appends `key=value` if there is a value.
    #[must_use]
    pub fn set_some<T: Into<OptionValue>>(self, key: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.set(key, value),
            None => self,
        }
    }

    /// The first value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The leading value.
    #[must_use]
    pub fn head(&self) -> Option<&str> {
        self.head.as_deref()
    }

    /// Reads what [`fmt::Display`] writes, by QEMU's rules: an undoubled comma ends a value, the first `=` ends a
    /// key, a first item without `=` is the head.
    ///
    /// # Errors
    /// [`ParseOptionsError`] if a later item has no `=`.
    pub fn parse(text: &str) -> Result<Self, ParseOptionsError> {
        let mut options = Self::default();
        let mut rest = text;
        let mut first = true;
        while first || !rest.is_empty() {
            let (item, after) = split_item(rest);
            match item.split_once('=') {
                Some((key, value)) => options.pairs.push((key.to_owned(), value.to_owned())),
                None if first => options.head = (!item.is_empty()).then_some(item),
                None => return Err(ParseOptionsError { item }),
            }
            rest = after;
            first = false;
        }
        Ok(options)
    }
}

/// Takes everything up to an undoubled comma, undoubles it, and returns what follows that comma.
fn split_item(text: &str) -> (String, &str) {
    let mut item = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if character != ',' {
            item.push(character);
        } else if characters.next_if(|&(_, next)| next == ',').is_some() {
            item.push(',');
        } else {
            return (item, &text[at + 1..]);
        }
    }
    (item, "")
}

/// An item of `key=value,…` without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{item}` is no key=value")]
pub struct ParseOptionsError {
    /// The item.
    pub item: String,
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(head) = &self.head {
            f.write_str(&double_commas(head))?;
            separator = ",";
        }
        for (key, value) in &self.pairs {
            write!(f, "{separator}{key}={}", double_commas(value))?;
            separator = ",";
        }
        Ok(())
    }
}

fn double_commas(value: &str) -> String {
    value.replace(',', ",,")
}

/// A value of `key=value` as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionValue(String);

impl From<&str> for OptionValue {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<&String> for OptionValue {
    fn from(text: &String) -> Self {
        Self(text.clone())
    }
}

impl From<String> for OptionValue {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<bool> for OptionValue {
    fn from(on: bool) -> Self {
        Self(if on { "on" } else { "off" }.to_owned())
    }
}

impl From<u32> for OptionValue {
    fn from(number: u32) -> Self {
        Self(number.to_string())
    }
}

impl From<u64> for OptionValue {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl From<i32> for OptionValue {
    fn from(number: i32) -> Self {
        Self(number.to_string())
    }
}
