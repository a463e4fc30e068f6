//! The table of routes: one line for each, in the order in which discovery lists them. Pure.

use crate::not_here::NotHere;
use crate::route::{Method, Resource};

/// What a route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Starts a VirtualMachine.
    Start,
    /// Stops a VirtualMachine.
    Stop,
    /// Restarts a VirtualMachine.
    Restart,
    /// Answers the VirtualMachine with its instancetype and preference filled in.
    ExpandSpec,
    /// The same for a VirtualMachine that the request carries.
    ExpandVmSpec,
    /// Asks the supervisor of a running instance.
    Ask(Question),
    /// Answers what the guest agent of a running instance reports.
    Read(Reading),
    /// Answers a picture of the screen of a running instance.
    Screenshot,
    /// Opens a stream to the supervisor of a running instance.
    Open(Stream),
    /// Connects to a port of the guest.
    Forward,
    /// Opens a session of QMP with a running instance.
    Qmp(QmpLevel),
    /// Has QEMU of a running instance execute one command, and answers its reply.
    QmpCommand(QmpLevel),
    /// Answers a part of the record of an instance whose run is not over.
    Show(Shown),
    /// Takes back that an instance is to leave its node.
    CancelEvacuation,
    /// A route of KubeVirt for what is not there: it answers as KubeVirt does where that is switched off, and discovery does not
    /// list it.
    Refuse(NotHere),
}

impl Action {
    /// Whether it changes something, or reaches a launcher or its guest; others read objects, and decide.
    #[must_use]
    pub const fn is_more_than_a_look(&self) -> bool {
        match self {
            Self::Start
            | Self::Stop
            | Self::Restart
            | Self::Ask(_)
            | Self::Read(_)
            | Self::Screenshot
            | Self::Open(_)
            | Self::Forward
            | Self::Qmp(_)
            | Self::QmpCommand(_)
            | Self::Show(_)
            | Self::CancelEvacuation => true,
            Self::ExpandSpec | Self::ExpandVmSpec | Self::Refuse(_) => false,
        }
    }
}

/// What a supervisor is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// To stop the vCPUs.
    Pause,
    /// To let them run again.
    Unpause,
    /// To press the reset button.
    Reset,
    /// To have the guest shut down and start again.
    SoftReboot,
    /// To freeze the guest's file systems.
    Freeze,
    /// To thaw them.
    Unfreeze,
}

/// What is read of a guest, by its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reading {
    /// Everything (`VirtualMachineInstanceGuestAgentInfo`).
    GuestOsInfo,
    /// Users who are logged in (`VirtualMachineInstanceGuestOSUserList`).
    UserList,
    /// Mounted file systems (`VirtualMachineInstanceFileSystemList`).
    FilesystemList,
}

/// A stream of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The serial console.
    Console,
    /// The screen.
    Vnc,
    /// A slot for a USB device of the client.
    UsbRedir,
}

/// What QMP may reach: the levels of the broker (`qmp/src/broker/policy.rs`), each a subresource with a right of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QmpLevel {
    /// Queries.
    Read,
    /// Commands that change the machine, too, but for those that can end the guest, lose its data or show its secrets.
    Write,
    /// All that the broker lets through.
    Dangerous,
}

/// What of a machine's record is read, each a subresource with a right of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    /// What it is made of: the plan that was executed, and what that was planned from.
    Plan,
    /// What was printed: by QEMU, on its monitor, by the guest.
    Logs,
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The resource; the last segment of the path, where there is no object.
    pub resource: Resource,
    /// What follows the name of the object, without the parameters that follow it; empty where there is no object.
    pub subresource: &'static str,
    /// The method.
    pub method: Method,
    /// What it does.
    pub action: Action,
}

impl Route {
    /// Whether it does something. Discovery and roles have no other.
    #[must_use]
    pub const fn is_served(&self) -> bool {
        !matches!(self.action, Action::Refuse(_))
    }

    /// The verb of roles that a caller needs. What starts, stops or changes a machine needs `update`, by whatever method it is asked: a
    /// websocket is opened by `GET`, and a right to read everything is none to change anything.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        match self.action {
            Action::Start | Action::Stop | Action::Qmp(QmpLevel::Write | QmpLevel::Dangerous) => Method::Put.verb(),
            Action::Qmp(QmpLevel::Read)
            | Action::QmpCommand(_)
            | Action::Show(_)
            | Action::Restart
            | Action::ExpandSpec
            | Action::ExpandVmSpec
            | Action::Ask(_)
            | Action::Read(_)
            | Action::Screenshot
            | Action::Open(_)
            | Action::Forward
            | Action::CancelEvacuation
            | Action::Refuse(_) => self.method.verb(),
        }
    }

    /// How many segments may follow the subresource, from the fewest to the most: port and protocol, a command, or a part.
    #[must_use]
    pub const fn parameters(&self) -> (usize, usize) {
        match self.action {
            Action::Forward => (1, 2),
            Action::QmpCommand(_) => (1, 1),
            // Without one it is the plan itself; of logs that is refused with the names of the parts.
            Action::Show(_) => (0, 1),
            Action::Start
            | Action::Stop
            | Action::Restart
            | Action::ExpandSpec
            | Action::ExpandVmSpec
            | Action::Ask(_)
            | Action::Read(_)
            | Action::Screenshot
            | Action::Open(_)
            | Action::Qmp(_)
            | Action::CancelEvacuation
            | Action::Refuse(_) => (0, 0),
        }
    }

    /// Its name in discovery and in roles: `virtualmachines/start`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.subresource {
            "" => self.resource.plural().to_owned(),
            subresource => format!("{}/{subresource}", self.resource.plural()),
        }
    }
}

const fn vm(subresource: &'static str, method: Method, action: Action) -> Route {
    Route { resource: Resource::VirtualMachine, subresource, method, action }
}

const fn vmi(subresource: &'static str, method: Method, action: Action) -> Route {
    Route { resource: Resource::VirtualMachineInstance, subresource, method, action }
}

/// Every route.
pub const ROUTES: &[Route] = &[
    Route { resource: Resource::ExpandVmSpec, subresource: "", method: Method::Put, action: Action::ExpandVmSpec },
    vm("start", Method::Put, Action::Start),
    vm("stop", Method::Put, Action::Stop),
    vm("restart", Method::Put, Action::Restart),
    vm("expand-spec", Method::Get, Action::ExpandSpec),
    vm("migrate", Method::Put, Action::Refuse(NotHere::Migration)),
    vm("addvolume", Method::Put, Action::Refuse(NotHere::AddVolume)),
    vm("removevolume", Method::Put, Action::Refuse(NotHere::RemoveVolume)),
    vm("addinterface", Method::Put, Action::Refuse(NotHere::AddInterface)),
    vm("removeinterface", Method::Put, Action::Refuse(NotHere::RemoveInterface)),
    vm("memorydump", Method::Put, Action::Refuse(NotHere::MemoryDump)),
    vm("removememorydump", Method::Put, Action::Refuse(NotHere::RemoveMemoryDump)),
    vm("portforward", Method::Get, Action::Forward),
    vm("objectgraph", Method::Get, Action::Refuse(NotHere::ObjectGraph)),
    vm("evacuate/cancel", Method::Put, Action::CancelEvacuation),
    vmi("console", Method::Get, Action::Open(Stream::Console)),
    vmi("vnc", Method::Get, Action::Open(Stream::Vnc)),
    vmi("vnc/screenshot", Method::Get, Action::Screenshot),
    vmi("portforward", Method::Get, Action::Forward),
    vmi("usbredir", Method::Get, Action::Open(Stream::UsbRedir)),
    vmi("vsock", Method::Get, Action::Refuse(NotHere::Vsock)),
    vmi("pause", Method::Put, Action::Ask(Question::Pause)),
    vmi("unpause", Method::Put, Action::Ask(Question::Unpause)),
    vmi("freeze", Method::Put, Action::Ask(Question::Freeze)),
    vmi("unfreeze", Method::Put, Action::Ask(Question::Unfreeze)),
    vmi("reset", Method::Put, Action::Ask(Question::Reset)),
    vmi("softreboot", Method::Put, Action::Ask(Question::SoftReboot)),
    vmi("guestosinfo", Method::Get, Action::Read(Reading::GuestOsInfo)),
    vmi("userlist", Method::Get, Action::Read(Reading::UserList)),
    vmi("filesystemlist", Method::Get, Action::Read(Reading::FilesystemList)),
    vmi("addvolume", Method::Put, Action::Refuse(NotHere::AddVolume)),
    vmi("removevolume", Method::Put, Action::Refuse(NotHere::RemoveVolume)),
    vmi("addinterface", Method::Put, Action::Refuse(NotHere::AddInterface)),
    vmi("removeinterface", Method::Put, Action::Refuse(NotHere::RemoveInterface)),
    vmi("backup", Method::Put, Action::Refuse(NotHere::Backup)),
    vmi("redefine-checkpoint", Method::Put, Action::Refuse(NotHere::Checkpoint)),
    vmi("objectgraph", Method::Get, Action::Refuse(NotHere::ObjectGraph)),
    vmi("evacuate/cancel", Method::Put, Action::CancelEvacuation),
    vmi("sev/fetchcertchain", Method::Get, Action::Refuse(NotHere::Sev)),
    vmi("sev/querylaunchmeasurement", Method::Get, Action::Refuse(NotHere::Sev)),
    vmi("sev/setupsession", Method::Put, Action::Refuse(NotHere::Sev)),
    vmi("sev/injectlaunchsecret", Method::Put, Action::Refuse(NotHere::Sev)),
];

/// The version of the first clients of KubeVirt, and its routes: they start and stop a machine by `GET`.
pub const FIRST_VERSION: &str = "v1alpha2";
/// Every route of [`FIRST_VERSION`].
pub const FIRST_ROUTES: &[Route] = &[vm("start", Method::Get, Action::Start), vm("stop", Method::Get, Action::Stop)];

/// Every route of our own group. Subresources have one segment, because API servers read one when they ask for rights.
pub const OWN_ROUTES: &[Route] = &[
    vmi("qmp-read", Method::Get, Action::Qmp(QmpLevel::Read)),
    vmi("qmp-write", Method::Get, Action::Qmp(QmpLevel::Write)),
    vmi("qmp-dangerous", Method::Get, Action::Qmp(QmpLevel::Dangerous)),
    vmi("qmp-read", Method::Get, Action::QmpCommand(QmpLevel::Read)),
    vmi("qmp-write", Method::Put, Action::QmpCommand(QmpLevel::Write)),
    vmi("qmp-dangerous", Method::Put, Action::QmpCommand(QmpLevel::Dangerous)),
    vmi("screendump", Method::Get, Action::Screenshot),
    vmi("plan", Method::Get, Action::Show(Shown::Plan)),
    vmi("logs", Method::Get, Action::Show(Shown::Logs)),
];

/// The routes of our own group, which has one version.
#[must_use]
pub const fn own_routes() -> &'static [Route] {
    OWN_ROUTES
}

/// The routes of a version of KubeVirt's group.
#[must_use]
pub fn routes(version: &str) -> &'static [Route] {
    if version == FIRST_VERSION { FIRST_ROUTES } else { ROUTES }
}
