//! Elements of XML, and how they are written.

use std::fmt::Display;

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

/// An element: a name of ours, attributes in order, and either a text or other elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: Option<String>,
    children: Vec<Element>,
}

impl Element {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), text: None, children: Vec::new() }
    }

    /// An element with a text in it.
    pub(crate) fn text(name: &'static str, text: impl Display) -> Self {
        Self { text: Some(printable(&text.to_string())), ..Self::new(name) }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, printable(&value.to_string())));
        self
    }

    pub(crate) fn with_some(self, name: &'static str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(crate) fn child(mut self, child: Element) -> Self {
        self.children.push(child);
        self
    }

    pub(crate) fn children(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    /// Whether it has neither attributes nor anything in it.
    pub(crate) fn is_bare(&self) -> bool {
        self.attributes.is_empty() && self.text.is_none() && self.children.is_empty()
    }

    /// As a document.
    pub(crate) fn render(&self) -> String {
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        // A vector takes everything.
        let _ = self.write_to(&mut writer);
        let mut text = String::from_utf8_lossy(&writer.into_inner()).into_owned();
        text.push('\n');
        text
    }

    fn write_to(&self, writer: &mut Writer<Vec<u8>>) -> std::io::Result<()> {
        let mut start = BytesStart::new(self.name);
        for (name, value) in &self.attributes {
            start.push_attribute((*name, value.as_str()));
        }
        if self.text.is_none() && self.children.is_empty() {
            return writer.write_event(Event::Empty(start));
        }
        writer.write_event(Event::Start(start))?;
        if let Some(text) = &self.text {
            writer.write_event(Event::Text(BytesText::new(text)))?;
        }
        for child in &self.children {
            child.write_to(writer)?;
        }
        writer.write_event(Event::End(BytesEnd::new(self.name)))
    }
}

/// What XML 1.0 cannot contain in any form is replaced (<https://www.w3.org/TR/xml/#charsets>), and so are line feeds and tabs, which
/// readers of an attribute take for spaces.
fn printable(text: &str) -> String {
    let is_fit = |character: char| !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|character| if is_fit(character) { character } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_takes_apart_is_escaped_and_what_it_cannot_contain_is_replaced() {
        let element = Element::new("a").with("b", "<'\"&>").child(Element::text("c", "1 < 2 & \u{1}"));
        let text = element.render();
        assert!(!text.contains("<'"), "{text}");
        assert!(text.contains("<c>1 &lt; 2 &amp; \u{fffd}</c>"), "{text}");
        assert!(text.starts_with("<a b=\"") && text.ends_with("</a>\n"), "{text}");
    }

    #[test]
    fn elements_are_indented_and_texts_are_not() {
        let inner = Element::new("b").child(Element::text("c", 1)).child(Element::new("d"));
        let element = Element::new("a").child(inner);
        assert_eq!(element.render(), "<a>\n  <b>\n    <c>1</c>\n    <d/>\n  </b>\n</a>\n");
    }
}
