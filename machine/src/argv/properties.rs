//! JSON objects.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::Options;

/// A JSON object with its keys in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(Vec<(String, Property)>);

/// A value in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// `null`: for `backing`, «there is none, also where the image names one».
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(u64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Property>),
    /// An object.
    Object(Properties),
}

impl Properties {
    /// `{}`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a member.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Property>) -> Self {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    /// Appends a member if there is a value.
    #[must_use]
    pub fn set_some<T: Into<Property>>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// The member called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Property> {
        self.0.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// The member called `name` if it is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Property::Text(text)) => Some(text),
            Some(
                Property::Null | Property::Bool(_) | Property::Number(_) | Property::List(_) | Property::Object(_),
            )
            | None => None,
        }
    }

    /// The same as `key=value`, for options without JSON: the member `head` leads without its key, nested members are
    /// `outer.inner`, list items `outer.0`.
    #[must_use]
    pub fn to_options(&self, head: &str) -> Options {
        let mut pairs = Vec::new();
        for (name, value) in self.0.iter().filter(|(name, _)| name != head) {
            value.flatten_into(name, &mut pairs);
        }
        let options = self.text(head).map_or_else(Options::new, Options::led_by);
        pairs.into_iter().fold(options, |options, (key, value)| options.set(key, value))
    }
}

impl Property {
    fn flatten_into(&self, name: &str, pairs: &mut Vec<(String, String)>) {
        match self {
            Self::Null => pairs.push((name.to_owned(), String::new())),
            Self::Bool(on) => pairs.push((name.to_owned(), if *on { "on" } else { "off" }.to_owned())),
            Self::Number(number) => pairs.push((name.to_owned(), number.to_string())),
            Self::Text(text) => pairs.push((name.to_owned(), text.clone())),
            Self::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.flatten_into(&format!("{name}.{index}"), pairs);
                }
            }
            Self::Object(members) => {
                for (member, value) in &members.0 {
                    value.flatten_into(&format!("{name}.{member}"), pairs);
                }
            }
        }
    }
}

impl fmt::Display for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Serialize for Property {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(on) => serializer.serialize_bool(*on),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Object(members) => members.serialize(serializer),
        }
    }
}

impl From<bool> for Property {
    fn from(on: bool) -> Self {
        Self::Bool(on)
    }
}

impl From<u32> for Property {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for Property {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Property {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Property {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Property {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<Properties> for Property {
    fn from(members: Properties) -> Self {
        Self::Object(members)
    }
}

impl<T: Into<Property>> From<Vec<T>> for Property {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}
