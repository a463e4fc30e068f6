//! What the fake kernel remembers and how it reacts: the part of Linux that this crate relies on.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use ipnet::IpNet;

use crate::names::EthernetAddress;
use crate::observed::{Admin, Link, LinkAddress, Origin, Route};
use crate::seam::{LinkChange, Outline, Sysctl};

/// All namespaces of a fake host.
#[derive(Debug, Default)]
pub(super) struct Host {
    namespaces: Vec<State>,
    next_pair: u32,
}

/// One namespace.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) links: Vec<FakeLink>,
    pub(super) addresses: Vec<LinkAddress>,
    pub(super) routes: Vec<Route>,
    pub(super) settings: BTreeMap<Sysctl, String>,
    pub(super) tables: BTreeMap<String, Outline>,
    last_index: u32,
}

#[derive(Debug)]
pub(super) struct FakeLink {
    pub(super) link: Link,
    /// Number shared by the two ends of a veth pair.
    pair: Option<u32>,
    /// Ends of pipes whose other ends are the tap's descriptors: a tap whose last descriptor is closed goes.
    pub(super) queues: Vec<OwnedFd>,
}

impl Host {
    pub(super) fn add_namespace(&mut self) -> usize {
        let mut state = State::default();
        state.add_link("lo", None, None, 65536);
        state.settings.insert(Sysctl::Ipv4Forwarding, "0".to_owned());
        state.settings.insert(Sysctl::Ipv6Forwarding, "0".to_owned());
        self.namespaces.push(state);
        self.namespaces.len() - 1
    }

    pub(super) fn namespace(&mut self, id: usize) -> io::Result<&mut State> {
        let state = self.namespaces.get_mut(id).ok_or(ErrorKind::NotFound)?;
        state.drop_closed_taps();
        Ok(state)
    }

    pub(super) fn add_veth(&mut self, here: (usize, &str), there: (usize, &str), mtu: u32) -> io::Result<()> {
        self.namespace(here.0)?.refuse_existing(here.1)?;
        self.namespace(there.0)?.refuse_existing(there.1)?;
        self.next_pair += 1;
        let pair = self.next_pair;
        for (id, name) in [here, there] {
            let mac = EthernetAddress::derived(&format!("{id} {name} {pair}"));
            self.namespace(id)?.add_link(name, Some("veth"), Some(mac), mtu).pair = Some(pair);
        }
        Ok(())
    }

    /// Removes a link; the other end of a pair goes with it, wherever it is.
    pub(super) fn delete_link(&mut self, id: usize, name: &str) -> io::Result<()> {
        let pair = self.namespace(id)?.find(name)?.pair;
        self.namespace(id)?.forget(name);
        let Some(pair) = pair else { return Ok(()) };
        for state in &mut self.namespaces {
            let other = state.links.iter().find(|link| link.pair == Some(pair)).map(|link| link.link.name.clone());
            if let Some(other) = other {
                state.forget(&other);
            }
        }
        Ok(())
    }
}

impl State {
    pub(super) fn add_link(
        &mut self,
        name: &str,
        kind: Option<&str>,
        mac: Option<EthernetAddress>,
        mtu: u32,
    ) -> &mut FakeLink {
        self.last_index += 1;
        let link = Link {
            name: name.to_owned(),
            index: self.last_index,
            kind: kind.map(str::to_owned),
            mac: mac.or_else(|| EthernetAddress::new([0; 6]).ok()),
            mtu,
            admin: Admin::Down,
            controller: None,
            alias: None,
        };
        if let Ok(name) = name.parse::<crate::LinkName>() {
            for (setting, value) in [
                (Sysctl::AcceptRa(name.clone()), "1"),
                (Sysctl::AcceptDad(name.clone()), "1"),
                (Sysctl::DisableIpv6(name.clone()), "0"),
                (Sysctl::RouteLocalnet(name), "0"),
            ] {
                self.settings.insert(setting, value.to_owned());
            }
        }
        let at = self.links.len();
        self.links.push(FakeLink { link, pair: None, queues: Vec::new() });
        &mut self.links[at]
    }

    pub(super) fn refuse_existing(&self, name: &str) -> io::Result<()> {
        let exists = self.links.iter().any(|link| link.link.name == name);
        if exists { Err(ErrorKind::AlreadyExists.into()) } else { Ok(()) }
    }

    pub(super) fn find(&mut self, name: &str) -> io::Result<&mut FakeLink> {
        self.links.iter_mut().find(|link| link.link.name == name).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn forget(&mut self, name: &str) {
        self.links.retain(|link| link.link.name != name);
        for link in &mut self.links {
            if link.link.controller.as_deref() == Some(name) {
                link.link.controller = None;
            }
        }
        self.addresses.retain(|address| address.link != name);
        self.routes.retain(|route| route.link != name);
        self.settings.retain(|setting, _| link_of(setting).is_none_or(|link| link.as_str() != name));
    }

    /// A tap exists as long as one of its descriptors does.
    fn drop_closed_taps(&mut self) {
        let closed = |link: &&FakeLink| !link.queues.is_empty() && link.queues.iter().all(far_end_closed);
        let gone: Vec<String> = self.links.iter().filter(closed).map(|link| link.link.name.clone()).collect();
        gone.iter().for_each(|name| self.forget(name));
    }

    pub(super) fn change(&mut self, name: &str, change: &LinkChange) -> io::Result<()> {
        if let LinkChange::Port(bridge) = change
            && self.find(bridge.as_str())?.link.kind.as_deref() != Some("bridge")
        {
            return Err(ErrorKind::InvalidInput.into());
        }
        let link = &mut self.find(name)?.link;
        match change {
            LinkChange::Mac(mac) => link.mac = Some(*mac),
            LinkChange::Mtu(mtu) => link.mtu = *mtu,
            LinkChange::Up => link.admin = Admin::Up,
            LinkChange::Down => link.admin = Admin::Down,
            LinkChange::Port(bridge) => link.controller = Some(bridge.to_string()),
            LinkChange::NoPort => link.controller = None,
            LinkChange::Alias(alias) => link.alias = (!alias.is_empty()).then(|| alias.clone()),
        }
        match change {
            LinkChange::Up => self.connect(name),
            LinkChange::Down => self.disconnect(name),
            LinkChange::Mac(_)
            | LinkChange::Mtu(_)
            | LinkChange::Port(_)
            | LinkChange::NoPort
            | LinkChange::Alias(_) => {}
        }
        Ok(())
    }

    /// The kernel's own routes appear with the link.
    fn connect(&mut self, name: &str) {
        if name == "lo" {
            for own in ["127.0.0.1/8", "::1/128"].into_iter().filter_map(|text| text.parse().ok()) {
                self.addresses.push(LinkAddress { link: name.to_owned(), address: own });
            }
            return;
        }
        let addresses: Vec<IpNet> = self.addresses_of(name).collect();
        addresses.into_iter().for_each(|address| self.add_connected(name, address));
    }

    /// A link set down loses its routes, and its IPv6 addresses.
    fn disconnect(&mut self, name: &str) {
        self.routes.retain(|route| route.link != name);
        self.addresses.retain(|seen| seen.link != name || (seen.address.addr().is_ipv4() && name != "lo"));
    }

    fn addresses_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = IpNet> + 'a {
        self.addresses.iter().filter(move |seen| seen.link == name).map(|seen| seen.address)
    }

    fn add_connected(&mut self, name: &str, address: IpNet) {
        if address.prefix_len() == address.max_prefix_len() && address.addr().is_ipv4() {
            return;
        }
        let route = Route { to: address.trunc(), via: None, link: name.to_owned(), origin: Origin::Kernel };
        if !self.routes.contains(&route) {
            self.routes.push(route);
        }
    }

    pub(super) fn add_address(&mut self, name: &str, address: IpNet) -> io::Result<()> {
        let up = self.find(name)?.link.admin == Admin::Up;
        if self.addresses_of(name).any(|present| present == address) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let disabled = |setting: &Sysctl| matches!(setting, Sysctl::DisableIpv6(link) if link.as_str() == name);
        let no_ipv6 = self.settings.iter().any(|(setting, value)| disabled(setting) && value == "1");
        if no_ipv6 && address.addr().is_ipv6() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.addresses.push(LinkAddress { link: name.to_owned(), address });
        if up {
            self.add_connected(name, address);
        }
        Ok(())
    }

    pub(super) fn delete_address(&mut self, name: &str, address: IpNet) -> io::Result<()> {
        self.find(name)?;
        if !self.addresses_of(name).any(|present| present == address) {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        self.addresses.retain(|seen| seen.link != name || seen.address != address);
        let connected = Route { to: address.trunc(), via: None, link: name.to_owned(), origin: Origin::Kernel };
        self.routes.retain(|route| *route != connected);
        if address.addr().is_ipv4() {
            // Without any address left, and for gateways no longer in reach, IPv4 routes go too.
            let left = self.addresses_of(name).any(|present| present.addr().is_ipv4());
            let lost = |via: IpAddr| address.contains(&via);
            let kept = |route: &Route| left && !route.via.is_some_and(lost);
            self.routes.retain(|route| route.link != name || route.to.addr().is_ipv6() || kept(route));
        }
        Ok(())
    }

    pub(super) fn add_route(&mut self, route: &Route) -> io::Result<()> {
        if self.find(&route.link)?.link.admin == Admin::Down {
            return Err(ErrorKind::NetworkDown.into());
        }
        let same = |present: &Route| present.to == route.to && (present.via == route.via || route.to.addr().is_ipv4());
        if self.routes.iter().any(same) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let direct = |via: &IpAddr| self.routes.iter().any(|known| known.via.is_none() && known.to.contains(via));
        if route.via.as_ref().is_some_and(|via| !direct(via)) {
            return Err(ErrorKind::NetworkUnreachable.into());
        }
        self.routes.push(route.clone());
        Ok(())
    }

    pub(super) fn change_setting(&mut self, setting: &Sysctl, value: &str) -> io::Result<()> {
        *self.settings.get_mut(setting).ok_or(ErrorKind::NotFound)? = value.to_owned();
        if let Sysctl::DisableIpv6(link) = setting
            && value == "1"
        {
            let name = link.as_str();
            self.addresses.retain(|seen| seen.link != name || seen.address.addr().is_ipv4());
            self.routes.retain(|route| route.link != name || route.to.addr().is_ipv4());
        }
        Ok(())
    }
}

fn link_of(setting: &Sysctl) -> Option<&crate::LinkName> {
    match setting {
        Sysctl::Ipv4Forwarding | Sysctl::Ipv6Forwarding => None,
        Sysctl::AcceptRa(link) | Sysctl::AcceptDad(link) | Sysctl::DisableIpv6(link) | Sysctl::RouteLocalnet(link) => {
            Some(link)
        }
    }
}

/// Whether the other end of a socket pair has no holder any more.
fn far_end_closed(queue: &OwnedFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut polled = [PollFd::new(queue.as_fd(), PollFlags::empty())];
    let _ = poll(&mut polled, PollTimeout::ZERO);
    polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
}
