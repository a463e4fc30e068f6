//! The command line of `virsh`, as far as it is there. An option that is not, is refused.

use super::VirshError;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `help`
    Help,
    /// `--version`
    Version,
    /// `list`
    List {
        /// Which of them.
        states: Which,
        /// What of them.
        listed: Listed,
    },
    /// `dumpxml`
    DumpXml {
        /// The machine.
        domain: String,
        /// As of one that does not run.
        inactive: bool,
    },
    /// `domstate`
    State {
        /// The machine.
        domain: String,
        /// And why.
        reason: bool,
    },
    /// `domblklist`
    Disks {
        /// The machine.
        domain: String,
        /// And what they are.
        details: bool,
    },
    /// `domiflist`
    Interfaces {
        /// The machine.
        domain: String,
    },
    /// `qemu-monitor-command`
    Monitor {
        /// The machine.
        domain: String,
        /// Over several lines.
        pretty: bool,
        /// QMP.
        command: String,
    },
}

/// Which machines are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those with a guest.
    Active,
    /// The others.
    Inactive,
    /// All.
    All,
}

/// What of a machine is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// A row.
    Table,
    /// Its name alone.
    Name,
    /// Its UUID alone.
    Uuid,
    /// Its number alone.
    Id,
}

/// The commands that are here: name, arguments, and what each prints.
static COMMANDS: [(&str, &str, &str); 6] = [
    ("list", "[--all | --inactive] [--name | --uuid | --id | --table]", "machines"),
    ("dumpxml", "DOMAIN [--inactive]", "the machine as domain XML"),
    ("domstate", "DOMAIN [--reason]", "its state"),
    ("domblklist", "DOMAIN [--details]", "its disks"),
    ("domiflist", "DOMAIN", "its interfaces"),
    ("qemu-monitor-command", "DOMAIN [--pretty] QMP", "QEMU's answer to a query"),
];

/// Commands of libvirt's that change something, and what does it here.
static INSTEAD: [(&[&str], &str); 8] = [
    (&["start", "create", "define"], "apply a manifest, or `kubectl garboard start NAME`"),
    (&["shutdown", "destroy", "undefine"], "`kubectl garboard stop NAME`, with --force to end it at once"),
    (&["reboot", "reset"], "`kubectl garboard soft-reboot NAME` or `kubectl garboard reset NAME`"),
    (&["suspend"], "`kubectl garboard pause NAME`"),
    (&["resume"], "`kubectl garboard unpause NAME`"),
    (&["console"], "`kubectl garboard console NAME`"),
    (&["vncdisplay", "domdisplay"], "`kubectl garboard vnc NAME`"),
    (&["edit", "attach-device", "detach-device", "attach-disk", "detach-disk"], "change the object with kubectl"),
];

/// Reads a command line without the program's name.
pub(super) fn parse(arguments: &[String]) -> Result<Command, VirshError> {
    let mut rest = arguments.iter().map(String::as_str);
    loop {
        let Some(argument) = rest.next() else { return Ok(Command::Help) };
        match argument {
            "-v" | "--version" | "version" => return Ok(Command::Version),
            "-h" | "--help" | "help" => return Ok(Command::Help),
            // There is one place to connect to, and it is only read.
            "-r" | "--readonly" => {}
            "-c" | "--connect" => {
                rest.next();
            }
            text if text.starts_with("--connect=") => {}
            option if option.starts_with('-') => return Err(VirshError::Global(option.to_owned())),
            command => return parse_command(command, rest.collect()),
        }
    }
}

fn parse_command(command: &str, rest: Vec<&str>) -> Result<Command, VirshError> {
    let Some((command, ..)) = COMMANDS.iter().find(|(name, ..)| *name == command) else {
        let instead = INSTEAD.iter().find(|(names, _)| names.contains(&command)).map(|(_, instead)| *instead);
        return Err(match instead {
            Some(instead) => VirshError::ReadOnly { command: command.to_owned(), instead },
            None => VirshError::Unknown(command.to_owned()),
        });
    };
    let mut line = Line { command, operands: Vec::new(), options: Vec::new() };
    line.read(rest)?;
    match *command {
        "list" => line.list(),
        "dumpxml" => Ok(Command::DumpXml { inactive: line.has("--inactive"), domain: line.only_domain()? }),
        "domstate" => Ok(Command::State { reason: line.has("--reason"), domain: line.only_domain()? }),
        "domblklist" => Ok(Command::Disks { details: line.has("--details"), domain: line.only_domain()? }),
        "domiflist" => Ok(Command::Interfaces { domain: line.only_domain()? }),
        _ => line.monitor(),
    }
}

/// What follows a command.
struct Line<'a> {
    command: &'static str,
    operands: Vec<&'a str>,
    options: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn known(&self) -> &'static [&'static str] {
        match self.command {
            "list" => &["--all", "--inactive", "--name", "--uuid", "--id", "--table"],
            "dumpxml" => &["--inactive"],
            "domstate" => &["--reason"],
            "domblklist" => &["--details"],
            "qemu-monitor-command" => &["--pretty"],
            _ => &[],
        }
    }

    fn read(&mut self, rest: Vec<&'a str>) -> Result<(), VirshError> {
        for item in rest {
            match item {
                // What stands behind them is an operand like others.
                "--domain" if self.command != "list" => {}
                "--cmd" if self.command == "qemu-monitor-command" => {}
                option if self.known().contains(&option) => self.options.push(option),
                option if option.starts_with("--") => match option.strip_prefix("--domain=") {
                    Some(domain) if self.command != "list" => self.operands.push(domain),
                    Some(_) | None => {
                        let option = option.split('=').next().unwrap_or_default().to_owned();
                        return Err(VirshError::Option { command: self.command, option });
                    }
                },
                operand => self.operands.push(operand),
            }
        }
        Ok(())
    }

    fn has(&self, option: &str) -> bool {
        self.options.contains(&option)
    }

    fn domain(&self) -> Result<&'a str, VirshError> {
        let missing = VirshError::Requires { command: self.command, option: "domain" };
        self.operands.first().copied().ok_or(missing)
    }

    /// The machine, and nothing behind it.
    fn only_domain(&self) -> Result<String, VirshError> {
        let domain = self.domain()?;
        match self.operands.get(1) {
            Some(excess) => Err(VirshError::Excess((*excess).to_owned())),
            None => Ok(domain.to_owned()),
        }
    }

    fn list(&self) -> Result<Command, VirshError> {
        if let Some(excess) = self.operands.first() {
            return Err(VirshError::Excess((*excess).to_owned()));
        }
        let states = match (self.has("--all"), self.has("--inactive")) {
            (true, _) => Which::All,
            (false, true) => Which::Inactive,
            (false, false) => Which::Active,
        };
        let alone = [("--name", Listed::Name), ("--uuid", Listed::Uuid), ("--id", Listed::Id)];
        let listed = alone.iter().find(|(option, _)| self.has(option)).map_or(Listed::Table, |(_, listed)| *listed);
        Ok(Command::List { states, listed })
    }

    fn monitor(&self) -> Result<Command, VirshError> {
        let domain = self.domain()?.to_owned();
        let command = self.operands.get(1..).unwrap_or_default().join(" ");
        if command.is_empty() {
            return Err(VirshError::Requires { command: self.command, option: "cmd" });
        }
        Ok(Command::Monitor { domain, pretty: self.has("--pretty"), command })
    }
}

/// What is here.
pub(super) fn help() -> String {
    let line = |(name, arguments, what): &(&str, &str, &str)| format!("    {name} {arguments}\n        {what}\n");
    let commands: String = COMMANDS.iter().map(line).collect();
    format!(
        "virsh of Garboard: it reads, and changes nothing. DOMAIN is a number, NAMESPACE_NAME or a UUID.\n\n{commands}\n"
    )
}
