//! Texts that may be left out.

/// An optional text that is not empty: to KubeVirt an empty text and none are the same.
pub fn non_empty(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::non_empty;

    #[test]
    fn an_empty_text_is_none() {
        assert_eq!(non_empty(&Some("virtio".to_owned())), Some("virtio"));
        assert_eq!(non_empty(&Some(String::new())), None);
        assert_eq!(non_empty(&None), None);
    }
}
