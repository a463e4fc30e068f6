//! Credentials for registries, from the file that `docker login` and `podman login` write, or an `imagePullSecret`.
//!
//! Only the file's own entries are used. A `credHelpers` or `credsStore` entry would mean running a program that
//! the file names; where one is responsible for the registry at hand, the error names it instead.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::beneath::shown;

/// Files beyond this are no configuration.
const MOST_BYTES: u64 = 1 << 20;
/// The names under which Docker Hub is known.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// Why credentials could not be had.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file.
    #[error("could not read the registry credentials in {path}; check the file's permissions")]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// Its shape. The cause is left out, because parsers quote what they read.
    #[error("the registry credentials are not a docker configuration (JSON with `auths`); log in again")]
    Shape,
    /// An entry.
    #[error("the credentials for {registry} cannot be decoded; log in again with `docker login {registry}`")]
    Undecodable {
        /// The registry.
        registry: String,
    },
    /// A helper would have to be run.
    #[error(
        "the credentials for {registry} are kept by the helper `{helper}`, which is not run; log in with a file instead, \
         for example `podman login --authfile FILE {registry}`"
    )]
    Helper {
        /// The registry.
        registry: String,
        /// The helper, escaped and cut.
        helper: String,
    },
    /// A token that must be exchanged first.
    #[error(
        "the credentials for {registry} are an identity token, which is not supported; log in with a password or access token"
    )]
    IdentityToken {
        /// The registry.
        registry: String,
    },
}

/// What is sent to a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// Nothing.
    Anonymous,
    /// A name and a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Password { .. } => "Password(redacted)",
            Self::Token(_) => "Token(redacted)",
        })
    }
}

/// A set of credentials, by registry and maybe path.
#[derive(Clone, Default)]
pub struct Credentials {
    entries: BTreeMap<String, AuthEntry>,
    helpers: BTreeMap<String, String>,
    store: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.entries.keys()).finish()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, AuthEntry>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Clone, Deserialize)]
struct AuthEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Credentials {
    /// No credentials: every registry is asked anonymously.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads a file; one that does not exist has no credentials.
    ///
    /// # Errors
    /// [`CredentialsError::Read`] and [`CredentialsError::Shape`].
    pub fn load(path: &Path) -> Result<Self, CredentialsError> {
        let read = || {
            if std::fs::metadata(path)?.len() > MOST_BYTES {
                return Err(std::io::Error::other("larger than 1 MiB"));
            }
            std::fs::read(path)
        };
        match read() {
            Ok(bytes) => Self::parse(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::none()),
            Err(source) => Err(CredentialsError::Read { path: path.to_path_buf(), source }),
        }
    }

    /// Reads the content of such a file, or of a `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg` Secret.
    ///
    /// # Errors
    /// [`CredentialsError::Shape`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CredentialsError> {
        let mut file: ConfigFile = serde_json::from_slice(bytes).map_err(|_| CredentialsError::Shape)?;
        if file.auths.is_empty() && file.cred_helpers.is_empty() && file.creds_store.is_none() {
            // The older form, of `kubernetes.io/dockercfg` Secrets: the entries alone.
            file.auths = serde_json::from_slice(bytes).unwrap_or_default();
        }
        Ok(Self {
            entries: file.auths.into_iter().map(|(key, value)| (tidy(&key), value)).collect(),
            helpers: file.cred_helpers.into_iter().map(|(key, value)| (tidy(&key), value)).collect(),
            store: file.creds_store.filter(|store| !store.is_empty()),
        })
    }

    /// Adds what another set has; its entries win.
    pub fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.helpers.extend(other.helpers);
        self.store = other.store.or(self.store.take());
    }

    /// The credential for a repository of a registry: the entry for the longest matching path, else for the registry.
    ///
    /// # Errors
    /// [`CredentialsError`] when there is an entry that cannot be used.
    pub fn find(&self, registry: &str, repository: &str) -> Result<Credential, CredentialsError> {
        let registry = if DOCKER_HUB.contains(&registry) { DOCKER_HUB[0] } else { registry };
        let full = format!("{registry}/{repository}");
        let mut place = full.as_str();
        loop {
            let found = self.entries.get(place).map(|entry| entry.credential(registry)).transpose()?;
            if let Some(credential) = found.flatten() {
                return Ok(credential);
            }
            match place.rsplit_once('/') {
                Some((shorter, _)) => place = shorter,
                None => break,
            }
        }
        // An empty entry beside a store means that the store has it. Without an entry there was no login.
        let stored = self.store.as_ref().filter(|_| self.entries.contains_key(registry));
        match self.helpers.get(registry).or(stored) {
            Some(helper) => Err(CredentialsError::Helper { registry: shown(registry), helper: shown(helper) }),
            None => Ok(Credential::Anonymous),
        }
    }
}

impl AuthEntry {
    fn credential(&self, registry: &str) -> Result<Option<Credential>, CredentialsError> {
        let filled = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        let undecodable = || CredentialsError::Undecodable { registry: shown(registry) };
        if filled(&self.identitytoken).is_some() {
            return Err(CredentialsError::IdentityToken { registry: shown(registry) });
        }
        if let Some(token) = filled(&self.registrytoken) {
            return Ok(Some(Credential::Token(token)));
        }
        if let Some(auth) = filled(&self.auth) {
            let bytes = STANDARD.decode(auth.trim()).map_err(|_| undecodable())?;
            let text = String::from_utf8(bytes).map_err(|_| undecodable())?;
            let (user, password) = text.split_once(':').ok_or_else(undecodable)?;
            let password = password.trim_end_matches('\0').to_owned();
            return Ok(Some(Credential::Password { user: user.to_owned(), password }));
        }
        match (filled(&self.username), filled(&self.password)) {
            (Some(user), Some(password)) => Ok(Some(Credential::Password { user, password })),
            _ => Ok(None),
        }
    }
}

/// `https://index.docker.io/v1/` and the like, as host and path.
fn tidy(key: &str) -> String {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key).trim_end_matches('/');
    let key = key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key);
    let (host, path) = key.split_once('/').map_or((key, None), |(host, path)| (host, Some(path)));
    let host = if DOCKER_HUB.contains(&host) { DOCKER_HUB[0] } else { host };
    path.map_or_else(|| host.to_owned(), |path| format!("{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(text: &str) -> Credentials {
        Credentials::parse(text.as_bytes()).unwrap()
    }

    fn password(user: &str, password: &str) -> Credential {
        Credential::Password { user: user.into(), password: password.into() }
    }

    #[test]
    fn docker_and_podman_files_are_understood() {
        let known = credentials(
            r#"{"auths": {
                "https://index.docker.io/v1/": {"auth": "aHViOnBhc3M6d29yZA=="},
                "localhost:5000": {"username": "a", "password": "b"},
                "quay.io": {"auth": "cXVheTox"},
                "quay.io/team": {"auth": "dGVhbToy"},
                "token.example": {"registrytoken": "t"}
            }, "currentContext": "x"}"#,
        );
        assert_eq!(known.find("docker.io", "library/alpine").unwrap(), password("hub", "pass:word"));
        assert_eq!(known.find("localhost:5000", "x").unwrap(), password("a", "b"));
        assert_eq!(known.find("quay.io", "other/x").unwrap(), password("quay", "1"));
        assert_eq!(known.find("quay.io", "team/deep/x").unwrap(), password("team", "2"));
        assert_eq!(known.find("quay.io", "teamwork/x").unwrap(), password("quay", "1"));
        assert_eq!(known.find("token.example", "x").unwrap(), Credential::Token("t".into()));
        assert_eq!(known.find("elsewhere.example", "x").unwrap(), Credential::Anonymous);
    }

    #[test]
    fn the_older_form_of_secrets_is_understood() {
        let known = credentials(r#"{"https://index.docker.io/v1/": {"auth": "YTpi", "email": "x"}}"#);
        assert_eq!(known.find("docker.io", "library/alpine").unwrap(), password("a", "b"));
        assert_eq!(credentials("{}").find("docker.io", "x").unwrap(), Credential::Anonymous);
    }

    #[test]
    fn helpers_are_refused_where_they_would_be_needed() {
        let known = credentials(
            r#"{"auths": {"desk.example": {}}, "credsStore": "desktop", "credHelpers": {"gcr.io": "gcloud"}}"#,
        );
        for registry in ["desk.example", "gcr.io"] {
            assert!(matches!(known.find(registry, "x"), Err(CredentialsError::Helper { .. })), "{registry}");
        }
        assert_eq!(known.find("quay.io", "x").unwrap(), Credential::Anonymous);
    }

    #[test]
    fn what_cannot_be_used_is_reported_without_being_shown() {
        let known = credentials(
            r#"{"auths": {"a": {"auth": "***"}, "b": {"identitytoken": "secret"}, "c": {"auth": "bm9jb2xvbg=="}}}"#,
        );
        assert!(matches!(known.find("a", "x"), Err(CredentialsError::Undecodable { .. })));
        assert!(matches!(known.find("b", "x"), Err(CredentialsError::IdentityToken { .. })));
        assert!(matches!(known.find("c", "x"), Err(CredentialsError::Undecodable { .. })));
        assert!(matches!(Credentials::parse(b"secret"), Err(CredentialsError::Shape)));
        let known = credentials(r#"{"auths": {"a": {"username": "u", "password": "secret"}}}"#);
        let shown = format!("{known:?} {:?}", known.find("a", "x").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_missing_file_means_no_login() {
        let known = Credentials::load(Path::new("/nonexistent/config.json")).unwrap();
        assert_eq!(known.find("quay.io", "x").unwrap(), Credential::Anonymous);
        assert!(matches!(Credentials::load(Path::new("/")), Err(CredentialsError::Read { .. })));
    }
}
