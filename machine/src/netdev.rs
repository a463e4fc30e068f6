//! `-netdev`: what a NIC is connected to.

use crate::argv::{Arg, Argument, Options, Properties};
use crate::features::{Feature, QemuFeatures};
use crate::id::DeviceId;

/// `-netdev`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Netdev {
    /// Queues of a tap, opened by another process.
    Tap(TapNetdev),
    /// QEMU's own user-mode network.
    User(UserNetdev),
    /// Frames over a connected stream socket; the other end is passt.
    Stream(StreamNetdev),
}

/// `-netdev tap`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapNetdev {
    /// Its ID.
    pub id: DeviceId,
    /// One descriptor for each queue.
    pub fds: Vec<i32>,
    /// As many descriptors of `/dev/vhost-net`, or none: then QEMU moves the packets itself.
    pub vhostfds: Vec<i32>,
}

/// `-netdev user`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNetdev {
    /// Its ID.
    pub id: DeviceId,
    /// IPv4 range, for example `10.0.2.0/24`.
    pub net: String,
    /// The gateway's address in it.
    pub host: String,
    /// The guest's address.
    pub dhcpstart: String,
    /// The name server's address.
    pub dns: String,
    /// Host name in its DHCP answers.
    pub hostname: Option<String>,
    /// Each as QEMU writes it: `tcp:127.0.0.1:2222-:22`.
    pub hostfwd: Vec<String>,
}

/// `-netdev stream`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamNetdev {
    /// Its ID.
    pub id: DeviceId,
    /// The connected socket.
    pub fd: i32,
}

impl Netdev {
    /// Its ID.
    #[must_use]
    pub const fn id(&self) -> &DeviceId {
        match self {
            Self::Tap(tap) => &tap.id,
            Self::User(user) => &user.id,
            Self::Stream(stream) => &stream.id,
        }
    }

    /// The descriptors it was given.
    #[must_use]
    pub fn fds(&self) -> Vec<i32> {
        match self {
            Self::Tap(tap) => tap.fds.iter().chain(&tap.vhostfds).copied().collect(),
            Self::User(_) => Vec::new(),
            Self::Stream(stream) => vec![stream.fd],
        }
    }

    /// The argument of `netdev_add`.
    #[must_use]
    pub fn properties(&self) -> Properties {
        match self {
            Self::Tap(tap) => tap.properties(),
            Self::User(user) => user.properties(),
            Self::Stream(stream) => stream.properties(),
        }
    }

    /// The option, in the syntax this QEMU takes. Unlike `-device`, lists look different in the two.
    #[must_use]
    pub fn argument_for(&self, features: &QemuFeatures) -> Argument {
        match self {
            Self::User(user) if !features.has(Feature::NetdevJson) => Argument::options("-netdev", user.options()),
            _ if !features.has(Feature::NetdevJson) => {
                Argument::options("-netdev", self.properties().to_options("type"))
            }
            Self::Tap(_) | Self::User(_) | Self::Stream(_) => self.argument(),
        }
    }
}

impl Arg for Netdev {
    fn argument(&self) -> Argument {
        Argument::json("-netdev", self.properties())
    }
}

impl TapNetdev {
    fn properties(&self) -> Properties {
        // `fds` with a single number works too, but QEMU then opens the NIC as multiqueue.
        let (fd, vhostfd) = if self.fds.len() > 1 { ("fds", "vhostfds") } else { ("fd", "vhostfd") };
        let vhost = (!self.vhostfds.is_empty()).then_some(true);
        Properties::new()
            .set("type", "tap")
            .set("id", &self.id)
            .set(fd, join(&self.fds))
            .set_some("vhost", vhost)
            .set_some(vhostfd, vhost.map(|_| join(&self.vhostfds)))
    }
}

fn join(fds: &[i32]) -> String {
    fds.iter().map(ToString::to_string).collect::<Vec<_>>().join(":")
}

impl UserNetdev {
    fn properties(&self) -> Properties {
        let forwards: Vec<_> = self.hostfwd.iter().map(|forward| Properties::new().set("str", forward)).collect();
        Properties::new()
            .set("type", "user")
            .set("id", &self.id)
            .set("ipv4", true)
            .set("ipv6", true)
            .set("net", &self.net)
            .set("host", &self.host)
            .set("dhcpstart", &self.dhcpstart)
            .set("dns", &self.dns)
            .set_some("hostname", self.hostname.as_ref())
            .set_some("hostfwd", (!forwards.is_empty()).then_some(forwards))
    }

    fn options(&self) -> Options {
        let options = Options::led_by("user")
            .set("id", &self.id)
            .set("ipv4", true)
            .set("ipv6", true)
            .set("net", &self.net)
            .set("host", &self.host)
            .set("dhcpstart", &self.dhcpstart)
            .set("dns", &self.dns)
            .set_some("hostname", self.hostname.as_ref());
        self.hostfwd.iter().fold(options, |options, forward| options.set("hostfwd", forward))
    }
}

impl StreamNetdev {
    fn properties(&self) -> Properties {
        let addr = Properties::new().set("type", "fd").set("str", self.fd.to_string());
        Properties::new().set("type", "stream").set("id", &self.id).set("server", false).set("addr", addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_queues_are_written_as_lists() {
        let mut tap = TapNetdev { id: DeviceId::constant("net0"), fds: vec![10, 11], vhostfds: vec![12, 13] };
        assert_eq!(
            tap.properties().to_string(),
            r#"{"type":"tap","id":"net0","fds":"10:11","vhost":true,"vhostfds":"12:13"}"#
        );
        tap.fds.pop();
        tap.vhostfds.clear();
        assert_eq!(tap.properties().to_string(), r#"{"type":"tap","id":"net0","fd":"10"}"#);
    }

    #[test]
    fn without_json_a_list_becomes_repeated_keys() {
        let mut features = QemuFeatures::debian12();
        features.options.remove(&Feature::NetdevJson);
        let user = Netdev::User(UserNetdev {
            id: DeviceId::constant("net0"),
            net: "10.0.2.0/24".into(),
            host: "10.0.2.1".into(),
            dhcpstart: "10.0.2.2".into(),
            dns: "10.0.2.3".into(),
            hostname: None,
            hostfwd: vec!["tcp::1-:2".into(), "udp::3-:4".into()],
        });
        let mut argv = Vec::new();
        user.argument_for(&features).render(&features, &mut argv);
        assert_eq!(
            argv[1],
            "user,id=net0,ipv4=on,ipv6=on,net=10.0.2.0/24,host=10.0.2.1,dhcpstart=10.0.2.2,dns=10.0.2.3,hostfwd=tcp::1-:2,hostfwd=udp::3-:4"
        );
    }
}
