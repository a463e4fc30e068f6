//! What the guest starts from: `-kernel`, `-boot`, and how the machine introduces itself: `-smbios`, `-uuid`.

use crate::argv::{Arg, Argument, Options};

/// `-kernel`, `-initrd`, `-append`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Path of the kernel.
    pub kernel: Option<String>,
    /// Path of the initrd.
    pub initrd: Option<String>,
    /// The kernel's command line.
    pub append: Option<String>,
}

impl Kernel {
    /// The options that are set.
    pub fn arguments(&self) -> impl Iterator<Item = Argument> + '_ {
        [("-kernel", &self.kernel), ("-initrd", &self.initrd), ("-append", &self.append)]
            .into_iter()
            .filter_map(|(flag, value)| value.as_ref().map(|value| Argument::text(flag, value)))
    }
}

/// `-boot`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Milliseconds the firmware offers its menu; `None`: no menu.
    pub menu_milliseconds: Option<u32>,
}

impl Arg for Boot {
    fn argument(&self) -> Argument {
        // Strict: what has no boot index is not tried.
        let options = Options::new()
            .set_some("menu", self.menu_milliseconds.map(|_| true))
            .set_some("splash-time", self.menu_milliseconds)
            .set("strict", true);
        Argument::options("-boot", options)
    }
}

/// `-smbios`: one structure of the table; fields that are `None` keep QEMU's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Smbios {
    /// Type 1.
    System {
        /// The machine's manufacturer.
        manufacturer: String,
        /// Its product name.
        product: String,
        /// Its version.
        version: Option<String>,
        /// Its serial number.
        serial: Option<String>,
        /// Its UUID.
        uuid: Option<String>,
        /// Stock keeping unit.
        sku: Option<String>,
        /// Product family.
        family: String,
    },
    /// Type 3.
    Chassis {
        /// The case's manufacturer.
        manufacturer: Option<String>,
        /// Its version.
        version: Option<String>,
        /// Its serial number.
        serial: Option<String>,
        /// Asset tag.
        asset: Option<String>,
        /// Stock keeping unit.
        sku: Option<String>,
    },
}

impl Arg for Smbios {
    fn argument(&self) -> Argument {
        let options = match self {
            Self::System { manufacturer, product, version, serial, uuid, sku, family } => Options::new()
                .set("type", 1_u32)
                .set("manufacturer", manufacturer)
                .set("product", product)
                .set_some("version", version.as_ref())
                .set_some("serial", serial.as_ref())
                .set_some("uuid", uuid.as_ref())
                .set_some("sku", sku.as_ref())
                .set("family", family),
            Self::Chassis { manufacturer, version, serial, asset, sku } => Options::new()
                .set("type", 3_u32)
                .set_some("manufacturer", manufacturer.as_ref())
                .set_some("version", version.as_ref())
                .set_some("serial", serial.as_ref())
                .set_some("asset", asset.as_ref())
                .set_some("sku", sku.as_ref()),
        };
        Argument::options("-smbios", options)
    }
}
