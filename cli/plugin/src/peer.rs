//! Whose process is at the other end of a connection of this computer. A port of 127.0.0.1 is open to every user; Linux shows the user of
//! each socket in `/proc/net/tcp` and `tcp6`. Elsewhere it is not known, and every client is admitted.

#[cfg(target_os = "linux")]
pub(crate) use linux::is_admitted;

/// Whether a client may be served: whose it is cannot be seen here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_admitted(client: &std::net::TcpStream) -> bool {
    client.peer_addr().is_ok()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

    #[cfg(target_os = "linux")]
    use rustix::process::geteuid;

    const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

    /// Whether a client may be served. One of this computer has to be of the user that this program runs as, or of the one who started it with
    /// sudo. One of another computer may: it comes only where the user listens for it.
    pub(crate) fn is_admitted(client: &TcpStream) -> bool {
        let (Ok(peer), Ok(own)) = (client.peer_addr(), client.local_addr()) else { return false };
        let table = |path: &&str| std::fs::read_to_string(path).unwrap_or_default();
        let owner = TABLES.iter().map(table).find_map(|table| owner(&table, peer, own));
        judged(owner, &users(), peer)
    }

    /// Of a connection within this computer both ends are in the tables: one of 127.0.0.1 that is not there has ended.
    pub(super) fn judged(owner: Option<u32>, users: &[u32], peer: SocketAddr) -> bool {
        match owner {
            Some(owner) => users.contains(&owner),
            None => !peer.ip().to_canonical().is_loopback(),
        }
    }

    /// This process's user; where that is root, also who became root with sudo.
    fn users() -> Vec<u32> {
        let own = geteuid().as_raw();
        let of_sudo = || std::env::var("SUDO_UID").ok()?.parse().ok();
        [own].into_iter().chain(if own == 0 { of_sudo() } else { None }).collect()
    }

    /// The user of the socket whose own address is `peer` and whose other end is `own`.
    pub(super) fn owner(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
        table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let is_it = same(address(fields.get(1)?)?, peer) && same(address(fields.get(2)?)?, own);
            if is_it { fields.get(7)?.parse().ok() } else { None }
        })
    }

    /// A socket of IPv6 may have an address of IPv4.
    fn same(one: SocketAddr, other: SocketAddr) -> bool {
        one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
    }

    /// `0100007F:1F90`: numbers of 32 bits in the order of this computer, and a port.
    fn address(text: &str) -> Option<SocketAddr> {
        let (digits, port) = text.split_once(':')?;
        let mut bytes = Vec::new();
        for at in (0..digits.len()).step_by(8) {
            bytes.extend(u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
        }
        let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
            Ok(four) => IpAddr::V4(Ipv4Addr::from(four)),
            Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)),
        };
        Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::linux::{judged, owner};
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// An address as the kernel of this computer writes it.
    fn written(address: &str) -> String {
        let address = at(address);
        let digits: String = match address.ip() {
            std::net::IpAddr::V4(ip) => format!("{:08X}", u32::from_ne_bytes(ip.octets())),
            std::net::IpAddr::V6(ip) => {
                ip.octets().as_chunks().0.iter().map(|four| format!("{:08X}", u32::from_ne_bytes(*four))).collect()
            }
        };
        format!("{digits}:{:04X}", address.port())
    }

    fn line(own: &str, other: &str, user: u32) -> String {
        let (own, other) = (written(own), written(other));
        format!(
            "   0: {own} {other} 01 00000000:00000000 00:00000000 00000000 {user:5}        0 4711 1 0 20 4 30 10 -1\n"
        )
    }

    #[test]
    fn the_owner_is_that_of_the_other_end() {
        let (viewer, served) = (at("127.0.0.1:40000"), at("127.0.0.1:5900"));
        let table = HEAD.to_owned()
            + &line("127.0.0.1:5900", "127.0.0.1:40000", 0)
            + &line("127.0.0.1:40001", "127.0.0.1:5900", 1)
            + &line("127.0.0.1:40000", "127.0.0.1:5900", 1000);
        assert_eq!(owner(&table, viewer, served), Some(1000));
        assert_eq!(owner(HEAD, viewer, served), None);
        let mapped = line("[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:5900", 1001);
        assert_eq!(owner(&mapped, viewer, served), Some(1001));
        let six = line("[::1]:40000", "[::1]:5900", 1002);
        assert_eq!(owner(&six, at("[::1]:40000"), at("[::1]:5900")), Some(1002));
        assert_eq!(owner(&six, viewer, served), None);
    }

    #[test]
    fn another_user_of_this_computer_is_refused_and_another_computer_is_not() {
        let table = [
            (Some(1000), "127.0.0.1:1", true),
            (Some(1001), "127.0.0.1:1", false),
            (Some(0), "127.0.0.1:1", false),
            (None, "127.0.0.1:1", false),
            (None, "[::ffff:127.0.0.1]:1", false),
            (Some(1001), "10.0.0.1:1", false),
            (None, "10.0.0.1:1", true),
        ];
        for (owner, peer, expected) in table {
            assert_eq!(judged(owner, &[1000], at(peer)), expected, "{owner:?} {peer}");
        }
    }

    #[test]
    fn a_connection_of_this_process_is_admitted() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Not every computer has IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let _viewer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert!(is_admitted(&listener.accept().unwrap().0), "{address}");
        }
    }
}
