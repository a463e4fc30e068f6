//! Texts that may be left out.

/// What an optional text says, if it says anything: to KubeVirt an empty text and none are the same.
pub fn said(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn an_empty_text_says_nothing() {
        assert_eq!(said(&Some("virtio".to_owned())), Some("virtio"));
        assert_eq!(said(&Some(String::new())), None);
        assert_eq!(said(&None), None);
    }
}
