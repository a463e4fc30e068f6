//! `garboard`: virtual machines from `kubevirt.io` manifests, on a bare host. Wiring only.
//!
//! Results go to standard output, progress and complaints to standard error; exit codes are in [`exit`].
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one program that talks to a person")]

mod args;
mod attend;
mod claims;
mod client;
mod completions;
mod console;
mod doctor;
mod downward;
mod exit;
mod explain;
mod host;
mod image;
mod images;
mod keeper;
mod kept;
mod logs;
mod manifest;
mod operate;
mod passage;
mod places;
mod plugin;
mod ports;
mod ps;
mod publish;
mod qmp;
mod resolve;
mod run;
mod simple;
mod stop;
mod subject;
mod validate;
mod vnc;
mod volume_files;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;

fn main() -> ExitCode {
    if plugin::is_called_so() {
        let program = plugin::args::Plugin::parse();
        return exit::report(plugin::run(&program.args));
    }
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Ps(args) => ps::run(&args),
        Command::Console(args) => console::run(&args),
        Command::Vnc(args) => vnc::run(&args),
        Command::Stop(args) => stop::run(&args),
        Command::Pause(args) => simple::pause(&args),
        Command::Unpause(args) => simple::unpause(&args),
        Command::Reset(args) => simple::reset(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Qmp(args) => qmp::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Kubectl(args) => plugin::run(&args),
        Command::Cluster(args) => operate::run(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
        Command::Keeper(args) => keeper::run(&args),
    };
    exit::report(outcome)
}
