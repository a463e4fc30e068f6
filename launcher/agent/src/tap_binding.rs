//! What a planned interface needs of the shim or the node agent: derived alike by both ends of the request.

use garboard_plan::{BindingPlan, Protocol};
use garboard_protocol::agent::BindingRequest;

/// What a binding with a tap needs of the shim or the node agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapBinding {
    /// Name of the tap.
    pub tap: String,
    /// How it is bound.
    pub binding: BindingRequest,
}

/// What a binding needs of the shim or the node agent; nothing for one without a tap.
#[must_use]
pub fn tapped(binding: &BindingPlan) -> Option<TapBinding> {
    match binding {
        BindingPlan::Masquerade { tap, ipv4, ipv6, ports, .. } => {
            let ports = ports.iter().map(|plan| (protocol_name(plan.protocol).to_owned(), plan.port)).collect();
            let binding = BindingRequest::Masquerade { ipv4: ipv4.clone(), ipv6: ipv6.clone(), ports };
            Some(TapBinding { tap: tap.clone(), binding })
        }
        BindingPlan::Bridge { tap } => Some(TapBinding { tap: tap.clone(), binding: BindingRequest::Bridge }),
        BindingPlan::User { .. } | BindingPlan::Passt { .. } => None,
    }
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}
