//! What every command about machines of this host takes: where its state is, and which namespace is meant.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_shim_client::places::{MachineId, Places};

use crate::exit::{BAD_INPUT, exit_error};

/// Options of commands about machines of this host.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Here {
    /// The namespace of machines that are named without one.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Where PVC stand-ins, EFI variables, machines and records are kept.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// A machine as it is written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineName {
    /// Its namespace, if it was written.
    namespace: Option<String>,
    /// Its name.
    name: String,
}

impl FromStr for MachineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let MachineId { namespace, name } = text.parse()?;
        Ok(Self { namespace: text.contains('/').then_some(namespace), name })
    }
}

impl Here {
    /// The directories that are meant.
    pub(crate) fn places(&self) -> anyhow::Result<Places> {
        Ok(Places::of_caller(self.state_dir.as_deref())?)
    }

    /// The machine that is meant.
    pub(crate) fn id(&self, machine: &MachineName) -> anyhow::Result<MachineId> {
        let name = &machine.name;
        let namespace = match (&machine.namespace, &self.namespace) {
            (Some(written), Some(chosen)) if written != chosen => {
                let text = format!("{written}/{name} is not in the namespace {chosen}; leave out one of the two");
                return Err(exit_error(BAD_INPUT, text));
            }
            (Some(namespace), _) | (None, Some(namespace)) => namespace.as_str(),
            (None, None) => DEFAULT_NAMESPACE,
        };
        format!("{namespace}/{name}").parse().map_err(|problem: String| exit_error(BAD_INPUT, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_written_once() {
        let id = |chosen: Option<&str>, name: &str| {
            let here = Here { namespace: chosen.map(str::to_owned), state_dir: None };
            here.id(&name.parse().unwrap()).map(|id| id.to_string())
        };
        assert_eq!(id(None, "a").unwrap(), "default/a");
        assert_eq!(id(Some("n"), "a").unwrap(), "n/a");
        assert_eq!(id(Some("n"), "n/a").unwrap(), "n/a");
        assert_eq!(id(None, "n/a").unwrap(), "n/a");
        assert!(id(Some("n"), "m/a").unwrap_err().to_string().contains("leave out one"));
        assert!(id(Some("../x"), "a").is_err());
        assert!("A/b".parse::<MachineName>().is_err());
    }
}
