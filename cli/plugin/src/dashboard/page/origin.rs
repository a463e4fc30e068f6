//! Whether a request is the page's own, by what a browser says of the page that asks. Pure.
//!
//! Each server reads the headers of its own connections; what they mean is here.

/// A header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// It is not there.
    Absent,
    /// It is there once.
    Once(&'a str),
    /// It is there several times, or is no text: it is open which one counts, so that none does.
    Unclear,
}

impl<'a> Named<'a> {
    /// From its value, if it is there once, and whether it is there at all.
    #[must_use]
    pub const fn of(value: Option<&'a str>, is_there: bool) -> Self {
        match value {
            Some(value) => Self::Once(value),
            None if is_there => Self::Unclear,
            None => Self::Absent,
        }
    }

    const fn shown(self) -> &'a str {
        match self {
            Self::Absent => "none",
            Self::Once(value) => value,
            Self::Unclear => "several",
        }
    }
}

/// Which page asks, as a browser says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking<'a> {
    /// Whether it only reads: it is neither a change nor a stream.
    pub is_read: bool,
    /// `Origin`.
    pub origin: Named<'a>,
    /// `Sec-Fetch-Site`.
    pub site: Named<'a>,
}

/// Another page caused it; the header that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPage(pub String);

/// That no other page caused a request; `own` is the origin of the page itself. A read may come without `Origin`, a change and a stream
/// may not.
///
/// # Errors
/// [`OtherPage`].
pub fn own_page(asking: Asking<'_>, own: &str) -> Result<(), OtherPage> {
    let is_ours = match asking.origin {
        Named::Once(origin) => origin == own,
        Named::Absent => asking.is_read,
        Named::Unclear => false,
    };
    if !is_ours {
        return Err(OtherPage(format!("Origin: {}", asking.origin.shown())));
    }
    match asking.site {
        Named::Absent | Named::Once("same-origin") => Ok(()),
        Named::Once(_) | Named::Unclear => Err(OtherPage(format!("Sec-Fetch-Site: {}", asking.site.shown()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_page_causes_is_refused() {
        use Named::{Absent, Once, Unclear};
        let ours = Once("https://localhost:8443");
        let table = [
            (true, Absent, Absent, None),
            (true, ours, Once("same-origin"), None),
            (false, ours, Absent, None),
            (false, Absent, Absent, Some("Origin: none")),
            (false, Once("null"), Absent, Some("Origin: null")),
            (false, Once("https://localhost:8444"), Absent, Some("Origin: https://localhost:8444")),
            (false, Once("http://localhost:8443"), Absent, Some("Origin: http://localhost:8443")),
            (true, Once("https://evil.example"), Absent, Some("Origin: https://evil.example")),
            (true, Unclear, Absent, Some("Origin: several")),
            // Another port of the same computer is the same site, and another origin.
            (true, Absent, Once("same-site"), Some("Sec-Fetch-Site: same-site")),
            (true, ours, Unclear, Some("Sec-Fetch-Site: several")),
        ];
        for (is_read, origin, site, expected) in table {
            let outcome = own_page(Asking { is_read, origin, site }, "https://localhost:8443");
            let shown = outcome.err().map(|other| other.0);
            assert_eq!(shown.as_deref(), expected, "{is_read} {origin:?} {site:?}");
        }
    }
}
