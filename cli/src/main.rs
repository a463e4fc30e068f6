//! `garboard`: virtual machines from `kubevirt.io` manifests, on a bare host. Wiring only.
//!
//! Results go to standard output, progress and complaints to standard error; exit codes are in [`exit`].

mod accel;
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
mod foreign;
mod here;
mod host;
mod image;
mod images;
mod keeper;
mod kept;
mod logs;
mod manifest;
mod operate;
mod output;
mod passage;
mod past;
mod places;
mod plugin;
mod ports;
mod private;
mod ps;
mod publish;
mod qmp;
mod resolve;
mod run;
mod screen;
mod several;
mod simple;
mod stop;
mod subject;
mod table;
mod validate;
mod version;
mod vnc;
mod volume_files;
mod why;
mod yaml;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;
use plugin::Called;

fn main() -> ExitCode {
    match plugin::called() {
        Called::Plugin => return exit::report(plugin::run(&plugin::args::Plugin::parse().args)),
        Called::Completer => return exit::report(plugin::complete::run()),
        Called::Garboard => {}
    }
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Ps(args) => ps::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Console(args) => console::run(&args),
        Command::Vnc(args) => vnc::run(&args),
        Command::Stop(args) => stop::run(&args),
        Command::Restart(args) => stop::restart(&args),
        Command::Pause(args) => simple::pause(&args.which),
        Command::Unpause(args) => simple::unpause(&args.which),
        Command::Reset(args) => simple::reset(&args.which),
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
