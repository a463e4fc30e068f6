//! Shell completions and man pages, made from the same definitions as `--help`.

use anyhow::Context;
use clap::CommandFactory;
use garboard_kubectl::{PROGRAM, Plugin};

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::exit;

/// `garboard completions SHELL`.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<u8> {
    let (mut command, name) = if args.plugin { (Plugin::command(), PROGRAM) } else { (Cli::command(), "garboard") };
    // Into memory first: clap_complete panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    crate::output::write(&script)?;
    Ok(exit::OK)
}

/// `garboard man DIRECTORY`: one page for each program, one for each command.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<u8> {
    std::fs::create_dir_all(&args.directory).with_context(|| format!("create {}", args.directory.display()))?;
    for program in [Cli::command(), Plugin::command()] {
        clap_mangen::generate_to(program, &args.directory)
            .with_context(|| format!("write man pages into {}", args.directory.display()))?;
    }
    Ok(exit::OK)
}
