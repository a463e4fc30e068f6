//! A plan in the making: what all parts of the planner read, and where they put what they decide.

use garboard_api::accelerator::RequestedAccelerator;
use garboard_api::metadata::annotation;
/// KubeVirt takes an empty text for none.
pub(super) use garboard_api::v1::non_empty as text;
use garboard_api::v1::{Devices, DomainSpec, VirtualMachineInstance, VirtualMachineInstanceSpec};
use garboard_machine::blockdev::Blockdev;
use garboard_machine::chardev::{Monitor, SocketChardev};
use garboard_machine::clock::Global;
use garboard_machine::device::{Device, VirtioRevision};
use garboard_machine::facts::HostFacts;
use garboard_machine::features::Accelerator;
use garboard_machine::id::{DeviceId, NodeName};
use garboard_machine::netdev::Netdev;
use garboard_machine::object::Object;
use garboard_machine::pci::{PciAddress, PciAllocator, PciPlace, Placement};
use garboard_machine::process::AddFd;

use super::error::PlanError;
use super::launch::{Descriptor, DescriptorPurpose, FIRST_DESCRIPTOR, Note};
use super::options::PlanOptions;
use super::scratch::ScratchSpace;
use super::stored::{STORED_VERSION, StoredMachine};

/// What a plan is made of.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) vmi: &'a VirtualMachineInstance,
    pub(super) facts: &'a HostFacts,
    pub(super) options: &'a PlanOptions,
    pub(super) stored: Option<&'a StoredMachine>,
}

impl<'a> Input<'a> {
    pub(super) fn spec(self) -> &'a VirtualMachineInstanceSpec {
        &self.vmi.spec
    }

    pub(super) fn domain(self) -> &'a DomainSpec {
        &self.vmi.spec.domain
    }

    pub(super) fn devices(self) -> &'a Devices {
        &self.vmi.spec.domain.devices
    }

    /// What the instance asks to have its instructions executed by.
    pub(super) fn asked_accelerator(self) -> Option<RequestedAccelerator> {
        RequestedAccelerator::of(self.vmi.metadata.annotations.as_ref())
    }

    /// The version of the planner by whose rules the machine is made: that of its first plan.
    pub(super) fn rules(self) -> u32 {
        self.stored.map_or(STORED_VERSION, |stored| stored.rules)
    }

    /// Whether the annotation is set to `true`.
    pub(super) fn is_annotated(self, annotation: &str) -> bool {
        let annotations = self.vmi.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(annotation)).is_some_and(|value| value == "true")
    }

    /// The revision of virtio every device of this VM uses.
    pub(super) fn virtio_revision(self) -> VirtioRevision {
        match self.devices().use_virtio_transitional {
            Some(true) => VirtioRevision::Transitional,
            Some(false) | None => VirtioRevision::NonTransitional,
        }
    }

    /// Refuses a model of device the QEMU of this host does not have.
    pub(super) fn require_device(self, driver: &str, field: &str) -> Result<(), PlanError> {
        self.require_device_or(driver, field, "choose another model")
    }

    /// Refuses a device type the QEMU of this host does not have; `otherwise` is what to do in the manifest.
    pub(super) fn require_device_or(self, driver: &str, field: &str, otherwise: &str) -> Result<(), PlanError> {
        let features = &self.facts.qemu.features;
        if features.has_device(driver) {
            return Ok(());
        }
        Err(PlanError::QemuLacks {
            field: field.to_owned(),
            version: features.version.to_string(),
            what: format!("device `{driver}`"),
            instead: format!("{otherwise}, or install a QEMU that has it"),
        })
    }
}

/// The lists of a machine that several parts of the planner add to.
pub(super) struct Draft<'a> {
    pub(super) input: Input<'a>,
    pub(super) accelerator: Accelerator,
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) notes: Vec<Note>,
    pub(super) add_fds: Vec<AddFd>,
    pub(super) objects: Vec<Object>,
    pub(super) globals: Vec<Global>,
    pub(super) blockdevs: Vec<Blockdev>,
    pub(super) chardevs: Vec<SocketChardev>,
    pub(super) monitors: Vec<Monitor>,
    pub(super) netdevs: Vec<Netdev>,
    pub(super) audiodev: Option<DeviceId>,
    /// Devices that others hang on; they come first.
    pub(super) buses: Vec<Device>,
    pub(super) devices: Vec<Device>,
    pub(super) pci: PciAllocator,
    pub(super) rooms: ScratchSpace,
}

impl<'a> Draft<'a> {
    pub(super) fn new(input: Input<'a>, accelerator: Accelerator) -> Self {
        Self {
            input,
            accelerator,
            descriptors: Vec::new(),
            notes: Vec::new(),
            add_fds: Vec::new(),
            objects: Vec::new(),
            globals: Vec::new(),
            blockdevs: Vec::new(),
            chardevs: Vec::new(),
            monitors: Vec::new(),
            netdevs: Vec::new(),
            audiodev: None,
            buses: Vec::new(),
            devices: Vec::new(),
            pci: PciAllocator::new(input.stored.map(|stored| &stored.pci)),
            rooms: ScratchSpace::of(input),
        }
    }

    /// The number that the next descriptor gets.
    pub(super) fn next_descriptor(&self) -> i32 {
        self.descriptors.last().map_or(FIRST_DESCRIPTOR, |descriptor| descriptor.number + 1)
    }

    /// The next descriptor number, for `purpose`.
    pub(super) fn descriptor(&mut self, purpose: DescriptorPurpose) -> i32 {
        let number = self.next_descriptor();
        self.descriptors.push(Descriptor { number, purpose });
        number
    }

    /// The next descriptor, reachable as `/dev/fdset/<set>`; returns the set. `label` is for `query-fdsets`.
    pub(super) fn descriptor_set(&mut self, purpose: DescriptorPurpose, label: String) -> u32 {
        let fd = self.descriptor(purpose);
        let set = self.add_fds.last().map_or(1, |last| last.set + 1);
        self.add_fds.push(AddFd { fd, set, opaque: label });
        set
    }

    /// A place on PCI for `device`.
    pub(super) fn place(
        &mut self,
        device: &DeviceId,
        placement: Placement,
        field: &str,
    ) -> Result<PciPlace, PlanError> {
        let placement = match placement {
            // Nothing on a root port can be a conventional device, and the user may have asked for no ports.
            Placement::Port | Placement::InterfacePort if self.is_on_root_complex() => Placement::RootComplex,
            Placement::Port
            | Placement::InterfacePort
            | Placement::RootComplex
            | Placement::Graphics
            | Placement::Exactly(_) => placement,
        };
        self.pci.place(device, placement).map_err(|source| PlanError::Pci { field: field.to_owned(), source })
    }

    /// A place on PCI for a virtio device. Transitional ones are conventional PCI devices: they need I/O ports, which
    /// root ports do not hand out.
    pub(super) fn place_virtio(
        &mut self,
        device: &DeviceId,
        placement: Placement,
        field: &str,
    ) -> Result<PciPlace, PlanError> {
        match self.input.virtio_revision() {
            VirtioRevision::NonTransitional => self.place(device, placement, field),
            VirtioRevision::Transitional => self.place(device, Placement::RootComplex, field),
        }
    }

    /// What a manifest's `pciAddress` asks for, else `otherwise`.
    pub(super) fn placement_at(
        address: Option<&str>,
        field: &str,
        otherwise: Placement,
    ) -> Result<Placement, PlanError> {
        match address {
            None => Ok(otherwise),
            Some(address) => address
                .parse::<PciAddress>()
                .map(Placement::Exactly)
                .map_err(|source| PlanError::Pci { field: field.to_owned(), source }),
        }
    }

    fn is_on_root_complex(&self) -> bool {
        self.input.is_annotated(annotation::PCI_DEVICES_ON_ROOT_COMPLEX)
    }

    pub(super) fn note(&mut self, field: Option<&str>, text: impl Into<String>) {
        self.notes.push(Note { field: field.map(str::to_owned), text: text.into() });
    }
}

/// A device ID made from a name of the manifest.
pub(super) fn device_id(prefix: &'static str, name: &str, field: &str) -> Result<DeviceId, PlanError> {
    DeviceId::from_name(prefix, name).map_err(|source| PlanError::Name { field: field.to_owned(), source })
}

/// A node name made from a name of the manifest.
pub(super) fn node_name(prefix: &'static str, name: &str, field: &str) -> Result<NodeName, PlanError> {
    NodeName::from_name(prefix, name).map_err(|source| PlanError::Name { field: field.to_owned(), source })
}

/// A refusal of a value this machine cannot have.
pub(super) fn invalid(field: impl Into<String>, message: impl Into<String>, instead: impl Into<String>) -> PlanError {
    PlanError::Invalid { field: field.into(), message: message.into(), instead: instead.into() }
}
