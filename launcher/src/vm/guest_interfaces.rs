//! What the guest agent reports of the guest's network, beside what was planned. Pure.
//!
//! Made again from every answer: what the guest has given up goes, and no guest can make a status grow.

use garboard_protocol::control::InterfaceStatus;

/// The most interfaces that only the guest reports, addresses that it adds to one, and letters of its name for one. In a
/// status all of them together stay below 64 KiB; a node agent takes no report of more than 256.
const UNPLANNED: usize = 32;
const ADDRESSES: usize = 16;
const NAME: usize = 128;

/// The planned interfaces with what the guest reports of them, then those that only the guest reports.
pub(crate) fn beside(planned: &[InterfaceStatus], reported: Vec<InterfaceStatus>) -> Vec<InterfaceStatus> {
    let mut all = planned.to_vec();
    for mut seen in reported {
        seen.interface_name = seen.interface_name.map(|name| name.chars().take(NAME).collect());
        match planned.iter().position(|known| known.mac == seen.mac) {
            Some(index) => {
                let known = &mut all[index];
                // Also where the guest gives several interfaces the address of this card.
                let most = planned[index].addresses.len() + ADDRESSES;
                known.interface_name = seen.interface_name;
                known.info_source = "domain, guest-agent".to_owned();
                for address in seen.addresses {
                    if known.addresses.len() < most && !known.addresses.contains(&address) {
                        known.addresses.push(address);
                    }
                }
            }
            None if all.len() < planned.len() + UNPLANNED => {
                seen.addresses.truncate(ADDRESSES);
                all.push(seen);
            }
            None => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use garboard_protocol::control::Link;

    use super::*;

    const CARD: &str = "02:00:00:00:00:01";

    fn planned() -> Vec<InterfaceStatus> {
        vec![InterfaceStatus {
            name: "default".into(),
            mac: CARD.into(),
            addresses: vec!["10.0.2.2".into()],
            info_source: "domain".into(),
            queues: 2,
            link: Some(Link::Down),
            ..InterfaceStatus::default()
        }]
    }

    fn seen(name: &str, mac: &str, addresses: Vec<String>) -> InterfaceStatus {
        InterfaceStatus {
            name: String::new(),
            interface_name: Some(name.into()),
            mac: mac.into(),
            addresses,
            info_source: "guest-agent".into(),
            queues: 0,
            link: None,
        }
    }

    #[test]
    fn an_answer_adds_to_the_plan_and_leaves_nothing_behind() {
        let docker = seen("docker0", "02:42:00:00:00:01", vec!["172.17.0.1".into()]);
        let tunnel = seen("wg0", "", vec!["10.9.0.1".into()]);
        let card = seen("eth0", CARD, vec!["10.0.2.2".into(), "fe80::1".into()]);
        let all = beside(&planned(), vec![card, docker.clone(), tunnel.clone()]);
        assert_eq!((all[0].name.as_str(), all[0].interface_name.as_deref()), ("default", Some("eth0")));
        assert_eq!(all[0].addresses, ["10.0.2.2", "fe80::1"]);
        assert_eq!((all[0].info_source.as_str(), all[0].queues), ("domain, guest-agent", 2));
        assert_eq!(all[0].link, Some(Link::Down), "the guest does not change it");
        assert_eq!(all[1..], [docker, tunnel]);
        assert_eq!(beside(&planned(), Vec::new()), planned());
    }

    #[test]
    fn a_hostile_guest_does_not_make_a_report_too_long() {
        let many = (0..64).map(|one: u16| {
            let mac = if one.is_multiple_of(2) { CARD.to_owned() } else { format!("02:ff:ff:ff:ff:{one:02x}") };
            let addresses = (0..64 + one).map(|last| format!("2001:db8:ffff:ffff:ffff:ffff:ffff:{last:04x}"));
            seen(&"\u{1d11e}".repeat(2560), &mac, addresses.collect())
        });
        let many: Vec<InterfaceStatus> = many.collect();
        let all = beside(&planned(), many.clone());
        assert_eq!((all.len(), all[0].addresses.len()), (1 + 32, 1 + ADDRESSES));
        let all = beside(&[], many);
        assert_eq!((all.len(), all[0].addresses.len()), (UNPLANNED, ADDRESSES));
        assert!(serde_json::to_vec(&all).unwrap().len() < 64 * 1024);
    }
}
