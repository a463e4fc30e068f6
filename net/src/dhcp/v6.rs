//! The stateful DHCPv6 server, as a function from a packet to an answer. One address, one client: the guest, the only other
//! host on this link. Its identity is returned as sent (a firmware and the system
//! it boots present different ones), so nothing is remembered between packets. Pure.
//!
//! Packets are read by a small reader of our own and not by dhcproto: that one subtracts from length fields
//! unchecked and recurses as deep as a packet nests. Answers are written by dhcproto.
//!
//! Sources followed: RFC 8415, RFC 3646 (name servers).

use std::net::{IpAddr, Ipv6Addr};

use dhcproto::v6::{DhcpOption, DhcpOptions as Encoded, IAAddr, IANA, Message, MessageType, Status, StatusCode};
use dhcproto::{Encodable, Encoder};

use super::options::{DhcpOptions, OptionError};
use crate::names::EthernetAddress;
use crate::plan::desired::GATEWAY_MAC;
use crate::plan::guest::GuestIpv6;

/// Longest packet looked at, bytes.
pub const PACKET_MAX: usize = 1500;
/// Longest identity a client may have, bytes (RFC 8415, section 11.1: 128 and the two of its type).
const IDENTITY_MAX: usize = 130;
/// Most identity associations of one packet that are answered.
const ASSOCIATIONS_MAX: usize = 4;
/// Most addresses of one association that are answered.
const ADDRESSES_MAX: usize = 8;
/// A lease without end.
const INFINITE: u32 = u32::MAX;

const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDR: u16 = 5;
const RAPID_COMMIT: u16 = 14;

/// All the server's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config6 {
    pub(super) lease: GuestIpv6,
    pub(super) nameservers: Vec<Ipv6Addr>,
    pub(super) options: DhcpOptions,
    pub(super) mtu: u16,
    identity: Vec<u8>,
}

impl Config6 {
    /// For the guest of that lease.
    pub fn new(lease: &GuestIpv6, mtu: u16, options: &DhcpOptions) -> Result<Self, OptionError> {
        options.check()?;
        let ipv6 = |address: &IpAddr| if let IpAddr::V6(address) = address { Some(*address) } else { None };
        let nameservers = options.nameservers.iter().filter_map(ipv6).collect();
        Ok(Self { lease: *lease, nameservers, options: options.clone(), mtu, identity: identity() })
    }
}

/// DUID-LL of the gateway's Ethernet address, the same wherever the guest migrates.
fn identity() -> Vec<u8> {
    let mac = GATEWAY_MAC.parse().unwrap_or_else(|_| EthernetAddress::derived(GATEWAY_MAC));
    [0, 3, 0, 1].into_iter().chain(mac.bytes()).collect()
}

/// One option: code and value.
type Raw<'a> = (u16, &'a [u8]);

/// The options of a packet or of another option, as far as their lengths are right.
fn options(mut bytes: &[u8]) -> impl Iterator<Item = Raw<'_>> {
    std::iter::from_fn(move || {
        let ([a, b, c, d], rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_be_bytes([*c, *d]));
        let (value, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        Some((u16::from_be_bytes([*a, *b]), value))
    })
}

/// What is needed of a request.
struct Request<'a> {
    kind: MessageType,
    transaction: [u8; 3],
    client: Option<&'a [u8]>,
    server: Option<&'a [u8]>,
    rapid: bool,
    associations: Vec<Association>,
}

/// What a client asks under one identity association.
struct Association {
    id: u32,
    addresses: Vec<Ipv6Addr>,
}

impl<'a> Request<'a> {
    fn read(packet: &'a [u8]) -> Option<Self> {
        let ([kind, a, b, c], rest) = packet.get(..packet.len().min(PACKET_MAX))?.split_first_chunk::<4>()?;
        let mut request = Self {
            kind: (*kind).into(),
            transaction: [*a, *b, *c],
            client: None,
            server: None,
            rapid: false,
            associations: Vec::new(),
        };
        for (code, value) in options(rest) {
            match code {
                CLIENT_ID if (1..=IDENTITY_MAX).contains(&value.len()) => request.client = Some(value),
                SERVER_ID => request.server = Some(value),
                RAPID_COMMIT => request.rapid = true,
                IA_NA if request.associations.len() < ASSOCIATIONS_MAX => {
                    request.associations.extend(Association::read(value));
                }
                _ => {}
            }
        }
        Some(request)
    }
}

impl Association {
    fn read(value: &[u8]) -> Option<Self> {
        let (id, rest) = value.split_first_chunk::<4>()?;
        let address = |(_, value): Raw<'_>| value.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes));
        // Two times follow the id; the client's values for them are ignored.
        let inside = options(rest.get(8..)?).filter(|(code, _)| *code == IA_ADDR);
        let addresses = inside.filter_map(address).take(ADDRESSES_MAX).collect();
        Some(Self { id: u32::from_be_bytes(*id), addresses })
    }
}

/// The answer to a packet, if it deserves one; it goes back to where the packet came from.
pub fn respond(config: &Config6, packet: &[u8]) -> Option<Vec<u8>> {
    let request = Request::read(packet)?;
    let (kind, body) = judge(config, &request)?;
    let mut message = Message::new_with_id(kind, request.transaction);
    let options = message.opts_mut();
    options.insert(DhcpOption::ServerId(config.identity.clone()));
    if let Some(client) = request.client {
        options.insert(DhcpOption::ClientId(client.to_vec()));
    }
    if request.kind == MessageType::Solicit && request.rapid {
        options.insert(DhcpOption::RapidCommit);
    }
    if kind == MessageType::Advertise {
        // There is no other server to wait for.
        options.insert(DhcpOption::Preference(255));
    }
    guest_options(config).into_iter().chain(body).for_each(|option| options.insert(option));
    let mut bytes = Vec::with_capacity(256);
    message.encode(&mut Encoder::new(&mut bytes)).ok()?;
    Some(bytes)
}

/// RFC 8415, section 18.3: kind and body of the answer. Some messages must name this server, others must name
/// none; only a question for information may come without a client.
fn judge(config: &Config6, request: &Request<'_>) -> Option<(MessageType, Vec<DhcpOption>)> {
    use MessageType::{
        Advertise, Confirm, Decline, InformationRequest, Rebind, Release, Renew, Reply, Request, Solicit,
    };
    let ours = request.server == Some(config.identity.as_slice());
    let is_to_all = request.server.is_none();
    let asked = |kinds: &[MessageType]| kinds.contains(&request.kind);
    if asked(&[InformationRequest]) && (is_to_all || ours) {
        return Some((Reply, Vec::new()));
    }
    request.client?;
    if asked(&[Solicit]) && is_to_all {
        Some((if request.rapid { Reply } else { Advertise }, leases(config, request)))
    } else if (asked(&[Request, Renew]) && ours) || (asked(&[Rebind]) && is_to_all) {
        Some((Reply, leases(config, request)))
    } else if asked(&[Confirm]) && is_to_all {
        Some((Reply, confirm(config, request)?))
    } else if asked(&[Release, Decline]) && ours {
        Some((Reply, vec![status(Status::Success)]))
    } else {
        None
    }
}

fn guest_options(config: &Config6) -> Vec<DhcpOption> {
    let mut sent = Vec::new();
    if !config.nameservers.is_empty() {
        sent.push(DhcpOption::DomainNameServers(config.nameservers.clone()));
    }
    let searches = config.options.search_names();
    if !searches.is_empty() {
        sent.push(DhcpOption::DomainSearchList(searches));
    }
    sent
}

/// The association that names the address already gets it, else the first; others get none. Addresses that
/// are not ours end now.
fn leases(config: &Config6, request: &Request<'_>) -> Vec<DhcpOption> {
    let named = |association: &Association| association.addresses.contains(&config.lease.address);
    let chosen = request.associations.iter().position(named).unwrap_or(0);
    let lease = |(at, association): (usize, &Association)| {
        let mut opts = Encoded::new();
        let foreign = association.addresses.iter().filter(|address| **address != config.lease.address);
        foreign.for_each(|address| opts.insert(address_option(*address, 0)));
        if at == chosen {
            opts.insert(address_option(config.lease.address, INFINITE));
        } else {
            opts.insert(status(Status::NoAddrsAvail));
        }
        DhcpOption::IANA(IANA { id: association.id, t1: INFINITE, t2: INFINITE, opts })
    };
    request.associations.iter().enumerate().map(lease).collect()
}

fn address_option(addr: Ipv6Addr, lifetime: u32) -> DhcpOption {
    DhcpOption::IAAddr(IAAddr { addr, preferred_life: lifetime, valid_life: lifetime, opts: Encoded::new() })
}

fn status(status: Status) -> DhcpOption {
    DhcpOption::StatusCode(StatusCode { status, msg: String::new() })
}

/// Whether the addresses a client remembers fit this link; a client that names none is not answered.
fn confirm(config: &Config6, request: &Request<'_>) -> Option<Vec<DhcpOption>> {
    let mut addresses = request.associations.iter().flat_map(|association| &association.addresses).peekable();
    addresses.peek()?;
    let fit = addresses.all(|address| config.lease.network.contains(address));
    Some(vec![status(if fit { Status::Success } else { Status::NotOnLink })])
}

/// For the fuzzer: a fixed server must answer any bytes without panicking, and shortly.
pub fn fuzz_dhcp6(bytes: &[u8]) {
    let network = crate::plan::DEFAULT_IPV6;
    let [address, gateway] = [2, 1].map(|end| Ipv6Addr::from(u128::from(network.network()) | end));
    let lease = GuestIpv6 { address, network, gateway };
    let Ok(config) = Config6::new(&lease, 1500, &DhcpOptions::default()) else { return };
    if let Some(answer) = respond(&config, bytes) {
        assert!(answer.len() <= PACKET_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhcproto::Decodable;
    use proptest::prelude::*;

    const CLIENT: [u8; 6] = [0, 4, 1, 2, 3, 4];

    fn config() -> Config6 {
        let lease = GuestIpv6 {
            address: "fd10:0:2::2".parse().unwrap(),
            network: "fd10:0:2::/120".parse().unwrap(),
            gateway: "fd10:0:2::1".parse().unwrap(),
        };
        let options = DhcpOptions {
            nameservers: vec!["fd00::53".parse().unwrap(), "10.0.0.53".parse().unwrap()],
            searches: vec!["cluster.local".to_owned()],
            ..Default::default()
        };
        Config6::new(&lease, 1500, &options).unwrap()
    }

    fn message(kind: MessageType, options: impl IntoIterator<Item = DhcpOption>) -> Message {
        let mut message = Message::new_with_id(kind, [1, 2, 3]);
        message.opts_mut().insert(DhcpOption::ClientId(CLIENT.to_vec()));
        options.into_iter().for_each(|option| message.opts_mut().insert(option));
        message
    }

    fn association(id: u32, addresses: &[&str]) -> DhcpOption {
        let address = |text: &&str| address_option(text.parse().unwrap(), 100);
        DhcpOption::IANA(IANA { id, t1: 0, t2: 0, opts: addresses.iter().map(address).collect() })
    }

    fn server() -> DhcpOption {
        DhcpOption::ServerId(identity())
    }

    fn ask(message: &Message) -> Option<Message> {
        respond(&config(), &message.to_vec().unwrap()).map(|bytes| Message::from_bytes(&bytes).unwrap())
    }

    fn addresses(message: &Message) -> Vec<(u32, String, u32)> {
        let mut found = Vec::new();
        for option in message.opts().iter() {
            let DhcpOption::IANA(association) = option else { continue };
            for option in association.opts.iter() {
                if let DhcpOption::IAAddr(address) = option {
                    found.push((association.id, address.addr.to_string(), address.valid_life));
                }
            }
        }
        found
    }

    #[test]
    fn a_solicit_is_advertised_the_address_and_the_name_servers() {
        let answer = ask(&message(MessageType::Solicit, [association(7, &[])])).unwrap();
        assert_eq!((answer.msg_type(), answer.xid()), (MessageType::Advertise, [1, 2, 3]));
        assert_eq!(addresses(&answer), [(7, "fd10:0:2::2".to_owned(), INFINITE)]);
        let options: Vec<&DhcpOption> = answer.opts().iter().collect();
        assert!(options.contains(&&DhcpOption::ClientId(CLIENT.to_vec())));
        assert!(options.contains(&&DhcpOption::DomainNameServers(vec!["fd00::53".parse().unwrap()])));
        assert!(options.iter().any(|option| matches!(option, DhcpOption::DomainSearchList(names) if names.len() == 1)));
    }

    #[test]
    fn a_hurried_solicit_is_answered_at_once() {
        let answer = ask(&message(MessageType::Solicit, [association(7, &[]), DhcpOption::RapidCommit])).unwrap();
        assert_eq!(answer.msg_type(), MessageType::Reply);
        assert!(answer.opts().iter().any(|option| *option == DhcpOption::RapidCommit));
    }

    #[test]
    fn a_request_is_granted_only_by_the_server_it_names() {
        let request = |server| ask(&message(MessageType::Request, [association(7, &["fd10:0:2::2"]), server]));
        let granted = request(server()).unwrap();
        assert_eq!(addresses(&granted), [(7, "fd10:0:2::2".to_owned(), INFINITE)]);
        assert_eq!(request(DhcpOption::ServerId(vec![0, 3, 9])), None);
    }

    #[test]
    fn a_foreign_address_ends_and_a_second_association_gets_none() {
        let asked = [association(8, &[]), association(7, &["fd99::1", "fd10:0:2::2"]), server()];
        let answer = ask(&message(MessageType::Renew, asked)).unwrap();
        let expected = [(7, "fd10:0:2::2".to_owned(), INFINITE), (7, "fd99::1".to_owned(), 0)];
        let mut got = addresses(&answer);
        got.sort();
        assert_eq!(got, expected);
    }

    #[test]
    fn a_moved_client_learns_that_its_address_does_not_fit() {
        let confirmed = |address: &str| {
            let answer = ask(&message(MessageType::Confirm, [association(7, &[address])])).unwrap();
            let status =
                |option: &DhcpOption| if let DhcpOption::StatusCode(code) = option { Some(code.status) } else { None };
            answer.opts().iter().find_map(status)
        };
        assert_eq!(confirmed("fd10:0:2::77"), Some(Status::Success));
        assert_eq!(confirmed("fd99::1"), Some(Status::NotOnLink));
        assert_eq!(ask(&message(MessageType::Confirm, [association(7, &[])])), None);
    }

    #[test]
    fn release_decline_and_information_are_answered() {
        for kind in [MessageType::Release, MessageType::Decline] {
            assert_eq!(ask(&message(kind, [server()])).unwrap().msg_type(), MessageType::Reply);
            assert_eq!(ask(&message(kind, [])), None);
        }
        let answer = ask(&Message::new_with_id(MessageType::InformationRequest, [0, 0, 9])).unwrap();
        assert!(answer.opts().iter().any(|option| matches!(option, DhcpOption::DomainNameServers(_))));
    }

    #[test]
    fn what_no_client_sends_is_not_answered() {
        for kind in [MessageType::Advertise, MessageType::Reply, MessageType::RelayForw, MessageType::Unknown(99)] {
            assert_eq!(ask(&message(kind, [association(1, &[])])), None, "{kind:?}");
        }
        let anonymous = Message::new_with_id(MessageType::Solicit, [0, 0, 1]);
        assert_eq!(ask(&anonymous), None);
        let long = message(MessageType::Solicit, []).to_vec().unwrap();
        let mut packet = long[..4].to_vec();
        packet.extend([0, 1, 1, 0].into_iter().chain([7; 256]));
        assert_eq!(respond(&config(), &packet), None, "an identity that is too long");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
            fuzz_dhcp6(&bytes);
        }

        #[test]
        fn answers_stay_short_whatever_is_asked(
            kind in 1u8..12,
            associations in proptest::collection::vec((any::<u32>(), proptest::collection::vec(any::<u128>(), 0..40)), 0..20),
        ) {
            let mut asked = message(kind.into(), []);
            for (id, wanted) in associations {
                let opts = wanted.into_iter().map(|address| address_option(address.into(), 1)).collect();
                asked.opts_mut().insert(DhcpOption::IANA(IANA { id, t1: 0, t2: 0, opts }));
            }
            if let Some(answer) = respond(&config(), &asked.to_vec().unwrap()) {
                prop_assert!(answer.len() < PACKET_MAX);
                prop_assert!(Message::from_bytes(&answer).is_ok());
            }
        }
    }
}
