//! What a guest sends to the servers of its link.

use std::sync::LazyLock;

use garboard_net::dhcp::v4::{Config4, MessageKind, PACKET_MAX, respond as respond4};
use garboard_net::dhcp::v6::{Config6, respond as respond6};
use garboard_net::dhcp::{DhcpOptions, PrivateOption, ra};
use garboard_net::{EthernetAddress, GuestIpv4, GuestIpv6, GuestRoute};

/// What packets are made of: the magic cookie, options, identities.
pub const TOKENS: &[&str] = &[
    "\u{35}\u{1}\u{1}",
    "\u{35}\u{1}\u{3}",
    "\u{35}\u{1}\u{8}",
    "\u{32}\u{4}\u{a}\u{0}\u{2}\u{2}",
    "\u{36}\u{4}\u{a}\u{0}\u{2}\u{1}",
    "\u{39}\u{2}\u{2}\u{40}",
    "\u{39}\u{2}\u{0}\u{0}",
    "\u{0}\u{1}\u{0}\u{a}\u{0}\u{3}\u{0}\u{1}",
    "\u{0}\u{3}\u{0}\u{c}",
    "\u{0}\u{3}\u{0}\u{28}",
    "\u{0}\u{5}\u{0}\u{18}",
    "\u{0}\u{e}\u{0}\u{0}",
    "\u{0}\u{0}\u{0}\u{0}",
];

const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// As much as a manifest may ask for, so that short packets have something to leave out.
fn options() -> DhcpOptions {
    DhcpOptions {
        hostname: Some("guest".to_owned()),
        domain: Some("ns.svc.cluster.local".to_owned()),
        searches: ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"].map(str::to_owned).to_vec(),
        nameservers: ["10.96.0.10", "fd00::a"].map(|text| text.parse().expect("an address")).to_vec(),
        boot_file_name: Some("pxelinux.0".to_owned()),
        tftp_server_name: Some("10.0.0.9".to_owned()),
        ntp_servers: vec![[10, 0, 0, 8].into()],
        private: vec![PrivateOption { code: 240, value: "x".repeat(200) }],
    }
}

static SERVER4: LazyLock<Config4> = LazyLock::new(|| {
    let lease = GuestIpv4 {
        address: "10.0.2.2/24".parse().expect("a network"),
        server: [10, 0, 2, 1].into(),
        gateway: Some([10, 0, 2, 1].into()),
        routes: vec![GuestRoute { to: "192.168.0.0/16".parse().expect("a network"), via: Some([10, 0, 2, 3].into()) }],
    };
    Config4::new(EthernetAddress::new(CLIENT).expect("an address"), &lease, 1450, &options()).expect("sound options")
});

static SERVER6: LazyLock<Config6> = LazyLock::new(|| {
    let lease = GuestIpv6 {
        address: "fd10:0:2::2".parse().expect("an address"),
        network: "fd10:0:2::/120".parse().expect("a network"),
        gateway: "fd10:0:2::1".parse().expect("an address"),
    };
    Config6::new(&lease, 1450, &options()).expect("sound options")
});

/// Any packet to the DHCPv4 server: it answers its one client or none, offers its one address or none, sends to that
/// address or to the broadcast address, and stays within a packet.
pub fn dhcp4(data: &[u8]) {
    garboard_net::dhcp::v4::fuzz_dhcp4(data);
    let Some(answer) = respond4(&SERVER4, data) else { return };
    assert_eq!(answer.bytes.get(28..34), Some(CLIENT.as_slice()), "the client's address");
    assert_eq!(answer.bytes.get(4..8), data.get(4..8), "the client's transaction");
    assert!(answer.bytes.len() <= PACKET_MAX, "{} bytes", answer.bytes.len());
    let offered = answer.bytes.get(16..20);
    assert!([Some([0; 4].as_slice()), Some([10, 0, 2, 2].as_slice())].contains(&offered), "offers {offered:?}");
    assert!(answer.kind != MessageKind::Nak || offered == Some(&[0; 4]), "a refusal offers {offered:?}");
    assert!(["10.0.2.2", "255.255.255.255"].contains(&answer.to.to_string().as_str()), "to {}", answer.to);
}

/// Any packet to the DHCPv6 server: the answer is an advertisement or a reply of the same transaction, within a packet.
pub fn dhcp6(data: &[u8]) {
    garboard_net::dhcp::v6::fuzz_dhcp6(data);
    let Some(answer) = respond6(&SERVER6, data) else { return };
    assert!(matches!(answer.first(), Some(2 | 7)), "kind {:?}", answer.first());
    assert_eq!(answer.get(1..4), data.get(1..4), "the client's transaction");
    assert!(answer.len() <= PACKET_MAX, "{} bytes", answer.len());
}

/// Any ICMPv6 message to the router: only a solicitation is one, and the answer does not depend on it.
pub fn router_solicitations(data: &[u8]) {
    if ra::is_solicitation(data) {
        assert!(data.len() >= 8 && data[..2] == [133, 0], "taken for a solicitation");
        let answer = ra::advertisement(&SERVER6);
        assert!(answer.len().is_multiple_of(8) && answer.len() <= 1280, "{} bytes", answer.len());
    }
}
