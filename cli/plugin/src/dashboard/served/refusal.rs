//! What is answered where the server itself refuses or fails. Pure.

use crate::dashboard::page::origin::OtherPage;
use crate::dashboard::page::routes::UnknownPath;
use crate::dashboard::page::status;

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// It is no request of HTTP/1.1, or larger than any of the page's.
    #[error("the request cannot be read: {0}")]
    Malformed(&'static str),
    /// It names another host: a name that was made to lead here.
    #[error("the host {0:?} is not this server: use the address that was printed")]
    Host(String),
    /// Another page caused it.
    #[error("the request comes from another page ({0})")]
    OtherPage(String),
    /// It has no token, or not this session's.
    #[error("the request has no valid token: open a new address, which Enter prints in the terminal")]
    Token,
    /// The key was used or never printed.
    #[error("this address was used before, or is not of this server: Enter in the terminal prints a new one")]
    Key,
    /// Nothing that the page uses is there.
    #[error("{0} is not one of the paths that the dashboard uses")]
    Path(String),
    /// The key was used before; its session has ended.
    #[error(
        "this address was used before; the browser that used it is out now, too, as one of the two may be another user's: Enter in the \
         terminal prints a new one"
    )]
    Revoked,
    /// Other diagnoses take too long.
    #[error("kubectl is busy with the diagnosis of another machine: try again")]
    Diagnosing,
    /// The browser closed the connection; nobody reads this.
    #[error("the browser has left")]
    Left,
    /// kubectl's proxy, or the API server behind it, takes too long.
    #[error("kubectl proxy did not answer in {0} s: is the API server up?")]
    Late(u64),
    /// kubectl's proxy does not answer.
    #[error("kubectl proxy cannot be reached: {0}")]
    Proxy(String),
    /// kubectl could not be asked about a machine.
    #[error("{0}")]
    Kubectl(String),
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

impl Refusal {
    /// Code of HTTP.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) | Self::Left => 400,
            Self::Token => 401,
            Self::Host(_) | Self::OtherPage(_) | Self::Key | Self::Revoked => 403,
            Self::Path(_) => 404,
            Self::Proxy(_) | Self::Kubectl(_) => 502,
            Self::Diagnosing => 503,
            Self::Late(_) => 504,
        }
    }

    /// The body.
    pub(super) fn status(&self) -> String {
        status::body(self.code(), &self.to_string())
    }
}
