//! Reading documents of later builds: a value that this build does not support is left out. For fields whose reader can do
//! without; what must not be misread has a version beside it. Pure.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A list or a set without the elements that cannot be read (`deserialize_with`).
///
/// # Errors
/// It is no list.
pub fn each<'de, D, C>(input: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    C: IntoIterator + FromIterator<<C as IntoIterator>::Item>,
    C::Item: DeserializeOwned,
{
    Ok(Vec::<Value>::deserialize(input)?.into_iter().filter_map(read::<C::Item>).collect())
}

/// A map without the entries that cannot be read (`deserialize_with`).
///
/// # Errors
/// It is no map.
pub fn entries<'de, D, C, K, V>(input: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    C: IntoIterator<Item = (K, V)> + FromIterator<(K, V)>,
    K: DeserializeOwned,
    V: DeserializeOwned,
{
    let all = Map::<String, Value>::deserialize(input)?;
    Ok(all.into_iter().filter_map(|(key, value)| Some((read(Value::String(key))?, read(value)?))).collect())
}

/// A value, or its default where it cannot be read (`deserialize_with`).
///
/// # Errors
/// It is no JSON.
pub fn or_default<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(input: D) -> Result<T, D::Error> {
    Ok(read(Value::deserialize(input)?).unwrap_or_default())
}

fn read<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        #[default]
        Known,
        Other,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Document {
        #[serde(deserialize_with = "each")]
        list: Vec<Kind>,
        #[serde(deserialize_with = "each")]
        set: BTreeSet<Kind>,
        #[serde(deserialize_with = "entries")]
        map: BTreeMap<Kind, u32>,
        #[serde(deserialize_with = "or_default")]
        one: Kind,
        #[serde(default, deserialize_with = "or_default")]
        none: Option<Kind>,
    }

    #[test]
    fn what_is_not_known_is_not_there() {
        let text = r#"{"list": ["other", "later", "known", {"more": 7}], "set": ["later", "other"],
            "map": {"later": 1, "other": 2, "known": "x"}, "one": "later", "none": "later"}"#;
        let read: Document = serde_json::from_str(text).unwrap();
        let expected = Document {
            list: vec![Kind::Other, Kind::Known],
            set: [Kind::Other].into(),
            map: [(Kind::Other, 2)].into(),
            one: Kind::Known,
            none: None,
        };
        assert_eq!(read, expected);
        assert!(serde_json::from_str::<Document>(&text.replace(r#"["later", "other"]"#, "7")).is_err());
    }
}
