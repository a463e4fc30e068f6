//! The sockets that serve one guest, bound to the guest's bridge by the privileged half so that the half
//! without power can only ever talk to this guest. All are made in the namespace of the calling thread.
//! Sources followed: socket(7), ip(7), ipv6(7), raw(7) of man-pages 6.03; RFC 3542.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::libc::{self, c_int};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind, setsockopt, socket, sockopt,
};

use crate::names::LinkName;

/// Where DHCPv4 servers listen.
const DHCP4_PORT: u16 = 67;
/// Where DHCPv6 servers listen.
const DHCP6_PORT: u16 = 547;
/// All DHCPv6 servers and relays of a link (RFC 8415).
const DHCP6_GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// All routers of a link (RFC 4291).
const ROUTERS_GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// The `ICMP6_FILTER` socket option (RFC 3542, linux/icmpv6.h).
const ICMP6_FILTER: c_int = 1;
/// ICMPv6 type of router solicitations (RFC 4861).
const ROUTER_SOLICITATION: usize = 133;

/// UDP port 67 on the bridge.
pub(crate) fn dhcp4(bridge: &LinkName) -> io::Result<OwnedFd> {
    let opened = open(AddressFamily::Inet, SockType::Datagram, None)?;
    bind_to(&opened, bridge)?;
    set_int(opened.as_fd(), libc::SOL_SOCKET, libc::SO_BROADCAST, 1)?;
    // Replies carry no UDP checksum. With one, the tap would hand the guest a packet whose checksum is to be
    // filled in by hardware (virtio-net offload), and DHCP clients that read raw packets would drop it.
    set_int(opened.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?;
    bind(opened.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, DHCP4_PORT)))?;
    Ok(opened)
}

/// UDP port 547 on the bridge, in the group of all DHCP servers.
pub(crate) fn dhcp6(bridge: &LinkName) -> io::Result<OwnedFd> {
    let opened = open(AddressFamily::Inet6, SockType::Datagram, None)?;
    bind_to(&opened, bridge)?;
    set_int(opened.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    join(opened.as_fd(), DHCP6_GROUP, bridge)?;
    bind(opened.as_raw_fd(), &SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, DHCP6_PORT, 0, 0)))?;
    Ok(opened)
}

/// Raw ICMPv6 on the bridge that receives router solicitations alone and sends with hop limit 255, without
/// which receivers ignore router advertisements.
pub(crate) fn router_advertisement(bridge: &LinkName) -> io::Result<OwnedFd> {
    let opened = open(AddressFamily::Inet6, SockType::Raw, Some(SockProtocol::IcmpV6))?;
    bind_to(&opened, bridge)?;
    set_int(opened.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, 255)?;
    set_int(opened.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 255)?;
    set_int(opened.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 0)?;
    // One bit for each type, set: blocked.
    let mut filter = [u32::MAX; 8];
    if let Some(word) = filter.get_mut(ROUTER_SOLICITATION / 32) {
        *word &= !(1 << (ROUTER_SOLICITATION % 32));
    }
    let filter: Vec<u8> = filter.iter().flat_map(|word| word.to_ne_bytes()).collect();
    set_bytes(opened.as_fd(), libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter)?;
    join(opened.as_fd(), ROUTERS_GROUP, bridge)?;
    Ok(opened)
}

fn open(family: AddressFamily, kind: SockType, protocol: Option<SockProtocol>) -> io::Result<OwnedFd> {
    Ok(socket(family, kind, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, protocol)?)
}

fn bind_to(socket: &OwnedFd, bridge: &LinkName) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::BindToDevice, &OsString::from(bridge.as_str()))?)
}

fn join(socket: BorrowedFd<'_>, group: Ipv6Addr, bridge: &LinkName) -> io::Result<()> {
    let index = nix::net::if_::if_nametoindex(bridge.as_str())?;
    // struct ipv6_mreq: the group, then the link's index.
    let request: Vec<u8> = group.octets().into_iter().chain(index.to_ne_bytes()).collect();
    set_bytes(socket, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)
}

fn set_int(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set_bytes(socket, level, option, &value.to_ne_bytes())
}

fn set_bytes(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: pointer and length describe `value`, which outlives the call and which the kernel only reads;
    // the descriptor is borrowed and therefore open.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    nix::errno::Errno::result(done)?;
    Ok(())
}
