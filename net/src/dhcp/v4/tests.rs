use super::super::options::PrivateOption;
use super::*;
use crate::plan::guest::GuestRoute;
use dhcproto::Decodable;
use dhcproto::v4::Flags;
use proptest::prelude::*;

const CLIENT: [u8; 6] = [2, 0, 0, 0xaa, 0xbb, 1];
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);

fn lease() -> GuestIpv4 {
    GuestIpv4 { address: "10.0.2.2/24".parse().unwrap(), server: SERVER, gateway: Some(SERVER), routes: Vec::new() }
}

fn options() -> DhcpOptions {
    DhcpOptions {
        hostname: Some("vm".to_owned()),
        domain: Some("ns.svc.cluster.local".to_owned()),
        searches: vec!["ns.svc.cluster.local".to_owned(), "cluster.local".to_owned()],
        nameservers: vec!["10.96.0.10".parse().unwrap(), "fd00::10".parse().unwrap()],
        boot_file_name: Some("pxelinux.0".to_owned()),
        tftp_server_name: Some("192.0.2.69".to_owned()),
        ntp_servers: vec![Ipv4Addr::new(192, 0, 2, 123)],
        private: vec![PrivateOption { code: 240, value: "private".to_owned() }],
    }
}

fn config() -> Config4 {
    Config4::new(EthernetAddress::new(CLIENT).unwrap(), &lease(), 1450, &options()).unwrap()
}

fn request(kind: MessageType) -> Message {
    let zero = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(0x1234_5678, zero, zero, zero, zero, &CLIENT);
    message.set_flags(Flags::default().set_broadcast()).opts_mut().insert(DhcpOption::MessageType(kind));
    message
}

fn with(mut message: Message, option: DhcpOption) -> Message {
    message.opts_mut().insert(option);
    message
}

fn ask(message: &Message) -> Option<Answer> {
    respond(&config(), &message.to_vec().unwrap())
}

fn decoded(answer: &Answer) -> Message {
    Message::from_bytes(&answer.bytes).unwrap()
}

#[test]
fn a_discover_is_offered_the_address_with_all_options_of_the_guest() {
    let answer = ask(&request(MessageType::Discover)).unwrap();
    assert_eq!((answer.kind, answer.to, answer.left_out.len()), (MessageKind::Offer, Ipv4Addr::BROADCAST, 0));
    let offer = decoded(&answer);
    assert_eq!((offer.yiaddr(), offer.xid(), offer.opts().msg_type()), (GUEST, 0x1234_5678, Some(MessageType::Offer)));
    assert_eq!(offer.siaddr(), Ipv4Addr::new(192, 0, 2, 69));
    assert_eq!(offer.fname_str().unwrap().unwrap().trim_end_matches('\0'), "pxelinux.0");
    let sent: Vec<DhcpOption> = offer.opts().iter().map(|(_, option)| option.clone()).collect();
    for expected in [
        DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)),
        DhcpOption::Router(vec![SERVER]),
        DhcpOption::DomainNameServer(vec![Ipv4Addr::new(10, 96, 0, 10)]),
        DhcpOption::Hostname("vm".to_owned()),
        DhcpOption::DomainName("ns.svc.cluster.local".to_owned()),
        DhcpOption::InterfaceMtu(1450),
        DhcpOption::NtpServers(vec![Ipv4Addr::new(192, 0, 2, 123)]),
        DhcpOption::AddressLeaseTime(u32::MAX),
        DhcpOption::ServerIdentifier(SERVER),
        DhcpOption::TFTPServerName(b"192.0.2.69".to_vec()),
        DhcpOption::BootfileName(b"pxelinux.0".to_vec()),
        unknown(240, b"private".to_vec()),
    ] {
        assert!(sent.contains(&expected), "{expected:?} not in {sent:?}");
    }
    let Some(DhcpOption::DomainSearch(names)) = offer.opts().get(OptionCode::DomainSearch) else { panic!() };
    assert_eq!(names.len(), 2);
    assert!(offer.opts().get(OptionCode::ClasslessStaticRoute).is_none());
}

#[test]
fn a_request_for_the_address_is_acknowledged_and_for_another_refused() {
    let selecting = |address| {
        let message = with(request(MessageType::Request), DhcpOption::ServerIdentifier(SERVER));
        ask(&with(message, DhcpOption::RequestedIpAddress(address))).unwrap()
    };
    assert_eq!(selecting(GUEST).kind, MessageKind::Ack);
    assert_eq!(decoded(&selecting(GUEST)).yiaddr(), GUEST);
    let refused = selecting(Ipv4Addr::new(192, 168, 0, 7));
    assert_eq!((refused.kind, refused.to), (MessageKind::Nak, Ipv4Addr::BROADCAST));
    assert!(decoded(&refused).yiaddr().is_unspecified());
    assert!(decoded(&refused).opts().get(OptionCode::AddressLeaseTime).is_none());
}

#[test]
fn a_rebooted_guest_that_remembers_its_address_keeps_it() {
    let remembered = |address| ask(&with(request(MessageType::Request), DhcpOption::RequestedIpAddress(address)));
    assert_eq!(remembered(GUEST).unwrap().kind, MessageKind::Ack);
    assert_eq!(remembered(Ipv4Addr::new(10, 0, 2, 9)).unwrap().kind, MessageKind::Nak);
}

#[test]
fn a_renewal_is_answered_where_the_guest_is() {
    let mut renewal = request(MessageType::Request);
    renewal.set_ciaddr(GUEST);
    let answer = ask(&renewal).unwrap();
    assert_eq!((answer.kind, answer.to), (MessageKind::Ack, GUEST));
    renewal.set_ciaddr(Ipv4Addr::new(10, 0, 2, 9));
    let answer = ask(&renewal).unwrap();
    assert_eq!((answer.kind, answer.to), (MessageKind::Nak, Ipv4Addr::BROADCAST));
}

#[test]
fn an_inform_gets_everything_but_an_address() {
    let answer = decoded(&ask(&request(MessageType::Inform)).unwrap());
    assert!(answer.yiaddr().is_unspecified());
    assert!(answer.opts().get(OptionCode::AddressLeaseTime).is_none());
    assert!(answer.opts().get(OptionCode::Router).is_some());
}

#[test]
fn what_is_not_for_us_is_not_answered() {
    for kind in [MessageType::Release, MessageType::Decline, MessageType::Offer, MessageType::Unknown(77)] {
        assert_eq!(ask(&request(kind)), None, "{kind:?}");
    }
    let elsewhere = with(request(MessageType::Request), DhcpOption::ServerIdentifier(Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!(ask(&with(elsewhere, DhcpOption::RequestedIpAddress(GUEST))), None);
    assert_eq!(ask(&request(MessageType::Request)), None, "a request that asks for nothing");
    let mut foreign = request(MessageType::Discover);
    foreign.set_chaddr(&[2, 0, 0, 0, 0, 9]);
    assert_eq!(ask(&foreign), None);
    let mut relayed = request(MessageType::Discover);
    relayed.set_giaddr(Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(ask(&relayed), None);
    let mut reply = request(MessageType::Discover);
    reply.set_opcode(Opcode::BootReply);
    assert_eq!(ask(&reply), None);
    let mut plain = request(MessageType::Discover);
    plain.opts_mut().clear();
    assert_eq!(ask(&plain), None, "BOOTP without DHCP");
}

#[test]
fn a_length_byte_that_is_wrong_is_harmless() {
    let mut bytes = request(MessageType::Discover).to_vec().unwrap();
    bytes[2] = 255;
    assert_eq!(respond(&config(), &bytes), None);
}

#[test]
fn a_client_that_takes_little_gets_what_matters_most() {
    let long = DhcpOptions {
        private: (224..=230).map(|code| PrivateOption { code, value: "x".repeat(200) }).collect(),
        ..options()
    };
    let config = Config4::new(EthernetAddress::new(CLIENT).unwrap(), &lease(), 1450, &long).unwrap();
    let short = respond(&config, &request(MessageType::Discover).to_vec().unwrap()).unwrap();
    assert!(short.bytes.len() <= 548, "{}", short.bytes.len());
    assert_eq!(short.left_out, [230, 229, 228, 227, 226, 225, 224][..short.left_out.len()]);
    assert!(!short.left_out.is_empty());
    let roomy = with(request(MessageType::Discover), DhcpOption::MaxMessageSize(1500));
    let all = respond(&config, &roomy.to_vec().unwrap()).unwrap();
    assert!(all.left_out.len() < short.left_out.len() && all.bytes.len() > 548);
}

#[test]
fn routes_of_a_bridged_pod_reach_the_guest_with_the_default_among_them() {
    let route =
        |to: &str, via: Option<&str>| GuestRoute { to: to.parse().unwrap(), via: via.map(|via| via.parse().unwrap()) };
    let lease = GuestIpv4 { routes: vec![route("10.96.0.0/12", Some("10.0.2.1"))], ..lease() };
    let Some(DhcpOption::ClasslessStaticRoute(routes)) = classless(&lease) else { panic!() };
    let text: Vec<String> = routes.iter().map(|(to, via)| format!("{to} {via}")).collect();
    assert_eq!(text, ["10.96.0.0/12 10.0.2.1", "0.0.0.0/0 10.0.2.1"]);
}

#[test]
fn a_gateway_off_the_guests_network_is_made_reachable_first() {
    let lease = GuestIpv4 {
        address: "10.244.1.7/32".parse().unwrap(),
        gateway: Some(Ipv4Addr::new(169, 254, 1, 1)),
        ..lease()
    };
    let Some(DhcpOption::ClasslessStaticRoute(routes)) = classless(&lease) else { panic!() };
    let text: Vec<String> = routes.iter().map(|(to, via)| format!("{to} {via}")).collect();
    assert_eq!(text, ["169.254.1.1/32 0.0.0.0", "0.0.0.0/0 169.254.1.1"]);
}

#[test]
fn answers_are_never_shorter_than_bootp_demands() {
    let config = Config4::new(EthernetAddress::new(CLIENT).unwrap(), &lease(), 1500, &DhcpOptions::default()).unwrap();
    let answer = respond(&config, &request(MessageType::Discover).to_vec().unwrap()).unwrap();
    assert!(answer.bytes.len() >= 300);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
        fuzz_dhcp4(&bytes);
    }

    #[test]
    fn no_options_of_the_expected_client_make_it_panic(options in proptest::collection::vec(any::<u8>(), 0..700)) {
        let mut bytes = request(MessageType::Discover).to_vec().unwrap();
        bytes.truncate(FIXED);
        bytes.extend(options);
        if let Some(answer) = respond(&config(), &bytes) {
            prop_assert_eq!(&answer.bytes[28..34], &CLIENT[..]);
            prop_assert!(Message::from_bytes(&answer.bytes).is_ok());
        }
    }

    #[test]
    fn a_damaged_request_is_harmless(at in 0usize..300, value in any::<u8>()) {
        let message = with(request(MessageType::Request), DhcpOption::RequestedIpAddress(GUEST));
        let mut bytes = with(message, DhcpOption::MaxMessageSize(1400)).to_vec().unwrap();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        let _ = respond(&config(), &bytes);
    }
}

#[test]
fn a_client_finds_its_identifier_in_every_answer() {
    let named = |kind| with(request(kind), DhcpOption::ClientIdentifier(vec![255, 0, 1, 2, 3]));
    let other = with(named(MessageType::Request), DhcpOption::RequestedIpAddress(Ipv4Addr::new(10, 0, 2, 9)));
    let table = [(named(MessageType::Discover), MessageKind::Offer), (other, MessageKind::Nak)];
    for (message, kind) in table {
        let answer = ask(&message).unwrap();
        assert_eq!(answer.kind, kind);
        let given = decoded(&answer).opts().get(OptionCode::ClientIdentifier).cloned();
        assert_eq!(given, Some(DhcpOption::ClientIdentifier(vec![255, 0, 1, 2, 3])), "{kind:?}");
    }
    assert!(decoded(&ask(&request(MessageType::Discover)).unwrap()).opts().get(OptionCode::ClientIdentifier).is_none());
}
