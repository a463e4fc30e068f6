//! The headers that every answer has. The page's own scripts run, no others; nobody frames it; nothing is kept. Pure.

/// Names and values. `connects`: where the page may open websockets, a source of a Content Security Policy such as `wss://page.example`.
///
/// `style-src` has to let inline styles through: xterm.js and noVNC set them. No text of a guest is ever HTML in the page. No form is
/// sent by the browser itself: what is typed as a token never gets into an address.
#[must_use]
pub fn common(connects: &str) -> [(&'static str, String); 7] {
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; \
         connect-src 'self' {connects}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    [
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff".to_owned()),
        ("X-Frame-Options", "DENY".to_owned()),
        ("Referrer-Policy", "no-referrer".to_owned()),
        ("Cross-Origin-Resource-Policy", "same-origin".to_owned()),
        ("Cross-Origin-Opener-Policy", "same-origin".to_owned()),
        ("Cache-Control", "no-store".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_connects_to_its_own_server_alone() {
        let [(_, policy), ..] = common("wss://page.example");
        assert!(policy.contains("connect-src 'self' wss://page.example;"), "{policy}");
        assert!(policy.contains("default-src 'none'") && policy.contains("form-action 'none'"), "{policy}");
    }
}
