//! `-chardev` and `-mon`: character devices on sockets that another process has bound.

use crate::argv::{Arg, Argument, Options};
use crate::id::DeviceId;
use crate::process::fdset_path;

/// `-chardev socket` on a listening descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketChardev {
    /// Its ID.
    pub id: DeviceId,
    /// The listening socket.
    pub fd: i32,
    /// Descriptor set of a file that everything written is appended to.
    pub log_set: Option<u32>,
}

impl Arg for SocketChardev {
    fn argument(&self) -> Argument {
        let options = Options::led_by("socket")
            .set("id", &self.id)
            .set("fd", self.fd)
            .set("server", true)
            .set("wait", false)
            .set_some("logfile", self.log_set.map(fdset_path))
            .set_some("logappend", self.log_set.map(|_| true));
        Argument::options("-chardev", options)
    }
}

/// `-mon`: a QMP monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// The character device it uses.
    pub chardev: DeviceId,
}

impl Arg for Monitor {
    fn argument(&self) -> Argument {
        Argument::options("-mon", Options::new().set("chardev", &self.chardev).set("mode", "control"))
    }
}
