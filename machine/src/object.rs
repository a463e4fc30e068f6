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
}

impl Object {
    /// Its ID.
    #[must_use]
    pub const fn id(&self) -> &DeviceId {
        match self {
            Self::Iothread { id } | Self::RngBuiltin { id } => id,
        }
    }
}

impl Arg for Object {
    fn argument(&self) -> Argument {
        let qom_type = match self {
            Self::Iothread { .. } => "iothread",
            Self::RngBuiltin { .. } => "rng-builtin",
        };
        Argument::json("-object", Properties::new().set("qom-type", qom_type).set("id", self.id()))
    }
}
