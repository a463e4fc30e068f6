//! Completion as kubectl asks plugins for it: it executes `kubectl_complete-garboard` with the arguments so far, the last of which
//! is the one to be completed, and reads one candidate a line, then a directive: Cobra's protocol
//! (<https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>).
//!
//! ```text
//!   arguments ──place (pure, from the definitions of --help)──► Wanted ──kubectl, for names of the cluster──► candidates
//! ```

use std::ffi::OsString;

use clap::{Arg, Command, CommandFactory, FromArgMatches, ValueHint};

use crate::args::{ClusterArgs, Plugin};
use crate::exit;
use crate::kubectl::Kubectl;
use crate::look::{Look, is_name};
use crate::output::outln;

/// Cobra's `ShellCompDirectiveDefault`: where there are no candidates, the shell completes names of files.
const FILES: &str = ":0";
/// Cobra's `ShellCompDirectiveNoFileComp`: names of files are no candidates.
const NO_FILES: &str = ":4";
/// A shell is waiting: longer than this no request to the API server may take.
const REQUEST_TIMEOUT: &str = "3s";
/// Both kinds of machines.
const MACHINES: &str = "virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io";

/// Answers kubectl.
pub(crate) fn run() -> anyhow::Result<u8> {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let (typed, before) = arguments.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let Place { wanted, begun } = place(before, typed);
    let directive = if wanted == Wanted::Files { FILES } else { NO_FILES };
    for candidate in candidates(wanted, before).iter().filter(|one| one.text.starts_with(begun)) {
        // What the cluster names may be anything; a line is one candidate.
        match candidate.about.as_str() {
            "" => outln!("{}", plain(&candidate.text))?,
            about => outln!("{}\t{}", plain(&candidate.text), plain(about))?,
        }
    }
    outln!("{directive}")?;
    Ok(exit::OK)
}

fn plain(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).collect()
}

/// Something that may stand at a place, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    text: String,
    about: String,
}

impl Candidate {
    fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), about: String::new() }
    }
}

/// What may stand at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// One of these.
    These(Vec<Candidate>),
    /// Machines or instances, but for those that are named already.
    Machines(Vec<String>),
    /// Commands of QMP that this machine's QEMU has.
    QmpCommands(String),
    /// Namespaces of the cluster.
    Namespaces,
    /// What the kubeconfig has under this key.
    OfConfig(&'static str),
    /// Names of files.
    Files,
}

/// A place on the command line.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    wanted: Wanted,
    /// What there is of it.
    begun: &'a str,
}

/// By the same definitions as `--help`. Pure.
fn place<'a>(before: &[String], typed: &'a str) -> Place<'a> {
    let program = Plugin::command();
    let Line { command, option, named } = read(&program, before);
    if let Some(option) = option {
        return Place { wanted: value_of(option), begun: typed };
    }
    // Of `--option=value` the shell takes the value.
    if let Some((name, value)) = typed.split_once('=')
        && let Some(option) = option_of(&program, command, name)
    {
        return Place { wanted: value_of(option), begun: value };
    }
    let wanted = if typed.starts_with('-') {
        let of_command = command.get_arguments().filter(|one| !std::ptr::eq(command, &program) || !one.is_positional());
        let all = program.get_arguments().filter(|_| !std::ptr::eq(command, &program)).chain(of_command);
        Wanted::These(all.filter_map(option_candidate).collect())
    } else if command.has_subcommands() {
        Wanted::These(command.get_subcommands().filter(|one| !one.is_hide_set()).map(command_candidate).collect())
    } else {
        positional(command, named)
    };
    Place { wanted, begun: typed }
}

/// What stands before the place.
struct Line<'a> {
    /// The innermost subcommand.
    command: &'a Command,
    /// An option whose value is to come.
    option: Option<&'a Arg>,
    /// Arguments that are neither options nor commands.
    named: Vec<String>,
}

fn read<'a>(program: &'a Command, before: &[String]) -> Line<'a> {
    let mut line = Line { command: program, option: None, named: Vec::new() };
    for argument in before {
        if line.option.take().is_some() {
            continue;
        }
        if argument.starts_with('-') {
            line.option = option_of(program, line.command, argument);
        } else if let Some(command) = line.command.find_subcommand(argument) {
            line.command = command;
        } else {
            line.named.push(argument.clone());
        }
    }
    line
}

/// The option that is written so and takes a value, which may be the next argument.
fn option_of<'a>(program: &'a Command, command: &'a Command, argument: &str) -> Option<&'a Arg> {
    let is_it = |option: &&Arg| {
        let is_long = option.get_long().is_some_and(|long| argument.strip_prefix("--") == Some(long));
        let is_short = option.get_short().is_some_and(|short| argument.strip_prefix('-') == Some(&short.to_string()));
        is_long || is_short
    };
    let found = command.get_arguments().chain(program.get_arguments()).find(is_it)?;
    (found.get_action().takes_values() && !found.is_require_equals_set()).then_some(found)
}

fn option_candidate(option: &Arg) -> Option<Candidate> {
    let about = option.get_help().map(ToString::to_string).unwrap_or_default();
    option.get_long().filter(|_| !option.is_hide_set()).map(|long| Candidate { text: format!("--{long}"), about })
}

fn command_candidate(command: &Command) -> Candidate {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    Candidate { text: command.get_name().to_owned(), about }
}

/// What an option takes.
fn value_of(option: &Arg) -> Wanted {
    match option.get_id().as_str() {
        "namespace" | "garboard_namespace" => Wanted::Namespaces,
        "against_running" => Wanted::Machines(Vec::new()),
        "context" => Wanted::OfConfig("contexts"),
        "cluster_name" => Wanted::OfConfig("clusters"),
        "user" => Wanted::OfConfig("users"),
        _ if option.get_value_hint() == ValueHint::AnyPath => Wanted::Files,
        _ => Wanted::These(choices(option)),
    }
}

fn choices(option: &Arg) -> Vec<Candidate> {
    let all = option.get_possible_values();
    let about = |help: Option<&clap::builder::StyledStr>| help.map(ToString::to_string).unwrap_or_default();
    all.iter().map(|one| Candidate { text: one.get_name().to_owned(), about: about(one.get_help()) }).collect()
}

/// A machine where one more may be named, and after the machine a command of QMP.
fn positional(command: &Command, named: Vec<String>) -> Wanted {
    if command.get_name() == "qmp"
        && let [machine] = named.as_slice()
    {
        return Wanted::QmpCommands(machine.clone());
    }
    let mut positionals = command.get_positionals();
    match positionals.find(|one| matches!(one.get_id().as_str(), "machine" | "machines")) {
        Some(machines) if machines.get_id() == "machines" || named.is_empty() => Wanted::Machines(named),
        Some(_) | None => Wanted::These(Vec::new()),
    }
}

/// Asks the cluster, or the kubeconfig, for names; there are none if it does not answer.
fn candidates(wanted: Wanted, before: &[String]) -> Vec<Candidate> {
    let kubectl = || chosen(before);
    let mut names: Vec<String> = match wanted {
        Wanted::These(all) => return all,
        Wanted::Files => return Vec::new(),
        Wanted::Machines(named) => {
            names(&kubectl(), MACHINES).into_iter().filter(|name| !named.contains(name)).collect()
        }
        Wanted::QmpCommands(machine) if is_name(&machine) => {
            let kubectl = kubectl();
            crate::qmp::commands(&kubectl, &kubectl.looked_at(), &machine)
        }
        Wanted::QmpCommands(_) => Vec::new(),
        Wanted::Namespaces => names(&kubectl(), "namespaces"),
        Wanted::OfConfig(key) => of_config(&kubectl(), key),
    };
    names.sort();
    names.dedup();
    names.into_iter().map(Candidate::of).collect()
}

fn names(kubectl: &Kubectl, kinds: &str) -> Vec<String> {
    let objects = kubectl.get(&[kinds]).unwrap_or_default();
    objects.iter().filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

fn of_config(kubectl: &Kubectl, key: &str) -> Vec<String> {
    let bytes = kubectl.run(&["config", "view", "-o", "json"]).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let all = config[key].as_array().into_iter().flatten();
    all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

/// kubectl with the cluster and namespace that the arguments so far choose, as far as they can be read.
fn chosen(before: &[String]) -> Kubectl {
    let line = [OsString::from(crate::PROGRAM)].into_iter().chain(before.iter().map(OsString::from));
    let matches = Plugin::command().ignore_errors(true).try_get_matches_from(line).ok();
    let cluster = matches.as_ref().and_then(|matches| ClusterArgs::from_arg_matches(matches).ok()).unwrap_or_default();
    let namespace = matches.and_then(|matches| matches.try_get_one::<String>("namespace").ok().flatten().cloned());
    let request_timeout = cluster.request_timeout.clone().or_else(|| Some(REQUEST_TIMEOUT.to_owned()));
    Kubectl::new(&ClusterArgs { request_timeout, ..cluster }, namespace.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a kubectl that answers as an API server does which serves the schema.
    #[cfg(unix)]
    #[test]
    fn commands_of_qmp_are_those_of_the_machines_own_qemu() {
        let directory = tempfile::tempdir().unwrap();
        let schema = r#"{"return": [{"name": "stop", "meta-type": "command", "arg-type": "0", "ret-type": "0"},
            {"name": "STOP", "meta-type": "event", "arg-type": "0"}, {"name": "0", "meta-type": "object", "members": []}]}"#;
        let path = "/apis/subresources.garboard.dev/v1/namespaces/tenant/virtualmachineinstances/hello/qmp-read/query-qmp-schema";
        let script =
            format!("case \"$*\" in \"get --raw {path}\") cat <<'END'\n{schema}\nEND\n;; *) echo '{{}}';; esac");
        let kubectl = Kubectl::played(directory.path(), &script);
        assert_eq!(crate::qmp::commands(&kubectl, "tenant", "hello"), ["stop"]);
        assert_eq!(crate::qmp::commands(&kubectl, "tenant", "other"), Vec::<String>::new());
    }

    fn at(line: &str, typed: &'static str) -> Place<'static> {
        let before: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        place(&before, typed)
    }

    fn texts(wanted: Wanted) -> Vec<String> {
        let Wanted::These(all) = wanted else { panic!("no texts: {wanted:?}") };
        all.into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn commands_are_completed_with_what_they_do() {
        let Wanted::These(all) = at("", "").wanted else { panic!("no commands") };
        let why = all.iter().find(|one| one.text == "why").unwrap();
        assert!(why.about.contains("why"), "{why:?}");
        assert_eq!(texts(at("-n tenant cluster", "").wanted), ["install", "uninstall", "status"]);
    }

    #[test]
    fn options_of_the_command_and_of_kubectl_are_completed() {
        let all = texts(at("stop hello", "--").wanted);
        for option in ["--force", "--context", "--namespace"] {
            assert_eq!(all.iter().filter(|one| *one == option).count(), 1, "{option}: {all:?}");
        }
        assert!(texts(at("", "--").wanted).contains(&"--kubeconfig".to_owned()));
    }

    #[test]
    fn values_are_completed_where_an_option_waits_for_one() {
        assert_eq!(at("console -n", "te"), Place { wanted: Wanted::Namespaces, begun: "te" });
        assert_eq!(at("console", "--namespace=te"), Place { wanted: Wanted::Namespaces, begun: "te" });
        assert_eq!(at("--context", "").wanted, Wanted::OfConfig("contexts"));
        assert_eq!(at("--kubeconfig", "").wanted, Wanted::Files);
        assert_eq!(at("explain -f", "").wanted, Wanted::Files);
        assert_eq!(at("explain --against-running", "").wanted, Wanted::Machines(Vec::new()));
        assert_eq!(texts(at("why hello -o", "").wanted), ["text", "json", "facts"]);
        assert!(texts(at("logs hello --part", "").wanted).contains(&"qmp".to_owned()));
        assert_eq!(at("start --timeout", "").wanted, Wanted::These(Vec::new()), "a number");
    }

    #[test]
    fn machines_are_completed_where_one_more_may_be_named() {
        let machines = |named: &[&str]| Wanted::Machines(named.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(at("console", "").wanted, machines(&[]));
        assert_eq!(at("-n tenant restart hello", "").wanted, machines(&["hello"]));
        assert_eq!(at("console hello", "").wanted, Wanted::These(Vec::new()), "one console, one machine");
        assert_eq!(at("-n tenant qmp", "").wanted, machines(&[]));
        assert_eq!(
            at("qmp --allow-write hello", "st"),
            Place { wanted: Wanted::QmpCommands("hello".into()), begun: "st" }
        );
        assert_eq!(at("qmp hello stop", "").wanted, Wanted::These(Vec::new()), "its arguments");
        assert_eq!(at("start --no-wait", "").wanted, machines(&[]), "an option without a value");
    }
}
