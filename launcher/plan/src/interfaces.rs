//! Network interfaces.

use garboard_api::v1::{Devices, Interface, Network};
use garboard_machine::device::{EmulatedNic, EmulatedNicModel, VirtioNetPci};
use garboard_machine::netdev::{Netdev, StreamNetdev, TapNetdev};
use garboard_machine::pci::Placement;

use super::boot::BootOrder;
use super::draft::{Draft, device_id, invalid, text};
use super::error::PlanError;
use super::interface::{BindingPlan, DhcpPlan, Forward, InterfacePlan, LinkState, NicModel, PortPlan, Protocol};
use super::launch::DescriptorPurpose;
use super::ordered::OrderedInterface;
use super::{mac, unserved, user_network};

const LIST: &str = "spec.domain.devices.interfaces";
/// The guest's IPv4 range when the manifest has none.
pub const DEFAULT_IPV4: &str = "10.0.2.0/24";
/// The guest's IPv6 range when the manifest has none.
pub const DEFAULT_IPV6: &str = "fd10:0:2::/120";

/// QEMU's limit of queue pairs for one tap (`MAX_TAP_QUEUES`, `net/tap_int.h` has 1024), bounded as KubeVirt does.
const MAX_QUEUES: u32 = 256;

/// The interfaces of a VMI, in its order.
pub(super) fn interfaces(
    draft: &mut Draft<'_>,
    boot: &mut BootOrder,
    vcpu_count: u32,
) -> Result<Vec<InterfacePlan>, PlanError> {
    let devices = draft.input.devices();
    let mut plans = Vec::new();
    for asked in present(devices) {
        let forwards = if plans.is_empty() { draft.input.options.forwards.clone() } else { Vec::new() };
        plans.push(plan_interface(draft, boot, asked, vcpu_count, forwards)?);
    }
    if plans.is_empty() && !draft.input.options.forwards.is_empty() {
        return Err(invalid(LIST, "there is no interface to forward ports to", "add one, or forward none"));
    }
    if devices.disable_hotplug != Some(true) {
        draft.pci.keep_interface_ports().map_err(|source| PlanError::Pci { field: LIST.to_owned(), source })?;
    }
    Ok(plans)
}

/// What of them follows from the VMI alone.
pub(super) fn ordered(draft: &mut Draft<'_>, vcpu_count: u32) -> Result<Vec<OrderedInterface>, PlanError> {
    let devices = draft.input.devices();
    let mut all = Vec::new();
    for asked in present(devices) {
        let (interface, field) = (asked.interface, asked.field());
        let queues = queues(devices, nic_model(interface, &field)?, vcpu_count);
        let binding = binding(draft, asked, Vec::new(), &field)?;
        all.push(OrderedInterface {
            name: interface.name.clone(),
            queues,
            mac: mac::asked(interface, &field)?,
            binding,
        });
    }
    Ok(all)
}

/// An interface of the manifest.
#[derive(Clone, Copy)]
struct Asked<'a> {
    interface: &'a Interface,
    /// Its place in the list.
    index: usize,
}

impl Asked<'_> {
    fn field(self) -> String {
        format!("{LIST}[{}]", self.index)
    }
}

/// Those that are plugged in.
fn present(devices: &Devices) -> impl Iterator<Item = Asked<'_>> {
    let all = devices.interfaces.iter().enumerate().map(|(index, interface)| Asked { interface, index });
    all.filter(|asked| text(&asked.interface.state) != Some("absent"))
}

fn queues(devices: &Devices, model: NicModel, vcpu_count: u32) -> u32 {
    let is_multiqueue = devices.network_interface_multiqueue == Some(true) && model == NicModel::Virtio;
    if is_multiqueue { vcpu_count.clamp(1, MAX_QUEUES) } else { 1 }
}

fn plan_interface(
    draft: &mut Draft<'_>,
    boot: &mut BootOrder,
    asked: Asked<'_>,
    vcpu_count: u32,
    forwards: Vec<Forward>,
) -> Result<InterfacePlan, PlanError> {
    let (interface, field) = (asked.interface, asked.field());
    let name = interface.name.as_str();
    let model = nic_model(interface, &field)?;
    let binding = binding(draft, asked, forwards, &field)?;
    let mtu = mtu(draft, asked, model, &binding);
    let plan = InterfacePlan {
        name: name.to_owned(),
        mtu,
        device: device_id("nic", name, &field)?.to_string(),
        netdev: device_id("net", name, &field)?.to_string(),
        model,
        mac: mac::of(draft.input, interface, &binding, &field)?,
        queues: queues(draft.input.devices(), model, vcpu_count),
        binding,
        dhcp: dhcp(draft, interface, &field)?,
        link: if text(&interface.state) == Some("down") { LinkState::Down } else { LinkState::Up },
        boot_order: boot.of_interface(interface.boot_order),
        tag: text(&interface.tag).map(str::to_owned),
    };
    unserved::note(draft, interface, &plan, &field);
    backend(draft, &plan, &field)?;
    frontend(draft, &plan, interface, &field)?;
    Ok(plan)
}

/// Least and most that virtio-net takes as `host_mtu` (`ETH_MIN_MTU`, and what an IPv4 packet can be).
const MTU_RANGE: std::ops::RangeInclusive<u16> = 68..=65535;

/// What a virtio device reports of its network: the MTU of its first start, less if the link carries less now. DHCP sends it
/// too, but some guests ignore it (Windows), and some do not use DHCP (static addresses).
fn mtu(draft: &mut Draft<'_>, asked: Asked<'_>, model: NicModel, binding: &BindingPlan) -> Option<u16> {
    let name = asked.interface.name.as_str();
    let has_tap = matches!(binding, BindingPlan::Masquerade { .. } | BindingPlan::Bridge { .. });
    let is_reported = |mtu: &u16| has_tap && model == NicModel::Virtio && MTU_RANGE.contains(mtu);
    let found = draft.input.options.interfaces.get(name).and_then(|facts| facts.mtu).filter(is_reported);
    let kept = draft.input.stored.and_then(|stored| stored.mtus.get(name).copied()).filter(is_reported);
    if let (Some(found), Some(kept)) = (found, kept)
        && found != kept
    {
        let text = format!("the link carries packets of {found} bytes, fewer than the MTU of the first start, {kept}");
        draft.note(Some(&asked.field()), text);
    }
    found.into_iter().chain(kept).min()
}

fn nic_model(interface: &Interface, field: &str) -> Result<NicModel, PlanError> {
    let Some(name) = text(&interface.model) else { return Ok(NicModel::Virtio) };
    NicModel::ALL.iter().copied().find(|model| model.name() == name).ok_or_else(|| {
        let names: Vec<&str> = NicModel::ALL.iter().map(|model| model.name()).collect();
        let message = format!("there is no interface model `{name}`");
        invalid(format!("{field}.model"), message, format!("write one of {}", names.join(", ")))
    })
}

/// The ways in which an interface is joined to its network.
#[derive(Clone, Copy)]
enum Wanted {
    Bridge,
    Masquerade,
    Passt,
}

/// The one that an interface names. No binding at all means the cluster's default, which is bridge, too.
fn wanted(interface: &Interface, field: &str) -> Result<Wanted, PlanError> {
    // Every field: whether a new one is a binding has to be decided here.
    let Interface {
        bridge,
        masquerade,
        passt_binding,
        binding,
        macvtap,
        passt,
        slirp,
        sriov,
        acpi_index: _,
        boot_order: _,
        dhcp_options: _,
        mac_address: _,
        model: _,
        name: _,
        pci_address: _,
        port_ranges: _,
        ports: _,
        state: _,
        tag: _,
    } = interface;
    let unplanned = [
        ("binding", binding.is_some()),
        ("macvtap", macvtap.is_some()),
        ("passt", passt.is_some()),
        ("slirp", slirp.is_some()),
        ("sriov", sriov.is_some()),
    ];
    if let Some((name, _)) = unplanned.into_iter().find(|(_, is_written)| *is_written) {
        return Err(PlanError::NotInThisVersion {
            field: format!("{field}.{name}"),
            why: "there is no such binding in this version".to_owned(),
            instead: "write `masquerade: {}`".to_owned(),
        });
    }
    match (bridge.is_some(), masquerade.is_some(), passt_binding.is_some()) {
        (_, false, false) => Ok(Wanted::Bridge),
        (false, true, false) => Ok(Wanted::Masquerade),
        (false, false, true) => Ok(Wanted::Passt),
        (true, true, _) | (true, _, true) | (_, true, true) => {
            Err(invalid(field, "an interface has one binding, and this one names several", "leave out all but one"))
        }
    }
}

fn binding(
    draft: &mut Draft<'_>,
    asked: Asked<'_>,
    forwards: Vec<Forward>,
    field: &str,
) -> Result<BindingPlan, PlanError> {
    let (interface, input) = (asked.interface, draft.input);
    let host = &input.facts.network;
    let tap = tap_name(&interface.name, asked.index);
    let network = input.spec().networks.iter().find(|network| network.name == interface.name);
    let ipv4 = cidr(network, Family::V4);
    let ports = ports(interface, field)?;
    match wanted(interface, field)? {
        Wanted::Passt => passt_binding(draft, BindingPlan::Passt { ipv4: None, ports, forwards }, field),
        Wanted::Masquerade if host.tap => {
            Ok(BindingPlan::Masquerade { tap, ipv4, ipv6: cidr(network, Family::V6), ports, forwards })
        }
        Wanted::Masquerade if host.passt.is_some() => {
            draft.note(Some(field), "passt serves this interface, because making a tap takes root");
            user_network::addresses(&ipv4).ok_or_else(|| user_network::too_small(&ipv4, field))?;
            Ok(BindingPlan::Passt { ipv4: Some(ipv4), ports, forwards })
        }
        Wanted::Masquerade => {
            draft.note(Some(field), "QEMU's user-mode network serves this interface, because making a tap takes root");
            Ok(BindingPlan::User { ipv4, forwards })
        }
        Wanted::Bridge if !forwards.is_empty() => {
            let message = "a bridged guest has an address of its own, nothing is forwarded to it";
            Err(invalid(field, message, "write `masquerade: {}`, or forward no ports"))
        }
        Wanted::Bridge if host.tap => Ok(BindingPlan::Bridge { tap }),
        Wanted::Bridge => Err(PlanError::HostLacks {
            field: field.to_owned(),
            message: "a bridge takes root".to_owned(),
            instead: "write `masquerade: {}`, or run as root".to_owned(),
        }),
    }
}

/// passt needs no privilege, but a user that shares the host's network with it.
fn passt_binding(draft: &Draft<'_>, plan: BindingPlan, field: &str) -> Result<BindingPlan, PlanError> {
    let host = draft.input.facts;
    if host.network.passt.is_some() {
        return Ok(plan);
    }
    let message = if host.is_root { "passt is not installed" } else { "there is no passt that this user can run" };
    Err(PlanError::HostLacks {
        field: format!("{field}.passtBinding"),
        message: message.to_owned(),
        instead: "install package passt (`garboard doctor` lists what else it needs), or write `masquerade: {}`"
            .to_owned(),
    })
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

/// The range of a guest. Without leading zeros: some of those that read it take such numbers as octal.
fn cidr(network: Option<&Network>, family: Family) -> String {
    let pod = network.and_then(|network| network.pod.as_ref());
    let (asked, default) = match family {
        Family::V4 => (pod.and_then(|pod| text(&pod.vm_network_cidr)), DEFAULT_IPV4),
        Family::V6 => (pod.and_then(|pod| text(&pod.vm_ipv6_network_cidr)), DEFAULT_IPV6),
    };
    let range = asked.unwrap_or(default);
    let parts = range.split_once('/').and_then(|(base, bits)| Some((garboard_api::ip::ipv4(base)?, bits)));
    match (family, parts) {
        (Family::V4, Some((base, bits))) => format!("{base}/{bits}"),
        (Family::V4, None) | (Family::V6, _) => range.to_owned(),
    }
}

fn ports(interface: &Interface, field: &str) -> Result<Vec<PortPlan>, PlanError> {
    let mut ports = Vec::new();
    for (index, port) in interface.ports.iter().enumerate() {
        let field = format!("{field}.ports[{index}]");
        let protocol = match text(&port.protocol).unwrap_or("TCP") {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            other => {
                let message = format!("there is no protocol `{other}`");
                return Err(invalid(format!("{field}.protocol"), message, "write TCP, UDP or SCTP"));
            }
        };
        let number = u16::try_from(port.port)
            .ok()
            .filter(|&port| port > 0)
            .ok_or_else(|| invalid(format!("{field}.port"), format!("{} is no port", port.port), "write 1 to 65535"))?;
        ports.push(PortPlan { protocol, port: number });
    }
    Ok(ports)
}

/// The first tap is `tap0`, as users expect; others are named after their interface, so that their names
/// do not depend on which interfaces came before. At most 15 bytes (`IFNAMSIZ`).
fn tap_name(interface: &str, index: usize) -> String {
    if index == 0 {
        return "tap0".to_owned();
    }
    format!("tap{:011x}", garboard_machine::id::fnv1a_64(interface.as_bytes()) & 0xfff_ffff_ffff)
}

fn dhcp(draft: &Draft<'_>, interface: &Interface, field: &str) -> Result<DhcpPlan, PlanError> {
    let spec = draft.input.spec();
    let mut plan = DhcpPlan {
        hostname: hostname(draft),
        subdomain: text(&spec.subdomain).map(str::to_owned),
        ..DhcpPlan::default()
    };
    let Some(options) = &interface.dhcp_options else { return Ok(plan) };
    plan.boot_file_name = text(&options.boot_file_name).map(str::to_owned);
    plan.tftp_server_name = text(&options.tftp_server_name).map(str::to_owned);
    for (index, server) in options.ntp_servers.iter().enumerate() {
        let address = garboard_api::ip::ipv4(server).ok_or_else(|| {
            let field = format!("{field}.dhcpOptions.ntpServers[{index}]");
            invalid(field, format!("`{server}` is no IPv4 address"), "write one, such as 10.0.0.1")
        })?;
        plan.ntp_servers.push(address.to_string());
    }
    for (index, private) in options.private_options.iter().enumerate() {
        let code = u8::try_from(private.option).ok().filter(|code| (224..=254).contains(code)).ok_or_else(|| {
            let field = format!("{field}.dhcpOptions.privateOptions[{index}].option");
            invalid(field, format!("{} is no private option", private.option), "write 224 to 254")
        })?;
        plan.private_options.insert(code, private.value.clone());
    }
    Ok(plan)
}

/// The host name that the guest gets: `spec.hostname`, else the first label of the VMI's name.
fn hostname(draft: &Draft<'_>) -> String {
    let name = draft.input.vmi.metadata.name.as_deref().unwrap_or_default();
    let label = name.split('.').next().unwrap_or_default();
    text(&draft.input.spec().hostname).unwrap_or(label).chars().take(63).collect()
}

fn backend(draft: &mut Draft<'_>, plan: &InterfacePlan, field: &str) -> Result<(), PlanError> {
    let id = device_id("net", &plan.name, field)?;
    let interface = || plan.name.clone();
    let netdev = match &plan.binding {
        BindingPlan::Masquerade { .. } | BindingPlan::Bridge { .. } => {
            let has_vhost = draft.input.facts.network.vhost_net && plan.model == NicModel::Virtio;
            let tap = |queue| DescriptorPurpose::Tap { interface: interface(), queue };
            let fds = (0..plan.queues).map(|queue| draft.descriptor(tap(queue))).collect();
            let vhost = |queue| DescriptorPurpose::VhostNet { interface: interface(), queue };
            let queues = if has_vhost { plan.queues } else { 0 };
            let vhostfds = (0..queues).map(|queue| draft.descriptor(vhost(queue))).collect();
            Netdev::Tap(TapNetdev { id, fds, vhostfds })
        }
        BindingPlan::User { ipv4, forwards } => {
            Netdev::User(user_network::netdev(id, ipv4, field, &plan.dhcp.hostname, forwards)?)
        }
        BindingPlan::Passt { .. } => {
            let fd = draft.descriptor(DescriptorPurpose::UserNetSocket { interface: interface() });
            Netdev::Stream(StreamNetdev { id, fd })
        }
    };
    draft.netdevs.push(netdev);
    Ok(())
}

fn frontend(draft: &mut Draft<'_>, plan: &InterfacePlan, interface: &Interface, field: &str) -> Result<(), PlanError> {
    let (id, netdev) = (device_id("nic", &plan.name, field)?, device_id("net", &plan.name, field)?);
    let acpi_index = interface.acpi_index.and_then(|index| u32::try_from(index).ok()).filter(|&index| index > 0);
    let address = text(&interface.pci_address);
    let address_field = format!("{field}.pciAddress");
    let model = match plan.model {
        NicModel::Virtio => None,
        NicModel::E1000 => Some(EmulatedNicModel::E1000),
        NicModel::E1000e => Some(EmulatedNicModel::E1000e),
        NicModel::Igb => Some(EmulatedNicModel::Igb),
        NicModel::Rtl8139 => Some(EmulatedNicModel::Rtl8139),
        NicModel::Ne2kPci => Some(EmulatedNicModel::Ne2kPci),
        NicModel::Pcnet => Some(EmulatedNicModel::Pcnet),
    };
    let (mac, bootindex) = (plan.mac.clone(), plan.boot_order);
    let Some(model) = model else {
        let placement = Draft::placement_at(address, &address_field, Placement::InterfacePort)?;
        let at = match placement {
            Placement::Exactly(_) => draft.place(&id, placement, &address_field)?,
            Placement::Port | Placement::InterfacePort | Placement::RootComplex | Placement::Graphics => {
                draft.place_virtio(&id, placement, field)?
            }
        };
        let revision = draft.input.virtio_revision();
        let (queues, mtu) = (plan.queues, plan.mtu);
        let nic = VirtioNetPci { id, revision, at, netdev, mac, queues, bootindex, acpi_index, mtu };
        draft.devices.push(nic.into());
        return Ok(());
    };
    draft.input.require_device(model.driver(), &format!("{field}.model"))?;
    let otherwise = if model.is_express() { Placement::InterfacePort } else { Placement::RootComplex };
    let placement = Draft::placement_at(address, &address_field, otherwise)?;
    let at = draft.place(&id, placement, field)?;
    draft.devices.push(EmulatedNic { id, model, at, netdev, mac, bootindex, acpi_index }.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tap_names_fit_and_do_not_depend_on_their_position() {
        assert_eq!(tap_name("default", 0), "tap0");
        assert_eq!(tap_name("lan", 1), tap_name("lan", 7));
        assert_ne!(tap_name("lan", 1), tap_name("wan", 1));
        assert!(tap_name("lan", 1).len() <= 15);
    }
}
