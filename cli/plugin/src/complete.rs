//! Completion as kubectl asks plug-ins for it: it executes `kubectl_complete-garboard` with the words so far, the last of which
//! is the one to be completed, and reads one candidate a line, then a directive
//! (<https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>).

use std::ffi::OsString;

use clap::{Command, CommandFactory, Parser};

use crate::args::{ClusterArgs, Plugin};
use crate::exit;
use crate::kubectl::Kubectl;
use crate::output::outln;

/// Cobra's `ShellCompDirectiveNoFileComp`: names of files are no candidates.
const NO_FILES: &str = ":4";

/// Answers kubectl.
pub(crate) fn run() -> anyhow::Result<u8> {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let (typed, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let candidates = match candidates(before, typed) {
        Candidates::These(all) => all,
        Candidates::Machines => machines(before),
    };
    candidates.iter().filter(|one| one.starts_with(typed)).try_for_each(|one| outln!("{one}"))?;
    outln!("{NO_FILES}")?;
    Ok(exit::OK)
}

/// What may stand at a place.
#[derive(Debug, PartialEq)]
enum Candidates {
    These(Vec<String>),
    /// Names of machines.
    Machines,
}

/// By the same definitions as `--help`. Pure.
fn candidates(before: &[String], typed: &str) -> Candidates {
    let program = Plugin::command();
    let command = before.iter().find_map(|word| program.find_subcommand(word));
    match command {
        _ if typed.starts_with('-') => {
            Candidates::These(options(&program).chain(command.into_iter().flat_map(options)).collect())
        }
        None => Candidates::These(program.get_subcommands().map(|one| one.get_name().to_owned()).collect()),
        Some(command) if command.get_positionals().any(|one| one.get_id().as_str().starts_with("machine")) => {
            Candidates::Machines
        }
        Some(_) => Candidates::These(Vec::new()),
    }
}

fn options(command: &Command) -> impl Iterator<Item = String> {
    command.get_arguments().filter_map(|one| one.get_long()).map(|long| format!("--{long}"))
}

/// Of the cluster and namespace that the words so far choose; nothing if it cannot be asked.
fn machines(before: &[String]) -> Vec<String> {
    let line = [OsString::from(crate::PROGRAM)].into_iter().chain(before.iter().map(OsString::from));
    let chosen = Plugin::try_parse_from(line.chain([OsString::from("x")])).ok();
    let (cluster, namespace) =
        chosen.map_or((ClusterArgs::default(), None), |plugin| (plugin.args.cluster, plugin.args.namespace));
    let cluster = ClusterArgs { request_timeout: cluster.request_timeout.clone().or(Some("3s".into())), ..cluster };
    let kubectl = Kubectl::new(&cluster, namespace.as_deref());
    let objects = kubectl.get(&["virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io"]).unwrap_or_default();
    let mut names: Vec<String> =
        objects.iter().filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_options_and_machines_are_completed_where_they_may_stand() {
        let at = |line: &str, typed: &str| {
            let before: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            candidates(&before, typed)
        };
        let Candidates::These(commands) = at("", "st") else { panic!("no commands") };
        assert!(commands.contains(&"start".to_owned()) && commands.contains(&"why".to_owned()), "{commands:?}");
        let Candidates::These(options) = at("stop", "--") else { panic!("no options") };
        assert!(options.contains(&"--force".to_owned()) && options.contains(&"--context".to_owned()), "{options:?}");
        assert_eq!(at("console", ""), Candidates::Machines);
        assert_eq!(at("restart hello", ""), Candidates::Machines);
    }
}
