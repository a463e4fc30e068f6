//! The DHCPv4 server, as a function from a packet to an answer. It has one client, known by its MAC address,
//! and one address to give, for ever: a lease that never ends needs no renewal, so a guest keeps its
//! address while no server runs. Pure.
//!
//! Sources followed: RFC 2131, RFC 2132, RFC 3397 (search), RFC 3442 (classless routes), RFC 6842 (client identifier).

use std::net::{IpAddr, Ipv4Addr};

use dhcproto::v4::borrowed;
use dhcproto::v4::{DhcpOption, HType, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Encodable, Encoder};
use ipnet::Ipv4Net;

use super::options::{DhcpOptions, OptionError};
use crate::names::EthernetAddress;
use crate::plan::guest::GuestIpv4;

/// Longest packet looked at, bytes.
pub const PACKET_MAX: usize = 1500;
/// Answers are filled up to this, the least a BOOTP packet may have, bytes (RFC 1542).
const ANSWER_MIN: usize = 300;
/// What a client accepts unless it states otherwise: 576 bytes less the IP and UDP headers (RFC 2131).
const ANSWER_DEFAULT_MAX: usize = 576 - 28;
/// Bytes of the fixed fields and the magic cookie.
const FIXED: usize = 240;
/// A lease without end.
const INFINITE: u32 = u32::MAX;
/// Length of the `file` field with its closing NUL.
const FILE_MAX: usize = 127;

/// All the server's settings, ready to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config4 {
    client: EthernetAddress,
    address: Ipv4Net,
    server: Ipv4Addr,
    boot_server: Option<Ipv4Addr>,
    boot_file: Option<String>,
    /// In the order of importance: the last are left out first when a client takes only short packets.
    options: Vec<DhcpOption>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its content.
    pub kind: MessageKind,
    /// The packet.
    pub bytes: Vec<u8>,
    /// Where to send it, port 68.
    pub to: Ipv4Addr,
    /// Codes of options that did not fit into what the client takes.
    pub left_out: Vec<u8>,
}

/// An answer's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// The address is there to be asked for.
    Offer,
    /// It is yours.
    Ack,
    /// You may not use what you asked for.
    Nak,
}

impl Config4 {
    /// For the guest with that MAC address.
    pub fn new(
        client: EthernetAddress,
        lease: &GuestIpv4,
        mtu: u16,
        options: &DhcpOptions,
    ) -> Result<Self, OptionError> {
        options.check()?;
        let boot_server = options.tftp_server_name.as_deref().and_then(|name| name.parse().ok());
        Ok(Self {
            client,
            address: lease.address,
            server: lease.server,
            boot_server,
            boot_file: options.boot_file_name.clone().filter(|name| name.len() <= FILE_MAX),
            options: guest_options(lease, mtu, options),
        })
    }
}

fn guest_options(lease: &GuestIpv4, mtu: u16, options: &DhcpOptions) -> Vec<DhcpOption> {
    // All of them: an option that is not sent is an error here.
    let DhcpOptions {
        hostname,
        domain,
        searches: _,
        nameservers,
        boot_file_name,
        tftp_server_name,
        ntp_servers,
        private,
    } = options;
    let mut options_sent = vec![DhcpOption::SubnetMask(lease.address.netmask())];
    options_sent.extend(lease.gateway.map(|gateway| DhcpOption::Router(vec![gateway])));
    if let Some(routes) = classless(lease) {
        options_sent.push(routes);
    }
    let ipv4 = |address: &IpAddr| if let IpAddr::V4(address) = address { Some(*address) } else { None };
    let nameservers: Vec<Ipv4Addr> = nameservers.iter().filter_map(ipv4).collect();
    if !nameservers.is_empty() {
        options_sent.push(DhcpOption::DomainNameServer(nameservers));
    }
    options_sent.push(DhcpOption::InterfaceMtu(mtu));
    options_sent.extend(hostname.clone().map(DhcpOption::Hostname));
    options_sent.extend(domain.clone().map(DhcpOption::DomainName));
    options_sent.extend(tftp_server_name.clone().map(|name| DhcpOption::TFTPServerName(name.into_bytes())));
    options_sent.extend(boot_file_name.clone().map(|name| DhcpOption::BootfileName(name.into_bytes())));
    if !ntp_servers.is_empty() {
        options_sent.push(DhcpOption::NtpServers(ntp_servers.clone()));
    }
    let searches = options.search_names();
    if !searches.is_empty() {
        options_sent.push(DhcpOption::DomainSearch(searches));
    }
    options_sent.extend(private.iter().map(|option| unknown(option.code, option.value.clone().into_bytes())));
    options_sent
}

fn unknown(code: u8, value: Vec<u8>) -> DhcpOption {
    DhcpOption::Unknown(UnknownOption::new(OptionCode::from(code), value))
}

/// Option 121, when there are routes beside the default one. A client that reads it ignores the router
/// option, so the default route is in it too.
fn classless(lease: &GuestIpv4) -> Option<DhcpOption> {
    let off_link = lease.gateway.filter(|gateway| !lease.address.contains(gateway));
    if lease.routes.is_empty() && off_link.is_none() {
        return None;
    }
    let direct = Ipv4Addr::UNSPECIFIED;
    let mut routes: Vec<(Ipv4Net, Ipv4Addr)> =
        lease.routes.iter().map(|route| (route.to, route.via.unwrap_or(direct))).collect();
    let reached = |gateway: &Ipv4Addr| routes.iter().any(|(to, via)| *via == direct && to.contains(gateway));
    if let Some(gateway) = off_link.filter(|gateway| !reached(gateway)) {
        routes.insert(0, (Ipv4Net::from(gateway), direct));
    }
    routes.extend(lease.gateway.map(|gateway| (Ipv4Net::default(), gateway)));
    Some(DhcpOption::ClasslessStaticRoute(routes))
}

/// What is needed of a request.
struct Request<'a> {
    packet: borrowed::Message<'a>,
    kind: MessageType,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    answer_max: usize,
    /// What the client calls itself, to be given back as it is.
    identifier: Option<Vec<u8>>,
}

impl<'a> Request<'a> {
    /// Reads a packet of the one client; anything else is none.
    fn read(client: EthernetAddress, bytes: &'a [u8]) -> Option<Self> {
        let packet = borrowed::Message::new(bytes.get(..bytes.len().min(PACKET_MAX))?).ok()?;
        let ethernet = packet.htype() == HType::Eth && packet.hlen() == 6;
        // Not `packet.chaddr()`: it trusts the length byte of the packet and panics on a short one.
        let from_client = bytes.get(28..34)? == client.bytes().as_slice();
        let direct = packet.giaddr().is_unspecified();
        if packet.opcode() != Opcode::BootRequest || !ethernet || !from_client || !direct {
            return None;
        }
        let kind = MessageType::Unknown(0);
        let mut request = Self { packet, kind, requested: None, server: None, answer_max: 0, identifier: None };
        for option in request.packet.opts() {
            request.note(option.code(), option.data());
        }
        request.answer_max = request.answer_max.max(ANSWER_DEFAULT_MAX);
        Some(request)
    }

    fn note(&mut self, code: OptionCode, data: &[u8]) {
        if code == OptionCode::MessageType {
            self.kind = data.first().map_or(self.kind, |&kind| kind.into());
        } else if code == OptionCode::RequestedIpAddress {
            self.requested = address(data);
        } else if code == OptionCode::ServerIdentifier {
            self.server = address(data);
        } else if code == OptionCode::ClientIdentifier {
            self.identifier = Some(data.to_vec()).filter(|data| !data.is_empty());
        } else if code == OptionCode::MaxMessageSize {
            let size = <[u8; 2]>::try_from(data).map_or(0, u16::from_be_bytes);
            self.answer_max = usize::from(size).saturating_sub(28).min(PACKET_MAX - 28);
        }
    }
}

fn address(data: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(data).ok().map(Ipv4Addr::from)
}

/// The answer to a packet, if it deserves one.
pub fn respond(config: &Config4, packet: &[u8]) -> Option<Answer> {
    let request = Request::read(config.client, packet)?;
    let kind = if request.kind == MessageType::Discover {
        MessageKind::Offer
    } else if request.kind == MessageType::Inform {
        MessageKind::Ack
    } else if request.kind == MessageType::Request {
        judge(config, &request)?
    } else {
        // A declined or released address is still the only one there is: the next discover offers it again.
        return None;
    };
    Answer::build(config, &request, kind)
}

/// RFC 2131, section 4.3.2: which of the client's states sent this request, and may it have what it requests.
fn judge(config: &Config4, request: &Request<'_>) -> Option<MessageKind> {
    if request.server.is_some_and(|server| server != config.server) {
        return None;
    }
    let own = request.packet.ciaddr();
    let wanted = request.requested.or((!own.is_unspecified()).then_some(own))?;
    Some(if wanted == config.address.addr() { MessageKind::Ack } else { MessageKind::Nak })
}

impl Answer {
    fn build(config: &Config4, request: &Request<'_>, kind: MessageKind) -> Option<Self> {
        let inform = request.kind == MessageType::Inform;
        let mut message = Message::new_with_id(
            request.packet.xid(),
            if kind == MessageKind::Nak { Ipv4Addr::UNSPECIFIED } else { request.packet.ciaddr() },
            if inform || kind == MessageKind::Nak { Ipv4Addr::UNSPECIFIED } else { config.address.addr() },
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::UNSPECIFIED,
            &config.client.bytes(),
        );
        message.set_opcode(Opcode::BootReply).set_flags(request.packet.flags());
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(kind.into()));
        options.insert(DhcpOption::ServerIdentifier(config.server));
        // A client that names itself may drop an answer that does not state for whom it is, also a refusal.
        request.identifier.clone().map(|identifier| options.insert(DhcpOption::ClientIdentifier(identifier)));
        let mut left_out = Vec::new();
        let bytes = if kind == MessageKind::Nak {
            encode(&message)?
        } else {
            if !inform {
                options.insert(DhcpOption::AddressLeaseTime(INFINITE));
            }
            config.boot_server.map(|server| message.set_siaddr(server));
            config.boot_file.as_ref().map(|file| message.set_fname_str(file));
            fill(&mut message, &config.options, request.answer_max, &mut left_out)?
        };
        // A client that has the address can be reached there; any other receives only broadcasts.
        let bound = request.packet.ciaddr() == config.address.addr() && kind != MessageKind::Nak;
        let to = if bound { config.address.addr() } else { Ipv4Addr::BROADCAST };
        Some(Self { kind, bytes, to, left_out })
    }
}

impl From<MessageKind> for MessageType {
    fn from(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Offer => Self::Offer,
            MessageKind::Ack => Self::Ack,
            MessageKind::Nak => Self::Nak,
        }
    }
}

/// Adds as many options as fit, the most important first.
fn fill(message: &mut Message, options: &[DhcpOption], limit: usize, left_out: &mut Vec<u8>) -> Option<Vec<u8>> {
    for option in options {
        message.opts_mut().insert(option.clone());
    }
    let mut bytes = encode(message)?;
    for option in options.iter().rev() {
        if bytes.len() <= limit.max(FIXED) {
            break;
        }
        let code = OptionCode::from(option);
        message.opts_mut().remove(code);
        left_out.push(u8::from(code));
        bytes = encode(message)?;
    }
    Some(bytes)
}

fn encode(message: &Message) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ANSWER_MIN);
    message.encode(&mut Encoder::new(&mut bytes)).ok()?;
    bytes.resize(bytes.len().max(ANSWER_MIN), 0);
    Some(bytes)
}

/// For the fuzzer: a fixed server must answer any bytes without panicking, and answer only its client.
pub fn fuzz_dhcp4(bytes: &[u8]) {
    let Ok(client) = EthernetAddress::new([2, 0, 0, 0, 0, 1]) else { return };
    let lease = GuestIpv4 {
        address: Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 2, 2), 24),
        server: Ipv4Addr::new(10, 0, 2, 1),
        gateway: Some(Ipv4Addr::new(10, 0, 2, 1)),
        routes: Vec::new(),
    };
    let Ok(config) = Config4::new(client, &lease, 1500, &DhcpOptions::default()) else { return };
    if let Some(answer) = respond(&config, bytes) {
        assert_eq!(answer.bytes.get(28..34), Some(client.bytes().as_slice()));
        assert!(answer.bytes.len() <= PACKET_MAX);
    }
}

#[cfg(test)]
mod tests;
