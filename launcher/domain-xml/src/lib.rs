//! From a [`LaunchPlan`] to libvirt's domain XML (<https://libvirt.org/formatdomain.html>). Pure.
//!
//! It is written for tools and people that read it, and never read: nothing in Garboard takes a domain as its input, and no libvirt
//! is asked. What a domain cannot express is left out, and what it has to contain although Garboard has it elsewhere (the path of a
//! disk, which QEMU gets as a descriptor) is what QEMU itself names. docs/domain-xml.md has the list.

mod address;
mod arguments;
mod clock;
mod cpu;
mod devices;
mod element;
mod features;
mod guest;
mod list;
#[cfg(test)]
mod tests;

pub use list::{BlockRow, InterfaceRow, block_rows, interface_rows};

use garboard_plan::LaunchPlan;

use self::arguments::Arguments;
use self::element::Element;

/// What a domain says that its plan does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainContext<'a> {
    /// The absolute path of the directory with the sockets of QEMU, `…/supervisor`.
    pub sockets: &'a str,
    /// The number of a domain that runs, from 1; `None`: it does not run.
    pub id: Option<u32>,
}

/// What the parts of the writer need.
#[derive(Clone, Copy)]
struct Input<'a> {
    plan: &'a LaunchPlan,
    arguments: &'a Arguments<'a>,
    sockets: &'a str,
}

/// The domain of a plan, with a line feed at its end.
#[must_use]
pub fn domain_xml(plan: &LaunchPlan, context: DomainContext<'_>) -> String {
    let arguments = Arguments::of(&plan.argv);
    let input = Input { plan, arguments: &arguments, sockets: context.sockets };
    let domain = Element::new("domain")
        .with("type", if arguments.is_kvm() { "kvm" } else { "qemu" })
        .with_some("id", context.id)
        .children(guest::elements(input))
        .children(features::elements(input))
        .child(cpu::element(input))
        .child(clock::element(input))
        .children(guest::events(input))
        .child(devices::element(input));
    domain.render()
}

/// The name of a machine's domain, as KubeVirt has it.
#[must_use]
pub fn domain_name(plan: &LaunchPlan) -> String {
    format!("{}_{}", plan.identity.namespace, plan.identity.name)
}
