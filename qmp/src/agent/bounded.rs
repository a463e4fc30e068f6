//! Strings and lists of a guest, bounded while they are decoded.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::text::printable;

/// Characters kept of one string. A DNS name has at most 253.
const TEXT_LIMIT: usize = 256;

/// Deepest nesting taken from a guest. The deepest real answer (file systems, their disks, their addresses) has five.
pub(super) const DEPTH_LIMIT: usize = 16;

/// A string of the guest, escaped and bounded: safe to log, to print on a terminal and to store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Default)]
#[serde(transparent)]
pub struct GuestText(String);

impl GuestText {
    /// Escapes and bounds a string.
    pub fn new(text: &str) -> Self {
        Self(printable(text, TEXT_LIMIT))
    }

    /// The safe form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GuestText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for GuestText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = GuestText;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<GuestText, E> {
                Ok(GuestText::new(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// At most `LIMIT` elements of a list of the guest. Elements that cannot be read are left out, so that one strange
/// interface does not hide the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct GuestList<T, const LIMIT: usize> {
    items: Vec<T>,
    #[serde(skip)]
    left_out: usize,
}

impl<T, const LIMIT: usize> GuestList<T, LIMIT> {
    /// The elements.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// The elements, as a vector.
    pub fn into_items(self) -> Vec<T> {
        self.items
    }

    /// How many were left out, because they could not be read or were too many.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl<T, const LIMIT: usize> Default for GuestList<T, LIMIT> {
    fn default() -> Self {
        Self { items: Vec::new(), left_out: 0 }
    }
}

impl<'de, T: DeserializeOwned, const LIMIT: usize> Deserialize<'de> for GuestList<T, LIMIT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const LIMIT: usize>(PhantomData<T>);
        impl<'de, T: DeserializeOwned, const LIMIT: usize> Visitor<'de> for List<T, LIMIT> {
            type Value = GuestList<T, LIMIT>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let mut list = GuestList::default();
                while let Some(element) = elements.next_element::<Box<RawValue>>()? {
                    match serde_json::from_str(element.get()) {
                        Ok(item) if list.items.len() < LIMIT => list.items.push(item),
                        _ => list.left_out += 1,
                    }
                }
                Ok(list)
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// How deep brackets are nested in JSON text; strings are skipped.
pub(super) fn depth_of(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for &byte in json {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_of_a_guest_is_safe_to_print() {
        let text: GuestText = serde_json::from_str(r#""host\u001b[2J\n\u202eevil""#).unwrap();
        assert_eq!(text.as_str(), "host\\u{1b}[2J\\n\\u{202e}evil");
        assert!(GuestText::new(&"x".repeat(100_000)).as_str().len() < 300);
    }

    #[test]
    fn a_long_list_is_cut_and_strange_elements_are_left_out() {
        let list: GuestList<u8, 3> = serde_json::from_str(r#"[1, "two", 3, {"four": []}, 5, 6, 7]"#).unwrap();
        assert_eq!((list.items(), list.left_out()), (&[1, 3, 5][..], 4));
        assert!(serde_json::from_str::<GuestList<u8, 3>>("{}").is_err());
    }

    #[test]
    fn brackets_in_strings_do_not_count_as_depth() {
        assert_eq!(depth_of(br#"{"a": ["[[[\"{{{"]}"#), 2);
        assert_eq!(depth_of(b"]]]]"), 0);
    }

    proptest! {
        #[test]
        fn depth_agrees_with_a_parser(depth in 0usize..100) {
            let json = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            prop_assert_eq!(depth_of(json.as_bytes()), depth);
        }
    }
}
