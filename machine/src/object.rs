//! `-object`, apart from memory backends.

use crate::argv::{Arg, Argument, Properties};
use crate::id::DeviceId;

/// `-object`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A thread that does block I/O.
    Iothread {
        /// Its ID, which devices name.
        id: DeviceId,
    },
    /// Random numbers from QEMU itself, that is from `getrandom(2)`: no file has to be opened for them.
    RngBuiltin {
        /// Its ID, which virtio-rng names.
        id: DeviceId,
    },
    /// `secret`: a password of a block node.
    Secret {
        /// Its ID.
        id: DeviceId,
        /// The file with it.
        fd: i32,
    },
}

/// What is behind a secret object: QEMU reads the file once, when it makes the object.
fn secret_file(fd: i32) -> String {
    format!("/proc/self/fd/{fd}")
}

impl Object {
    /// The descriptor that it reads, if it reads one.
    #[must_use]
    pub const fn fd(&self) -> Option<i32> {
        match self {
            Self::Iothread { .. } | Self::RngBuiltin { .. } => None,
            Self::Secret { fd, .. } => Some(*fd),
        }
    }

    /// Its ID.
    #[must_use]
    pub const fn id(&self) -> &DeviceId {
        match self {
            Self::Iothread { id } | Self::RngBuiltin { id } | Self::Secret { id, .. } => id,
        }
    }
}

impl Arg for Object {
    fn argument(&self) -> Argument {
        let object = |qom_type: &str| Properties::new().set("qom-type", qom_type).set("id", self.id());
        let properties = match self {
            Self::Iothread { .. } => object("iothread"),
            Self::RngBuiltin { .. } => object("rng-builtin"),
            Self::Secret { fd, .. } => object("secret").set("file", secret_file(*fd)),
        };
        Argument::json("-object", properties)
    }
}
