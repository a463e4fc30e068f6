//! The DHCP options an interface asks for.

use std::collections::BTreeSet;

use super::report::{Report, duplicate, invalid};
use super::subject::Subject;
use crate::fault::{Fault, FieldPath};
use crate::ip::ipv4;
use crate::v1::{DHCPOptions, Interface};

/// The options RFC 3942 leaves for private use, both ends included.
const PRIVATE_OPTIONS: std::ops::RangeInclusive<i64> = 224..=254;

/// The most bytes an option can hold: DHCP has one byte for its length.
const VALUE_MAX: usize = 255;

/// Judges the DHCP options of one interface.
pub(crate) fn check(subject: &Subject<'_>, interface: &Interface, at: &FieldPath, report: &mut Report) {
    let Some(options) = &interface.dhcp_options else { return };
    let at = at.child("dhcpOptions");
    check_lengths(options, &at, report);
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
        if ipv4(server).is_none() {
            report.push(
                invalid(at.child("ntpServers").index(index), format!("`{server}` is not an IPv4 address"))
                    .instead("write the address of the server, such as `10.0.0.1`: DHCP cannot carry a name here"),
            );
        }
    }
}

/// An empty name is one that is not written; a private option is there because it has a value.
fn check_lengths(options: &DHCPOptions, at: &FieldPath, report: &mut Report) {
    let names = [("bootFileName", &options.boot_file_name), ("tftpServerName", &options.tftp_server_name)];
    for (field, name) in names {
        let length = name.as_ref().map_or(0, String::len);
        if length > VALUE_MAX {
            report.push(too_long(at.child(field), length).instead(format!("write at most {VALUE_MAX} bytes")));
        }
    }
    for (index, private) in options.private_options.iter().enumerate() {
        let length = private.value.len();
        if !(1..=VALUE_MAX).contains(&length) {
            let at = at.child("privateOptions").index(index).child("value");
            report.push(too_long(at, length).instead(format!("write 1 to {VALUE_MAX} bytes")));
        }
    }
}

fn too_long(at: FieldPath, length: usize) -> Fault {
    invalid(at, format!("a DHCP option cannot hold {length} bytes"))
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
            json!({"bootFileName": "pxe", "ntpServers": ["10.0.0.1", "0127.0.0.3"], "privateOptions": [{"option": 240, "value": "x"}]}),
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

    #[test]
    fn an_option_is_no_longer_than_dhcp_permits() {
        let (longest, long) = ("x".repeat(255), "x".repeat(256));
        accepted(&[&[(
            OPTIONS,
            json!({"bootFileName": longest, "tftpServerName": "", "privateOptions": [{"option": 240, "value": longest}]}),
        )]]);
        let private = |value: &str| json!({"privateOptions": [{"option": 240, "value": value}]});
        let value = "spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[0].value";
        refused(&[
            (&[(OPTIONS, private(""))], value, "1 to 255"),
            (&[(OPTIONS, private(&long))], value, "cannot hold 256 bytes"),
            (
                &[(OPTIONS, json!({"bootFileName": long}))],
                "spec.domain.devices.interfaces[0].dhcpOptions.bootFileName",
                "at most 255",
            ),
            (
                &[(OPTIONS, json!({"tftpServerName": long}))],
                "spec.domain.devices.interfaces[0].dhcpOptions.tftpServerName",
                "at most 255",
            ),
        ]);
    }
}
