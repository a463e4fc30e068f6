//! Shell completions and man pages, made from the same definitions as `--help`.

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::exit;

/// `garboard completions SHELL`.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<u8> {
    clap_complete::generate(args.shell, &mut Cli::command(), "garboard", &mut std::io::stdout());
    Ok(exit::OK)
}

/// `garboard man DIRECTORY`: one page for the program, one for each command.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<u8> {
    std::fs::create_dir_all(&args.directory).with_context(|| format!("create {}", args.directory.display()))?;
    clap_mangen::generate_to(Cli::command(), &args.directory)
        .with_context(|| format!("write man pages into {}", args.directory.display()))?;
    Ok(exit::OK)
}
