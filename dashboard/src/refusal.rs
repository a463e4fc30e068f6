//! What is answered where this server itself refuses or fails. Pure.

use garboard_kubectl::page::origin::OtherPage;
use garboard_kubectl::page::routes::UnknownPath;
use garboard_kubectl::page::status;

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is none of the page's, or larger than those are.
    #[error("the request cannot be read: {0}")]
    Malformed(&'static str),
    /// It names another host: a name that was made to lead here, or one that the administrator has not named.
    #[error(
        "the host {0:?} is not this server: an administrator can add it with the option --host, in the chart dashboard.hosts"
    )]
    Host(String),
    /// Another page caused it.
    #[error("the request comes from another page ({0})")]
    OtherPage(String),
    /// It has no token.
    #[error("the request has no token: sign in")]
    Token,
    /// Nothing that the page uses is there.
    #[error("{0} is not one of the paths that the dashboard uses")]
    Path(String),
    /// Other diagnoses take too long.
    #[error("other machines are being diagnosed: try again")]
    Diagnosing,
    /// The API server takes too long.
    #[error("the API server did not answer in {0} s")]
    Late(u64),
    /// The API server does not answer.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    /// It answers with what is followed nowhere.
    #[error("the API server answered with {0}, which is not passed on")]
    Answer(u16),
    /// A machine could not be diagnosed.
    #[error("{0}")]
    Diagnosis(String),
    /// The API server does not take the token.
    #[error("the API server does not accept the token: {0}")]
    Unauthorized(String),
}

impl Refusal {
    /// Code of HTTP.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Token | Self::Unauthorized(_) => 401,
            Self::Host(_) | Self::OtherPage(_) => 403,
            Self::Path(_) => 404,
            Self::Unreachable(_) | Self::Answer(_) | Self::Diagnosis(_) => 502,
            Self::Diagnosing => 503,
            Self::Late(_) => 504,
        }
    }

    /// The body.
    #[must_use]
    pub fn status(&self) -> String {
        status::body(self.code(), &self.to_string())
    }
}

impl From<UnknownPath> for Refusal {
    fn from(unknown: UnknownPath) -> Self {
        Self::Path(unknown.0)
    }
}

impl From<OtherPage> for Refusal {
    fn from(other: OtherPage) -> Self {
        Self::OtherPage(other.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_is_a_status() {
        let status: serde_json::Value = serde_json::from_str(&Refusal::Token.status()).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(401)));
        assert_eq!(status["message"], "dashboard: the request has no token: sign in");
    }
}
