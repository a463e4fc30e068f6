//! `garboard`: virtual machines from `kubevirt.io` manifests, on a bare host. Wiring only.
//!
//! Results go to standard output, progress and errors to standard error; exit codes are in [`exit`].

mod accel;
mod args;
mod attend;
mod claims;
mod client;
mod completions;
mod console;
mod doctor;
mod downward;
mod explain;
mod here;
mod host;
mod identity;
mod image;
mod images;
mod kept;
mod logs;
mod manifest;
mod passage;
mod past;
mod ports;
mod ps;
mod qmp;
mod resolve;
mod run;
mod simple;
mod sizes;
mod stop;
mod subject;
mod validate;
mod version;
mod vnc;
mod why;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;
use garboard_kubectl::{Called, exit, output, screen, several, table};

fn main() -> ExitCode {
    match garboard_kubectl::called() {
        Called::Plugin => return garboard_kubectl::main(),
        Called::Completer => return garboard_kubectl::complete(),
        Called::Garboard => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if std::env::args_os().nth(1).is_some_and(|first| first == "kubectl") => {
            return garboard_kubectl::misspelt(&error);
        }
        Err(error) => error.exit(),
    };
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
        Command::SoftReboot(args) => simple::soft_reboot(&args.which),
        Command::Freeze(args) => simple::freeze(&args.which, args.unfreeze_timeout),
        Command::Unfreeze(args) => simple::unfreeze(&args.which),
        Command::Logs(args) => logs::run(&args),
        Command::Qmp(args) => qmp::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Kubectl(args) => garboard_kubectl::run(&args),
        Command::Cluster(args) => garboard_kubectl::cluster(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
    };
    exit::report(outcome)
}
