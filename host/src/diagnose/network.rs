//! How guests reach a network. Pure.

use super::{Check, HostConditions};
use crate::devices::DeviceAccess;
use crate::survey::Survey;

pub(super) fn checks(survey: &Survey, conditions: &HostConditions) -> Vec<Check> {
    let mut checks = vec![tun(survey), vhost(survey)];
    if survey.privileges.net_admin() {
        checks.push(nft(survey));
        checks.push(forwarding(conditions.forwarding));
    }
    checks.push(passt(survey));
    checks
}

fn tun(survey: &Survey) -> Check {
    let check = |detail: &str| Check::new("tun", "Taps", detail);
    let unprivileged = "networks are passt's or QEMU's own";
    match (&survey.tun.access, survey.privileges.net_admin()) {
        (DeviceAccess::Open, true) => check("/dev/net/tun opens and taps may be made"),
        (DeviceAccess::Missing, _) => check(&format!("no /dev/net/tun: {unprivileged}"))
            .missing("modprobe tun; in a container: --device /dev/net/tun"),
        (DeviceAccess::Open | DeviceAccess::NotPermitted, false) => {
            check(&format!("taps need CAP_NET_ADMIN: {unprivileged}")).degraded("run as root for masquerade and bridge")
        }
        (DeviceAccess::NotPermitted, true) | (DeviceAccess::Refused(_), _) => {
            check(&format!("/dev/net/tun does not open: {unprivileged}"))
                .missing("chmod 0666 /dev/net/tun (what udev sets), or run as root")
        }
    }
}

fn vhost(survey: &Survey) -> Check {
    let check = |detail: &str| Check::new("vhost-net", "vhost-net", detail);
    match &survey.vhost_net.access {
        DeviceAccess::Open => check("packets are moved by the kernel"),
        DeviceAccess::Missing => check("no /dev/vhost-net: packets go through QEMU, slower")
            .degraded("modprobe vhost_net; some cloud kernels are built without it"),
        DeviceAccess::NotPermitted | DeviceAccess::Refused(_) => {
            check("/dev/vhost-net does not open: packets go through QEMU, slower")
                .degraded("usermod -aG kvm $USER, or run as root")
        }
    }
}

fn nft(survey: &Survey) -> Check {
    match &survey.tools.nft {
        Some(path) => Check::new("nft", "Network rules", path.display().to_string()),
        None => Check::new("nft", "Network rules", "no nft: masquerade and published ports cannot be set up")
            .missing("apt install nftables"),
    }
}

fn forwarding([v4, v6]: [Option<bool>; 2]) -> Check {
    let state = |on: Option<bool>| match on {
        Some(true) => "on",
        Some(false) => "off",
        None => "absent",
    };
    let detail = format!("IPv4 {}, IPv6 {}", state(v4), state(v6));
    let check = Check::new("forwarding", "Forwarding", detail.clone());
    match (v4, v6) {
        (None, _) => check.missing("this kernel has no IPv4 forwarding; masquerade needs it"),
        (Some(true), Some(true)) => check,
        (Some(true), None) => check.degraded("guests have IPv4 only; start the kernel without ipv6.disable=1 for both"),
        // Starting a machine with masquerade does it.
        (Some(_), _) => {
            Check { detail: format!("{detail}; the first machine that masquerades switches it on"), ..check }
        }
    }
}

fn passt(survey: &Survey) -> Check {
    let root = survey.privileges.net_admin();
    let check = |detail: String| Check::new("passt", "Network as a user", detail);
    let instead = "QEMU's own user network, slow and IPv4 only";
    match (&survey.tools.passt, &survey.user_namespaces, root) {
        (Some(path), Ok(()), _) => check(path.display().to_string()),
        (Some(_), Err(errno), true) => {
            check(format!("passt may not make a user namespace ({}); not needed with taps", errno.desc()))
        }
        (Some(_), Err(errno), false) => {
            check(format!("passt may not make the user namespace it needs ({}): {instead}", errno.desc()))
                .degraded("allow user namespaces as in the line about namespaces")
        }
        (None, _, true) => check("no passt; not needed with taps".to_owned()),
        (None, _, false) => check(format!("no passt: {instead}")).degraded("apt install passt"),
    }
}
