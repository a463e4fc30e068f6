//! `cluster`: wiring only. Results go to standard output, progress and errors to standard error.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the program that a person uses")]

mod args;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use garboard_test_cluster::cluster::{Cluster, lock};
use garboard_test_cluster::inside::{Daemon, be_first};
use garboard_test_cluster::layout::{Layout, NodeNumber};
use garboard_test_cluster::logs::{Follow, exec, logs};
use garboard_test_cluster::up::{Request, up};
use garboard_test_cluster::{faults, node, status, teardown};

use args::{Cli, Command, Internal, Output};

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let directory = match cli.directory {
        Some(directory) => Some(std::path::absolute(&directory).context("the working directory")?),
        None => None,
    };
    let layout = Layout::new(cli.name, directory.as_deref())?;
    match cli.command {
        Command::Up { nodes, kwok, programs } => bring_up(layout, nodes, kwok, programs)?,
        Command::Down => teardown::down(&layout)?,
        Command::Status { output } => return show_status(layout, output),
        Command::Logs { target, follow } => logs(&layout, target, if follow { Follow::Yes } else { Follow::No })?,
        Command::Load { archive, node } => load(layout, &archive, node)?,
        Command::Exec { node, command } => exec(&Cluster::existing(layout)?, node, &command)?,
        Command::Kubeconfig => println!("{}", Cluster::existing(layout)?.layout.kubeconfig().display()),
        Command::Internal(internal) => do_internally(internal)?,
        change @ (Command::Freeze { .. }
        | Command::Thaw { .. }
        | Command::Kill { .. }
        | Command::Start { .. }
        | Command::Partition { .. }
        | Command::Heal { .. }) => do_harm(layout, change)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn bring_up(layout: Layout, nodes: u8, kwok: u16, programs: Option<PathBuf>) -> anyhow::Result<()> {
    let programs = programs.unwrap_or_else(default_programs);
    // The cache's name for it moves on to what is built next.
    let programs = programs.canonicalize().with_context(|| {
        format!("there are no programs in {}: `scripts/fetch-cluster` makes them", programs.display())
    })?;
    let kubeconfig = layout.kubeconfig();
    up(layout, &Request { nodes, kwok, programs: programs.clone() })?;
    println!("# kubectl is {}", programs.join("kubectl").display());
    println!("export KUBECONFIG={}", kubeconfig.display());
    Ok(())
}

/// Where `scripts/fetch-cluster` puts them.
fn default_programs() -> PathBuf {
    let cache =
        std::env::var_os("GARBOARD_CACHE").map_or_else(|| PathBuf::from("/var/cache/garboard-test"), PathBuf::from);
    cache.join("cluster/programs")
}

fn show_status(layout: Layout, output: Output) -> anyhow::Result<ExitCode> {
    let status = status::status(&Cluster::existing(layout)?);
    match output {
        Output::Text => print!("{}", status.table()),
        Output::Json => println!("{}", serde_json::to_string_pretty(&status)?),
    }
    Ok(if status.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn load(layout: Layout, archive: &Path, only: Option<NodeNumber>) -> anyhow::Result<()> {
    let cluster = Cluster::existing(layout)?;
    if let Some(only) = only {
        cluster.expect_node(only)?;
    }
    for number in cluster.nodes().filter(|number| only.is_none_or(|only| only == *number)) {
        let names = node::load(&cluster, number, archive)?;
        anyhow::ensure!(!names.is_empty(), "{} holds no image that has a name", archive.display());
        names.iter().for_each(|name| println!("{number}: {name}"));
    }
    Ok(())
}

/// Faults and their ends, one at a time.
fn do_harm(layout: Layout, command: Command) -> anyhow::Result<()> {
    let cluster = Cluster::existing(layout)?;
    let _lock = lock(&cluster.layout)?;
    match command {
        Command::Freeze { target } => faults::freeze(&cluster, target)?,
        Command::Thaw { target } => faults::thaw(&cluster, target)?,
        Command::Kill { target, signal } => faults::kill(&cluster, target, signal)?,
        Command::Start { target } => faults::start(&cluster, target)?,
        Command::Partition { node } => faults::partition(&cluster, node)?,
        Command::Heal { node } => faults::heal(&cluster, node)?,
        Command::Up { .. }
        | Command::Down
        | Command::Status { .. }
        | Command::Logs { .. }
        | Command::Load { .. }
        | Command::Exec { .. }
        | Command::Kubeconfig
        | Command::Internal(_) => {}
    }
    Ok(())
}

fn do_internally(internal: Internal) -> anyhow::Result<()> {
    match internal {
        Internal::Daemon { group, log, programs, command } => Daemon { group, log, programs, command }.start()?,
        Internal::NodeInit { state, bulk, cluster, node } => be_first(&Layout { name: cluster, state, bulk }, node)?,
    }
    Ok(())
}
