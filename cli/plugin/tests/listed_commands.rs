//! Texts that list the plugin's commands in prose name each of them.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::collections::BTreeSet;

use clap::CommandFactory;
use garboard_kubectl::Plugin;

fn commands() -> BTreeSet<String> {
    let all = Plugin::command();
    all.get_subcommands().map(|command| command.get_name().to_owned()).filter(|name| name != "help").collect()
}

fn names_in(text: &str) -> BTreeSet<String> {
    text.split(|one: char| !one.is_ascii_alphanumeric() && one != '-').map(str::to_owned).collect()
}

#[test]
fn the_help_says_which_rights_each_command_needs() {
    let help = Plugin::command().get_after_help().unwrap().to_string();
    let (_, rights) = help.split_once("names another kubectl.\n").unwrap();
    let missing: Vec<String> = commands().difference(&names_in(rights)).cloned().collect();
    assert!(missing.is_empty(), "HOW in cli/plugin/src/args.rs does not name {missing:?}: {rights}");
}

#[test]
fn the_manifest_for_krew_lists_the_commands() {
    let manifest = include_str!("../../../deploy/krew/manifest");
    let (_, rest) = manifest.split_once(" Commands: ").unwrap();
    let (listed, _) = rest.split_once(".\n").unwrap();
    let listed: BTreeSet<String> = listed.split(',').map(|name| name.trim().to_owned()).collect();
    assert_eq!(listed, commands(), "deploy/krew/manifest");
}
