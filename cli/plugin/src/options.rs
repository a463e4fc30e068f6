//! Options that several commands have, here and in `garboard`.

use clap::{Args, ValueEnum};

/// How one thing is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For programs, and easier to read.
    Yaml,
}

/// In another language than QEMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// libvirt's domain XML, for tools that read it; Garboard itself takes none.
    DomainXml,
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListOutput {
    /// For people.
    Text,
    /// With more columns.
    Wide,
    /// Names only, one a line.
    Name,
    /// For programs.
    Json,
    /// For programs, and easier to read.
    Yaml,
}

/// What a viewer of a console may do.
#[derive(Args, Clone, Copy, Debug)]
pub struct ConsoleMode {
    /// Look only.
    #[arg(long, conflicts_with = "take_over")]
    pub view: bool,
    /// Take the keyboard from the viewer that has it; in a cluster, end the session of another user.
    #[arg(long)]
    pub take_over: bool,
}

/// A part of a run's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogPart {
    /// The supervisor's log in order, then how it ended.
    Events,
    /// QEMU's arguments, one a line.
    Argv,
    /// The plan as JSON.
    Plan,
    /// The QMP transcript, one JSON a line.
    Qmp,
    /// What QEMU itself printed.
    Qemu,
    /// The end of the serial output.
    Serial,
    /// How it ended, as JSON.
    Exit,
}

/// What is sent to QEMU.
#[derive(Args, Debug)]
pub struct QmpTask {
    /// Command to execute; without it the session is interactive.
    pub command: Option<String>,
    /// Its arguments as a JSON object.
    pub arguments: Option<String>,
    /// Let commands through that change the machine; it is then marked as tainted.
    #[arg(long)]
    pub allow_write: bool,
    /// Let dangerous commands through as well: quit, migrate, device_del, human-monitor-command and the like.
    #[arg(long)]
    pub allow_dangerous: bool,
}
