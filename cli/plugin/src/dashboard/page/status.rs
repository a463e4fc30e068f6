//! What a server of the page answers where it refuses or fails itself: a `Status`, as API servers answer, so that the page shows both
//! alike. Pure.

use serde_json::json;

/// The body of an answer with that code of HTTP.
#[must_use]
pub fn body(code: u16, message: &str) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1",
        "message": format!("dashboard: {message}"), "reason": reason(code), "code": code,
    })
    .to_string()
}

/// The reason as API servers name it.
const fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        504 => "Timeout",
        _ => "ServiceUnavailable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_status() {
        let status: serde_json::Value = serde_json::from_str(&body(401, "the request has no token")).unwrap();
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "message": "dashboard: the request has no token", "reason": "Unauthorized",
            "code": 401,
        });
        assert_eq!(status, expected);
        assert_eq!((reason(502), reason(503), reason(504)), ("ServiceUnavailable", "ServiceUnavailable", "Timeout"));
    }
}
