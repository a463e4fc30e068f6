//! A whole machine, and its command line.

use crate::argv::{Arg, Argument};
use crate::blockdev::Blockdev;
use crate::board::{Accel, Board};
use crate::chardev::{Monitor, SocketChardev};
use crate::clock::{Global, Rtc};
use crate::cpu::{Cpu, Smp};
use crate::device::Device;
use crate::features::{Feature, QemuFeatures};
use crate::firmware::{Boot, Kernel, Smbios};
use crate::id::DeviceId;
use crate::memory::{Memory, MemoryBackend, NumaNode};
use crate::netdev::Netdev;
use crate::object::Object;
use crate::process::{Action, AddFd, Name, Sandbox};

/// All options of QEMU. What is not here, QEMU does not do: `-nodefaults` and `-no-user-config` are always given,
/// and the machine always starts stopped (`-S`), so that it can be checked before the guest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// `-name`
    pub name: Name,
    /// `-L`, in order.
    pub firmware_dirs: Vec<String>,
    /// `-machine`
    pub board: Board,
    /// `-accel`
    pub accel: Accel,
    /// `-cpu`
    pub cpu: Cpu,
    /// `-smp`
    pub smp: Smp,
    /// `-m`
    pub memory: Memory,
    /// `-object memory-backend-…`
    pub memory_backend: MemoryBackend,
    /// `-numa node`, if memory may come later.
    pub numa: Option<NumaNode>,
    /// `-object`
    pub objects: Vec<Object>,
    /// `-uuid`
    pub uuid: Option<String>,
    /// `-smbios`
    pub smbios: Vec<Smbios>,
    /// `-rtc`
    pub rtc: Rtc,
    /// `-global`
    pub globals: Vec<Global>,
    /// `-boot`
    pub boot: Boot,
    /// `-kernel`, `-initrd`, `-append`
    pub kernel: Kernel,
    /// `-add-fd`
    pub add_fds: Vec<AddFd>,
    /// `-blockdev`, each after those it refers to.
    pub blockdevs: Vec<Blockdev>,
    /// `-chardev`
    pub chardevs: Vec<SocketChardev>,
    /// `-mon`
    pub monitors: Vec<Monitor>,
    /// `-netdev`
    pub netdevs: Vec<Netdev>,
    /// `-audiodev none`, for a guest with a sound card.
    pub audiodev: Option<DeviceId>,
    /// `-device`, each after the bus it hangs on.
    pub devices: Vec<Device>,
    /// Whether there is a screen that VNC clients can be handed over to.
    pub vnc: Vnc,
    /// `-action`
    pub action: Action,
}

/// The VNC server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vnc {
    /// There is none.
    Absent,
    /// It listens nowhere: clients come by `getfd` and `add_client`.
    HandedOver,
}

impl Machine {
    /// Every option in its fixed order, for a QEMU that can do `features`.
    #[must_use]
    pub fn arguments(&self, features: &QemuFeatures) -> Vec<Argument> {
        let mut all = vec![
            self.name.argument(),
            Argument::switch("-S"),
            Argument::switch("-nodefaults"),
            Argument::switch("-no-user-config"),
            Argument::text("-msg", "timestamp=on"),
        ];
        all.extend(features.has(Feature::Sandbox).then(|| Sandbox.argument()));
        all.extend(self.firmware_dirs.iter().map(|dir| Argument::text("-L", dir)));
        all.extend([self.board.argument(), self.accel.argument(), self.cpu.argument(), self.smp.argument()]);
        all.extend([self.memory.argument(), self.memory_backend.argument()]);
        all.extend(self.numa.iter().map(Arg::argument));
        all.extend(self.objects.iter().map(Arg::argument));
        all.extend(self.uuid.iter().map(|uuid| Argument::text("-uuid", uuid)));
        all.extend(self.smbios.iter().map(Arg::argument));
        all.push(self.rtc.argument());
        all.extend(self.globals.iter().map(Arg::argument));
        all.push(self.boot.argument());
        all.extend(self.kernel.arguments());
        all.extend(self.add_fds.iter().map(Arg::argument));
        all.extend(self.blockdevs.iter().map(Arg::argument));
        all.extend(self.chardevs.iter().map(Arg::argument));
        all.extend(self.monitors.iter().map(Arg::argument));
        all.extend(self.netdevs.iter().map(|netdev| netdev.argument_for(features)));
        all.extend(self.audiodev.iter().map(|id| Argument::text("-audiodev", format!("none,id={id}"))));
        all.extend(self.devices.iter().map(Arg::argument));
        all.push(match self.vnc {
            Vnc::Absent => Argument::text("-display", "none"),
            Vnc::HandedOver => Argument::text("-vnc", "none"),
        });
        all.push(self.action.argument());
        all
    }

    /// The command line without the program's own name.
    #[must_use]
    pub fn argv(&self, features: &QemuFeatures) -> Vec<String> {
        let mut argv = Vec::new();
        for argument in self.arguments(features) {
            argument.render(features, &mut argv);
        }
        argv
    }
}
