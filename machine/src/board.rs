//! `-machine` and `-accel`: the board everything is plugged into.

use crate::argv::{Arg, Argument, Options};
use crate::cpu::Switch;
use crate::features::Accelerator;
use crate::id::{DeviceId, NodeName};
use crate::overhead::TCG_BUFFER_MIB;

/// `-machine`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// Versioned type, for example `pc-q35-7.2`. Never an alias: that would mean another machine after an upgrade.
    pub machine_type: String,
    /// The backend of the guest's memory, unless NUMA nodes name it.
    pub memory_backend: Option<DeviceId>,
    /// UEFI code and variables.
    pub pflash: Option<[NodeName; 2]>,
    /// System management mode; `None`: QEMU's choice.
    pub smm: Option<Switch>,
    /// ACPI tables.
    pub acpi: Switch,
    /// High precision event timer; `None`: QEMU's choice.
    pub hpet: Option<Switch>,
    /// Programmable interval timer; `None`: QEMU's choice.
    pub pit: Option<Switch>,
    /// `off`: firmware uses the serial port.
    pub graphics: Option<Switch>,
}

impl Arg for Board {
    fn argument(&self) -> Argument {
        let switch = |switch: Option<Switch>| switch.map(Switch::as_str);
        let options = Options::new()
            .set("type", &self.machine_type)
            .set("usb", false)
            .set("vmport", false)
            // Guest memory in a core file would be as large as the guest and full of its secrets.
            .set("dump-guest-core", false)
            .set_some("memory-backend", self.memory_backend.as_ref())
            .set_some("pflash0", self.pflash.as_ref().map(|[code, _]| code))
            .set_some("pflash1", self.pflash.as_ref().map(|[_, vars]| vars))
            .set_some("smm", switch(self.smm))
            .set("acpi", self.acpi.as_str())
            .set_some("hpet", switch(self.hpet))
            .set_some("pit", switch(self.pit))
            .set_some("graphics", switch(self.graphics));
        Argument::options("-machine", options)
    }
}

/// `-accel`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accel {
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
}

impl Arg for Accel {
    fn argument(&self) -> Argument {
        let options = Options::led_by(self.accelerator.as_str());
        let options = match self.accelerator {
            Accelerator::Kvm => options,
            Accelerator::Tcg => options.set("thread", "multi").set("tb-size", TCG_BUFFER_MIB),
        };
        Argument::options("-accel", options)
    }
}
