//! The DHCP options an interface asks for.

use std::collections::BTreeSet;

use super::addresses::is_ipv4;
use super::report::{Report, duplicate, invalid};
use super::subject::Subject;
use crate::fault::FieldPath;
use crate::v1::Interface;

/// The options RFC 3942 leaves for private use, both ends included.
const PRIVATE_OPTIONS: std::ops::RangeInclusive<i64> = 224..=254;

/// Judges the DHCP options of one interface.
pub(crate) fn check(subject: &Subject<'_>, interface: &Interface, at: &FieldPath, report: &mut Report) {
    let Some(options) = &interface.dhcp_options else { return };
    let at = at.child("dhcpOptions");
    let mut seen = BTreeSet::new();
    for (index, private) in options.private_options.iter().enumerate() {
        let at = at.child("privateOptions").index(index).child("option");
        let number = i64::from(private.option);
        if !seen.insert(number) {
            report.push(
                duplicate(at.clone(), format!("the private option {number} is written twice"))
                    .instead("keep one of them")
                    .field(subject.at.to_string()),
            );
        }
        if !PRIVATE_OPTIONS.contains(&number) {
            report.push(
                invalid(at, format!("{number} is not an option for private use"))
                    .instead(format!("write {} to {}", PRIVATE_OPTIONS.start(), PRIVATE_OPTIONS.end()))
                    .field(subject.at.to_string()),
            );
        }
    }
    for (index, server) in options.ntp_servers.iter().enumerate() {
        if !is_ipv4(server) {
            report.push(
                invalid(at.child("ntpServers").index(index), format!("`{server}` is not an IPv4 address"))
                    .instead("write the address of the server, such as `10.0.0.1`: DHCP cannot carry a name here"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, faults, refused};

    const OPTIONS: &str = "spec.domain.devices.interfaces[0].dhcpOptions";

    #[test]
    fn private_options_and_time_servers() {
        accepted(&[&[(
            OPTIONS,
            json!({"bootFileName": "pxe", "ntpServers": ["10.0.0.1"], "privateOptions": [{"option": 240, "value": "x"}]}),
        )]]);
        let twice = json!({"privateOptions": [{"option": 240, "value": "a"}, {"option": 240, "value": "b"}]});
        refused(&[
            (
                &[(OPTIONS, twice.clone())],
                "spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[1].option",
                "twice",
            ),
            (
                &[(OPTIONS, json!({"privateOptions": [{"option": 223, "value": "a"}]}))],
                "spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[0].option",
                "224 to 254",
            ),
            (
                &[(OPTIONS, json!({"ntpServers": ["pool.ntp.org"]}))],
                "spec.domain.devices.interfaces[0].dhcpOptions.ntpServers[0]",
                "not an IPv4 address",
            ),
        ]);
        assert_eq!(faults(&[(OPTIONS, twice)])[0].field, "spec");
    }
}
