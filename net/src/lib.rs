//! Host networking for one VM: namespace, tap, bridge, nftables, DHCP, router advertisements.
#![doc = include_str!("lib.md")]

#[cfg(feature = "plumbing")]
mod acting;
#[cfg(feature = "dhcp")]
pub mod dhcp;
pub mod ensure;
pub mod error;
#[cfg(feature = "plumbing")]
pub mod kernel;
pub mod names;
pub mod netns;
pub mod observed;
pub mod plan;
pub mod plumb;
pub mod publish;
pub mod resolv;
pub mod seam;
mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
#[cfg(all(feature = "dhcp", feature = "plumbing"))]
mod tests;
pub mod undo;
pub mod uplink;

#[cfg(feature = "plumbing")]
pub use acting::{default_link_mtu, ensure_uplink, plumb, remove_all, sockets};
pub use ensure::Ensured;
pub use error::NetError;
pub use names::{EthernetAddress, LinkName, NameError, VmNetId};
pub use netns::NetNs;
pub use plan::guest::{GuestAddresses, GuestIpv4, GuestIpv6, GuestRoute};
pub use plan::uplink::Obstacle;
pub use plan::{Binding, DEFAULT_IPV4, DEFAULT_IPV6, Masquerade, NetPlan, NetPlanError, Port, Protocol};
pub use plumb::{Plumbed, PlumbedInterface, Sockets};
pub use uplink::{HostUplink, Removed, UplinkRequest};
