//! Name servers and search domains of a host, as its `resolv.conf` has them (resolv.conf(5), glibc 2.36).
//!
//! A guest cannot reach a name server on the host's loopback: those are left out, and where systemd-resolved
//! hides the real ones behind its own, its file with the real ones is read.

use std::io;
use std::net::IpAddr;
use std::path::Path;

/// Most name servers taken; glibc itself uses three.
const NAMESERVERS_MAX: usize = 8;
/// Most search domains taken, as many as old glibc versions use.
const SEARCHES_MAX: usize = 6;

/// What a guest receives about name resolution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Name servers the guest can reach, in order.
    pub nameservers: Vec<IpAddr>,
    /// Search domains, in order.
    pub searches: Vec<String>,
}

/// Reads the text of a `resolv.conf`. What it does not understand it passes over, as resolvers do.
pub fn parse(text: &str) -> Resolver {
    let mut resolver = Resolver::default();
    for line in text.lines() {
        let mut parts = line.split_whitespace();
        match parts.next() {
            Some("nameserver") => resolver.nameservers.extend(parts.next().and_then(reachable)),
            // The last of these lines wins.
            Some("search") => resolver.searches = parts.map(str::to_owned).collect(),
            Some("domain") => resolver.searches = parts.take(1).map(str::to_owned).collect(),
            _ => {}
        }
    }
    resolver.nameservers.truncate(NAMESERVERS_MAX);
    resolver.searches.retain(|domain| domain != ".");
    resolver.searches.truncate(SEARCHES_MAX);
    resolver
}

fn reachable(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok().or_else(|| without_leading_zeros(text).parse().ok())?;
    let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    (!address.is_loopback() && !address.is_unspecified() && !link_local).then_some(address)
}

/// An IPv4 address without zeros that mean nothing: a kubelet writes the name servers of a pod as their manifest has them.
fn without_leading_zeros(text: &str) -> String {
    fn significant(part: &str) -> &str {
        match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            rest => rest,
        }
    }
    text.split('.').map(significant).collect::<Vec<_>>().join(".")
}

/// The resolver of this host: `/etc/resolv.conf`, or what systemd-resolved forwards to if that names only
/// the host's loopback. No name server at all is not an error: the guest then has none.
pub fn of_host() -> io::Result<Resolver> {
    from_files("/etc/resolv.conf".as_ref(), "/run/systemd/resolve/resolv.conf".as_ref())
}

fn from_files(first: &Path, behind: &Path) -> io::Result<Resolver> {
    let own = read(first)?;
    if !own.nameservers.is_empty() {
        return Ok(own);
    }
    let real = read(behind)?;
    let searches = if own.searches.is_empty() { real.searches } else { own.searches };
    Ok(Resolver { nameservers: real.nameservers, searches })
}

fn read(path: &Path) -> io::Result<Resolver> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(parse(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Resolver::default()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_a_guest_cannot_reach_are_left_out() {
        let text = "# comment\nnameserver 127.0.0.53\nnameserver 10.96.0.10\nnameserver ::1\nnameserver fe80::1%eth0\n\
                    nameserver fe80::1\nnameserver 2001:db8::53\nnameserver nonsense\noptions ndots:5\n";
        let servers: Vec<String> = parse(text).nameservers.iter().map(IpAddr::to_string).collect();
        assert_eq!(servers, ["10.96.0.10", "2001:db8::53"]);
    }

    #[test]
    fn leading_zeros_mean_nothing() {
        let text = "nameserver 01.1.1.1\nnameserver 10.096.000.10\nnameserver 0127.0.0.53\nnameserver 1..1.1\n";
        let servers: Vec<String> = parse(text).nameservers.iter().map(IpAddr::to_string).collect();
        assert_eq!(servers, ["1.1.1.1", "10.96.0.10"]);
    }

    #[test]
    fn the_last_search_list_wins() {
        let text = "domain old.example\nsearch ns.svc.cluster.local svc.cluster.local\tcluster.local .\n";
        assert_eq!(parse(text).searches, ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"]);
        assert_eq!(parse("search a b\ndomain c.example ignored").searches, ["c.example"]);
    }

    #[test]
    fn the_servers_behind_a_local_one_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let (first, behind) = (directory.path().join("first"), directory.path().join("behind"));
        std::fs::write(&first, "nameserver 127.0.0.53\nsearch example.com\n").unwrap();
        assert_eq!(from_files(&first, &behind).unwrap().nameservers, Vec::<IpAddr>::new());
        std::fs::write(&behind, "nameserver 192.0.2.53\n").unwrap();
        let resolver = from_files(&first, &behind).unwrap();
        assert_eq!(resolver.nameservers, ["192.0.2.53".parse::<IpAddr>().unwrap()]);
        assert_eq!(resolver.searches, ["example.com"]);
    }
}
