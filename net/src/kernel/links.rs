//! Links, addresses and routes by rtnetlink; settings by `/proc/sys/net`.
//! Sources followed: rtnetlink(7); rtnetlink 0.24 and netlink-packet-route 0.34.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use futures::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use rtnetlink::{AddressMessageBuilder, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::Kernel;
use crate::error::NetError;
use crate::names::{EthernetAddress, LinkName};
use crate::observed::{Admin, Link, LinkAddress, Origin, Route};
use crate::seam::{LinkChange, Links, Sysctl};

type Names = BTreeMap<u32, String>;

impl Kernel<'_> {
    async fn link_messages(&self) -> Result<Vec<LinkMessage>, NetError> {
        let listed = self.netlink.link().get().execute().try_collect().await;
        listed.map_err(|error| failed("list the links", error))
    }

    async fn names(&self) -> Result<Names, NetError> {
        let messages = self.link_messages().await?;
        Ok(messages.iter().map(|message| (message.header.index, link_name(message))).collect())
    }

    async fn index(&self, name: &str) -> Result<u32, NetError> {
        let missing = || NetError::Netlink {
            doing: format!("find the link `{name}`"),
            source: io::Error::from(io::ErrorKind::NotFound),
        };
        self.names().await?.into_iter().find(|(_, listed)| listed == name).map(|(index, _)| index).ok_or_else(missing)
    }

    async fn route_messages(&self, query: RouteMessage) -> Result<Vec<RouteMessage>, NetError> {
        let listed = self.netlink.route().get(query).execute().try_collect().await;
        listed.map_err(|error| failed("list the routes", error))
    }
}

impl Links for Kernel<'_> {
    async fn links(&self) -> Result<Vec<Link>, NetError> {
        let messages = self.link_messages().await?;
        let names: Names = messages.iter().map(|message| (message.header.index, link_name(message))).collect();
        let mut links: Vec<Link> = messages.iter().map(|message| read_link(message, &names)).collect();
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    async fn addresses(&self) -> Result<Vec<LinkAddress>, NetError> {
        let names = self.names().await?;
        let listed: Result<Vec<AddressMessage>, _> = self.netlink.address().get().execute().try_collect().await;
        let listed = listed.map_err(|error| failed("list the addresses", error))?;
        Ok(listed.iter().filter_map(|message| read_address(message, &names)).collect())
    }

    async fn routes(&self) -> Result<Vec<Route>, NetError> {
        let names = self.names().await?;
        let mut messages = self.route_messages(RouteMessageBuilder::<Ipv4Addr>::new().build()).await?;
        messages.extend(self.route_messages(RouteMessageBuilder::<Ipv6Addr>::new().build()).await?);
        Ok(messages.iter().flat_map(|message| read_routes(message, &names)).collect())
    }

    async fn add_bridge(&self, name: &LinkName, mac: EthernetAddress, mtu: u16) -> Result<(), NetError> {
        let bridge = LinkBridge::new(name.as_str()).mcast_snooping(false).address(mac.bytes().to_vec()).down().build();
        let made = self.netlink.link().add(bridge).execute().await;
        made.map_err(|error| failed(&format!("make the bridge `{name}`"), error))?;
        // Only an MTU set afterwards is kept; one given when a bridge is made follows that of its ports
        // (br_mtu_auto_adjust of the kernel's net/bridge/br_if.c).
        let kept = self.change_link(name, &LinkChange::Mtu(mtu.into())).await;
        if kept.is_err() {
            self.delete_link(name).await?;
        }
        kept
    }

    async fn add_veth(&self, name: &LinkName, there: &Self, peer: &LinkName, mtu: u16) -> Result<(), NetError> {
        let far_end = LinkUnspec::new_with_name(peer.as_str())
            .setns_by_fd(there.namespace.as_fd().as_raw_fd())
            .mtu(mtu.into())
            .build();
        let pair = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(name.as_str())
            .mtu(mtu.into())
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far_end)))
            .build();
        let made = self.netlink.link().add(pair).execute().await;
        made.map_err(|error| failed(&format!("make the veth pair `{name}` and `{peer}`"), error))
    }

    async fn delete_link(&self, name: &LinkName) -> Result<(), NetError> {
        let index = self.index(name.as_str()).await?;
        let deleted = self.netlink.link().del(index).execute().await;
        deleted.map_err(|error| failed(&format!("remove the link `{name}`"), error))
    }

    async fn change_link(&self, name: &LinkName, change: &LinkChange) -> Result<(), NetError> {
        let link = LinkUnspec::new_with_index(self.index(name.as_str()).await?);
        let link = match change {
            LinkChange::Mac(mac) => link.address(mac.bytes().to_vec()),
            LinkChange::Mtu(mtu) => link.mtu(*mtu),
            LinkChange::Up => link.up(),
            LinkChange::Down => link.down(),
            LinkChange::Port(bridge) => link.controller(self.index(bridge.as_str()).await?),
            LinkChange::NoPort => link.nocontroller(),
            LinkChange::Alias(alias) => link.alias(alias.as_str()),
        };
        let changed = self.netlink.link().set(link.build()).execute().await;
        changed.map_err(|error| failed(&format!("set {change:?} on the link `{name}`"), error))
    }

    async fn add_address(&self, link: &LinkName, address: IpNet) -> Result<(), NetError> {
        let index = self.index(link.as_str()).await?;
        let mut request = self.netlink.address().add(index, address.addr(), address.prefix_len());
        if address.addr().is_ipv6() {
            let flags = AddressAttribute::Flags(AddressFlags::Nodad);
            request.message_mut().attributes.push(flags);
        }
        let added = request.execute().await;
        added.map_err(|error| failed(&format!("add {address} to the link `{link}`"), error))
    }

    async fn delete_address(&self, link: &LinkName, address: IpNet) -> Result<(), NetError> {
        let index = self.index(link.as_str()).await?;
        let message = match address {
            IpNet::V4(net) => {
                AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(net.addr(), net.prefix_len()).build()
            }
            IpNet::V6(net) => {
                AddressMessageBuilder::<Ipv6Addr>::new().index(index).address(net.addr(), net.prefix_len()).build()
            }
        };
        let deleted = self.netlink.address().del(message).execute().await;
        deleted.map_err(|error| failed(&format!("remove {address} from the link `{link}`"), error))
    }

    async fn add_route(&self, route: &Route) -> Result<(), NetError> {
        let index = self.index(&route.link).await?;
        let doing = format!("add the route to {} by the link `{}`", route.to, route.link);
        let mut message = match route.to {
            IpNet::V4(to) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(to.network(), to.prefix_len())
                .output_interface(index)
                .build(),
            IpNet::V6(to) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(to.network(), to.prefix_len())
                .output_interface(index)
                .build(),
        };
        if let Some(via) = route.via {
            let via = match via {
                IpAddr::V4(via) => RouteAddress::Inet(via),
                IpAddr::V6(via) => RouteAddress::Inet6(via),
            };
            message.attributes.push(RouteAttribute::Gateway(via));
        } else if matches!(route.to, IpNet::V4(_)) {
            message.header.scope = rtnetlink::packet_route::route::RouteScope::Link;
        }
        self.netlink.route().add(message).execute().await.map_err(|error| failed(&doing, error))
    }

    async fn setting(&self, setting: &Sysctl) -> Result<Option<String>, NetError> {
        let path = setting.path();
        match self.namespace.run(|| std::fs::read_to_string(&path))? {
            Ok(value) => Ok(Some(value.trim().to_owned())),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(NetError::Sysctl { path, source }),
        }
    }

    async fn change_setting(&self, setting: &Sysctl, value: &str) -> Result<(), NetError> {
        let path = setting.path();
        // Opened without creating: these files exist or the kernel does not have the setting.
        let write = || {
            use std::io::Write as _;
            std::fs::OpenOptions::new().write(true).open(&path)?.write_all(value.as_bytes())
        };
        self.namespace.run(write)?.map_err(|source| NetError::Sysctl { path: path.clone(), source })
    }
}

fn failed(doing: &str, error: rtnetlink::Error) -> NetError {
    let source = match error {
        rtnetlink::Error::NetlinkError(answer) => not_found(answer.to_io()),
        rtnetlink::Error::RequestFailed => io::Error::from(io::ErrorKind::BrokenPipe),
        other @ (rtnetlink::Error::UnexpectedMessage(_)
        | rtnetlink::Error::NamespaceError(_)
        | rtnetlink::Error::InvalidHardwareAddress(_)
        | rtnetlink::Error::InvalidIp(_)
        | rtnetlink::Error::InvalidAddress(..)
        | rtnetlink::Error::InvalidNla(_)) => io::Error::other(other),
    };
    NetError::Netlink { doing: doing.to_owned(), source }
}

/// rtnetlink answers "no such device" where others answer "not found".
fn not_found(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(nix::libc::ENODEV) { io::Error::new(io::ErrorKind::NotFound, error) } else { error }
}

fn link_name(message: &LinkMessage) -> String {
    let name =
        |attribute: &LinkAttribute| if let LinkAttribute::IfName(name) = attribute { Some(name.clone()) } else { None };
    message.attributes.iter().find_map(name).unwrap_or_default()
}

fn read_link(message: &LinkMessage, names: &Names) -> Link {
    let up = message.header.flags.contains(LinkFlags::Up);
    let mut link = Link {
        name: link_name(message),
        index: message.header.index,
        kind: None,
        mac: None,
        mtu: 0,
        admin: if up { Admin::Up } else { Admin::Down },
        controller: None,
        alias: None,
    };
    for attribute in &message.attributes {
        if let LinkAttribute::Address(bytes) = attribute {
            link.mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().and_then(|bytes| EthernetAddress::new(bytes).ok());
        } else if let LinkAttribute::Mtu(mtu) = attribute {
            link.mtu = *mtu;
        } else if let LinkAttribute::Controller(index) = attribute {
            link.controller = names.get(index).cloned();
        } else if let LinkAttribute::IfAlias(alias) = attribute {
            link.alias = Some(alias.clone());
        } else if let LinkAttribute::LinkInfo(parts) = attribute {
            link.kind = parts.iter().find_map(kind);
        }
    }
    link
}

fn kind(part: &LinkInfo) -> Option<String> {
    if let LinkInfo::Kind(kind) = part { Some(kind.to_string()) } else { None }
}

fn read_address(message: &AddressMessage, names: &Names) -> Option<LinkAddress> {
    let link = names.get(&message.header.index)?.clone();
    // IFA_LOCAL is the address itself; IFA_ADDRESS is the far end on a point-to-point link, and alone for IPv6.
    let local =
        |attribute: &AddressAttribute| if let AddressAttribute::Local(ip) = attribute { Some(*ip) } else { None };
    let far =
        |attribute: &AddressAttribute| if let AddressAttribute::Address(ip) = attribute { Some(*ip) } else { None };
    let attributes = &message.attributes;
    let ip = attributes.iter().find_map(local).or_else(|| attributes.iter().find_map(far))?;
    Some(LinkAddress { link, address: IpNet::new(ip, message.header.prefix_len).ok()? })
}

fn read_routes(message: &RouteMessage, names: &Names) -> Vec<Route> {
    let header = &message.header;
    if header.kind != RouteType::Unicast || header.table != RouteHeader::RT_TABLE_MAIN {
        return Vec::new();
    }
    let ipv4 = header.address_family == AddressFamily::Inet;
    let unspecified = if ipv4 { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) };
    let (mut to, mut via, mut hops) = (unspecified, None, Vec::new());
    for attribute in &message.attributes {
        if let RouteAttribute::Destination(address) = attribute {
            to = ip(address).unwrap_or(to);
        } else if let RouteAttribute::Gateway(address) = attribute {
            via = ip(address);
        } else if let RouteAttribute::Oif(index) = attribute {
            hops.push((*index, None));
        } else if let RouteAttribute::MultiPath(paths) = attribute {
            hops.extend(paths.iter().map(|path| (path.interface_index, path.attributes.iter().find_map(gateway))));
        }
    }
    let Ok(to) = IpNet::new(to, header.destination_prefix_length) else { return Vec::new() };
    let origin = origin(header.protocol);
    let route = |(index, own): (u32, Option<IpAddr>)| {
        Some(Route { to, via: own.or(via), link: names.get(&index)?.clone(), origin })
    };
    hops.into_iter().filter_map(route).collect()
}

fn origin(protocol: RouteProtocol) -> Origin {
    if protocol == RouteProtocol::Kernel {
        Origin::Kernel
    } else if protocol == RouteProtocol::Ra {
        Origin::Advertised
    } else {
        Origin::Configured
    }
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    if let RouteAttribute::Gateway(address) = attribute { ip(address) } else { None }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    if let RouteAddress::Inet(ip) = address {
        Some((*ip).into())
    } else if let RouteAddress::Inet6(ip) = address {
        Some((*ip).into())
    } else {
        None
    }
}
