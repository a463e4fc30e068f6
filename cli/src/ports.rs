//! `-p [ADDRESS:]HOST:GUEST[/tcp|/udp]`.

use std::net::IpAddr;

use garboard_plan::{Forward, Protocol};

use crate::exit::{BAD_INPUT, exit_error};

/// Reads every `-p`; all that are wrong are reported at once.
pub(crate) fn parse_all(texts: &[String]) -> anyhow::Result<Vec<Forward>> {
    let mut forwards = Vec::new();
    let mut problems = Vec::new();
    for text in texts {
        match parse(text) {
            Some(forward) => forwards.push(forward),
            None => problems.push(format!("-p {text}: write [ADDRESS:]HOST:GUEST[/tcp|/udp], for example 2222:22")),
        }
    }
    if problems.is_empty() { Ok(forwards) } else { Err(exit_error(BAD_INPUT, problems.join("\n"))) }
}

fn parse(text: &str) -> Option<Forward> {
    let (ports, protocol) = text.rsplit_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return None,
    };
    let (rest, guest) = ports.rsplit_once(':')?;
    let (address, host) = match rest.rsplit_once(':') {
        Some((address, host)) => {
            let bare = address.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(address);
            (Some(bare.parse::<IpAddr>().ok()?.to_string()), host)
        }
        None => (None, rest),
    };
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
    Some(Forward { protocol, host_address: address, host_port: port(host)?, guest_port: port(guest)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_with_and_without_address_and_protocol() {
        let forward = parse("2222:22").unwrap();
        assert_eq!((forward.host_port, forward.guest_port, forward.host_address), (2222, 22, None));
        assert_eq!(parse("127.0.0.1:53:53/udp").unwrap().host_address.as_deref(), Some("127.0.0.1"));
        assert_eq!(parse("[::1]:80:8080").unwrap().host_address.as_deref(), Some("::1"));
    }

    #[test]
    fn every_wrong_port_is_reported() {
        let wrong = ["", "22", "a:b", "0:22", "1:65536", "x:1:2", "1:2/icmp"].map(str::to_owned);
        let error = parse_all(&wrong).unwrap_err().to_string();
        assert_eq!(error.lines().count(), wrong.len(), "{error}");
    }
}
