//! What the guest is to have: by the specification, and by the files of its Secrets as they are now.
//!
//! A password is read when it is needed and dropped afterwards: nothing here can be printed, and nothing of it is stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use garboard_api::v1::VirtualMachineInstance;
use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::volumes::{PASSWORDS_PREFIX, SSH_KEYS_PREFIX};
use garboard_storage::open::{Dir, OpenError};
use garboard_storage::seed;

/// Why a Secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The machine was started without it.
    #[error("{field}: the Secret {secret} is not among the volumes of this machine; start it again")]
    Missing {
        /// The credential's path.
        field: String,
        /// The Secret's name.
        secret: String,
    },
    /// Its files cannot be read.
    #[error("{field}: the Secret {secret} could not be read")]
    Unreadable {
        /// The credential's path.
        field: String,
        /// The Secret's name.
        secret: String,
        /// Why.
        #[source]
        source: OpenError,
    },
}

/// The credentials of a specification that the guest agent sets.
#[derive(Debug, Default)]
pub(super) struct Sources {
    keys: Vec<KeySource>,
    passwords: Vec<Secret>,
}

/// Keys, and for whom they are.
#[derive(Debug)]
struct KeySource {
    users: Vec<String>,
    secret: Secret,
}

/// A Secret whose files are below a directory.
#[derive(Debug)]
struct Secret {
    field: String,
    name: String,
    directory: Option<PathBuf>,
}

impl Secret {
    fn of(field: String, prefix: &str, name: &str, volumes: &VolumeTable) -> Self {
        let directory = match volumes.places.get(&format!("{prefix}{name}")) {
            Some(VolumePlace::Directory { path }) => Some(PathBuf::from(path)),
            Some(VolumePlace::File { .. } | VolumePlace::Descriptor | VolumePlace::Handed { .. }) | None => None,
        };
        Self { field, name: name.to_owned(), directory }
    }

    /// Its files by name.
    fn read(&self) -> Result<BTreeMap<String, Vec<u8>>, SourceError> {
        let (field, secret) = (self.field.clone(), self.name.clone());
        let Some(directory) = &self.directory else { return Err(SourceError::Missing { field, secret }) };
        // A kubelet that exchanges all files at once may take one away between two looks.
        let read = files(directory).or_else(|_| files(directory));
        read.map_err(|source| SourceError::Unreadable { field, secret, source })
    }
}

fn files(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>, OpenError> {
    seed::read_folder(&Dir::open(directory)?)
}

impl Sources {
    /// The credentials of an instance, and where their Secrets are.
    pub(super) fn of(vmi: &VirtualMachineInstance, volumes: &VolumeTable) -> Self {
        let mut sources = Self::default();
        for (index, credential) in vmi.spec.access_credentials.iter().enumerate() {
            if let Some(key) = &credential.ssh_public_key
                && let Some(agent) = &key.propagation_method.qemu_guest_agent
                && let Some(secret) = &key.source.secret
            {
                let field = format!("spec.accessCredentials[{index}].sshPublicKey");
                let secret = Secret::of(field, SSH_KEYS_PREFIX, &secret.secret_name, volumes);
                sources.keys.push(KeySource { users: agent.users.clone(), secret });
            }
            if let Some(password) = &credential.user_password
                && password.propagation_method.qemu_guest_agent.is_some()
                && let Some(secret) = &password.source.secret
            {
                let field = format!("spec.accessCredentials[{index}].userPassword");
                sources.passwords.push(Secret::of(field, PASSWORDS_PREFIX, &secret.secret_name, volumes));
            }
        }
        sources
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.passwords.is_empty()
    }

    /// What the Secrets have now.
    pub(super) fn read(&self) -> Result<Wanted, SourceError> {
        let mut wanted = Wanted::default();
        for KeySource { users, secret } in &self.keys {
            let found = keys(&secret.read()?);
            for user in users {
                let all = wanted.keys.entry(user.clone()).or_default();
                for key in &found {
                    if !all.contains(key) {
                        all.push(key.clone());
                    }
                }
            }
        }
        for secret in &self.passwords {
            wanted.passwords.extend(passwords(secret.read()?));
        }
        Ok(wanted)
    }
}

/// One key a line, in each file of the Secret.
fn keys(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let texts = files.values().map(|content| String::from_utf8_lossy(content));
    let lines = texts.flat_map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>());
    lines.filter(|key| !key.is_empty()).collect()
}

/// Each file is named as its user; blanks around a password, as the end of its line, are none of it.
fn passwords(files: BTreeMap<String, Vec<u8>>) -> impl Iterator<Item = (String, Password)> {
    let all = files.into_iter().map(|(user, content)| (user, Password(content.trim_ascii().to_vec())));
    all.filter(|(_, password)| !password.0.is_empty())
}

/// What the guest is to have, by user.
#[derive(Default, Hash, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its only SSH keys; none takes all of them away.
    pub(super) keys: BTreeMap<String, Vec<String>>,
    /// Its password.
    pub(super) passwords: BTreeMap<String, Password>,
}

impl Wanted {
    /// Everything in it, keys first.
    pub(super) fn gifts(&self) -> impl Iterator<Item = Gift<'_>> {
        let keys = self.keys.iter().map(|(user, keys)| Gift::Keys { user, keys });
        keys.chain(self.passwords.iter().map(|(user, password)| Gift::Password { user, password }))
    }
}

/// One thing that one user is to have.
#[derive(Clone, Copy, Hash)]
pub(super) enum Gift<'a> {
    /// All of its keys.
    Keys {
        /// Whose.
        user: &'a str,
        /// The keys.
        keys: &'a [String],
    },
    /// Its password.
    Password {
        /// Whose.
        user: &'a str,
        /// The password.
        password: &'a Password,
    },
}

impl Gift<'_> {
    /// What it is, without what is in it.
    pub(super) fn name(self) -> GiftName {
        match self {
            Self::Keys { user, .. } => GiftName::Keys(user.to_owned()),
            Self::Password { user, .. } => GiftName::Password(user.to_owned()),
        }
    }
}

/// What a gift is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GiftName {
    /// The keys of this user.
    Keys(String),
    /// The password of this user.
    Password(String),
}

/// A password, which cannot be printed.
#[derive(Hash, PartialEq, Eq)]
pub(super) struct Password(Vec<u8>);

impl Password {
    /// As it is typed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
