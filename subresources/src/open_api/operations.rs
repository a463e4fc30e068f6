//! What each subresource is called in OpenAPI, and what its body and its answer are. Pure.

use super::definitions::{
    EVACUATE_CANCEL_OPTIONS, FILE_SYSTEM_LIST, FREEZE_TIMEOUT, GUEST_AGENT_INFO, PAUSE_OPTIONS, PLAN, QMP_ARGUMENTS,
    QMP_REPLY, RESTART_OPTIONS, START_OPTIONS, STOP_OPTIONS, UNPAUSE_OPTIONS, USER_LIST, VIRTUAL_MACHINE,
};
use crate::route::Resource;
use crate::routes::{Action, QmpLevel, Route};

/// Types of parameters.
const BOOLEAN: &str = "boolean";
const STRING: &str = "string";

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// 202, without a body.
    Accepted,
    /// 200, without a body.
    Done,
    /// 101: a websocket follows.
    Stream,
    /// A PNG.
    Picture,
    /// Lines of text.
    Text,
    /// JSON of this type.
    Typed(&'static str),
}

impl Answer {
    /// Its media type.
    pub(super) const fn media(self) -> &'static str {
        match self {
            Self::Picture => "image/png",
            Self::Text => "text/plain",
            Self::Accepted | Self::Done | Self::Stream | Self::Typed(_) => "application/json",
        }
    }
}

/// A subresource in OpenAPI.
#[derive(Debug)]
pub(super) struct Described {
    /// The subresource; empty for the route without an object.
    pub(super) subresource: &'static str,
    /// KubeVirt's name of the operation, without the version; `KIND` is `vm` or `vmi`.
    operation: &'static str,
    /// The type of the body.
    pub(super) body: Option<&'static str>,
    /// What is answered.
    pub(super) answer: Answer,
    /// The parameters of the query: the name, and its type in OpenAPI.
    pub(super) query: &'static [(&'static str, &'static str)],
}

const fn row(subresource: &'static str, operation: &'static str, answer: Answer) -> Described {
    Described { subresource, operation, body: None, answer, query: &[] }
}

impl Described {
    const fn body(self, name: &'static str) -> Self {
        Self { body: Some(name), ..self }
    }

    const fn query(self, parameters: &'static [(&'static str, &'static str)]) -> Self {
        Self { query: parameters, ..self }
    }

    /// That of a route. One that is served has a row of its own, as a test says.
    pub(super) fn of(route: &Route) -> &'static Self {
        if let Action::QmpCommand(level) = route.action {
            return command(level);
        }
        ALL.iter().find(|described| described.subresource == route.subresource).unwrap_or(&UNNAMED)
    }

    /// The name of a route's operation.
    pub(super) fn operation(&self, route: &Route) -> String {
        let kind = if route.resource == Resource::VirtualMachineInstance { "vmi" } else { "vm" };
        self.operation.replace("KIND", kind)
    }
}

static UNNAMED: Described = row("", "KIND", Answer::Done);

/// The rows of commands of QMP, whose subresources are those of its sessions.
fn command(level: QmpLevel) -> &'static Described {
    match level {
        QmpLevel::Read => &QMP_READ,
        QmpLevel::Write => &QMP_WRITE,
        QmpLevel::Dangerous => &QMP_DANGEROUS,
    }
}

static QMP_READ: Described =
    row("qmp-read", "QmpReadCommand", Answer::Typed(QMP_REPLY)).query(&[("arguments", STRING)]);
static QMP_WRITE: Described = row("qmp-write", "QmpWriteCommand", Answer::Typed(QMP_REPLY)).body(QMP_ARGUMENTS);
static QMP_DANGEROUS: Described =
    row("qmp-dangerous", "QmpDangerousCommand", Answer::Typed(QMP_REPLY)).body(QMP_ARGUMENTS);

/// Each subresource that may be served.
pub(super) static ALL: &[Described] = &[
    row("", "ExpandSpec", Answer::Typed(VIRTUAL_MACHINE)).body(VIRTUAL_MACHINE),
    row("expand-spec", "vm-ExpandSpec", Answer::Typed(VIRTUAL_MACHINE)),
    row("start", "Start", Answer::Accepted).body(START_OPTIONS),
    row("stop", "Stop", Answer::Accepted).body(STOP_OPTIONS),
    row("restart", "Restart", Answer::Accepted).body(RESTART_OPTIONS),
    row("evacuate/cancel", "KIND-evacuatecancel", Answer::Done).body(EVACUATE_CANCEL_OPTIONS),
    row("pause", "Pause", Answer::Done).body(PAUSE_OPTIONS),
    row("unpause", "Unpause", Answer::Done).body(UNPAUSE_OPTIONS),
    row("freeze", "Freeze", Answer::Done).body(FREEZE_TIMEOUT),
    row("unfreeze", "Unfreeze", Answer::Done),
    row("reset", "Reset", Answer::Done),
    row("softreboot", "SoftReboot", Answer::Done),
    row("guestosinfo", "Guestosinfo", Answer::Typed(GUEST_AGENT_INFO)),
    row("userlist", "Userlist", Answer::Typed(USER_LIST)),
    row("filesystemlist", "Filesystemlist", Answer::Typed(FILE_SYSTEM_LIST)),
    // The last two are ours: to look on, and to go on where a console was.
    row("console", "Console", Answer::Stream).query(&[
        ("preserveSession", BOOLEAN),
        ("view", BOOLEAN),
        ("position", STRING),
    ]),
    row("vnc", "VNC", Answer::Stream).query(&[("preserveSession", BOOLEAN)]),
    row("vnc/screenshot", "VNCScreenshot", Answer::Picture).query(&[("moveCursor", BOOLEAN)]),
    row("portforward", "KIND-PortForward", Answer::Stream),
    row("usbredir", "usbredir", Answer::Stream),
    row("qmp-read", "QmpRead", Answer::Stream),
    row("qmp-write", "QmpWrite", Answer::Stream),
    row("qmp-dangerous", "QmpDangerous", Answer::Stream),
    row("screendump", "Screendump", Answer::Picture).query(&[("moveCursor", BOOLEAN)]),
    row("plan", "Plan", Answer::Typed(PLAN)),
    row("logs", "Logs", Answer::Text),
];
