//! `garboard explain`: what `run` would do, without doing it. Same planner, same bytes.

use std::path::Path;

use anyhow::Context;
use garboard_machine::facts::HostFacts;
use garboard_plan::PlanOptions;
use garboard_shim_client::places::Places;

use crate::accel::AccelChoice;
use crate::args::{ExplainArgs, Output, PlanFormat};
use crate::exit;
use crate::kept::Kept;
use crate::output::note;
use crate::ports;
use crate::subject::{self, Subject};

/// What [`HostFacts::reference`] describes.
pub(crate) const PLAIN_HOST: &str = "a plain Debian 12 host with KVM, not for this one";

/// `garboard explain FILE…`.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let subject = subject::find(&args.manifest)?;
    let Host { facts, name, is_this } = host(args)?;
    let mut options = match &args.options {
        Some(path) => read_json(path)?,
        None => PlanOptions::default(),
    };
    if args.options.is_none() {
        options.forwards = ports::parse_all(&args.manifest.publish)?;
    }
    if args.manifest.accel != AccelChoice::Auto {
        options.accelerator = args.manifest.accel.into();
    }
    let plan = kept(args, &subject, is_this)?.plan(&subject, &facts, &options)?;
    if !is_this && (args.shell || args.format.is_some() || args.output != Output::Text) {
        note!("garboard: planned for {name}");
    }
    if let Some(PlanFormat::DomainXml) = args.format {
        let places = Places::of_caller(args.manifest.state_dir.as_deref())?;
        let sockets = places.layout(&subject.id).supervisor();
        garboard_kubectl::plan_text::show_domain(&plan, &sockets.to_string_lossy())?;
        return Ok(exit::OK);
    }
    garboard_kubectl::plan_text::show(&plan, &name, args.shell, args.output)?;
    Ok(exit::OK)
}

/// The host that is planned for.
struct Host {
    facts: HostFacts,
    /// For a message.
    name: String,
    /// Whether it is the host that this command runs on.
    is_this: bool,
}

/// What an earlier run decided. What is kept on this host is read only by `run`.
fn kept(args: &ExplainArgs, subject: &Subject, is_this_host: bool) -> anyhow::Result<Kept> {
    if let Some(path) = &args.stored {
        return Ok(Kept { file: None, machine: Some(read_json(path)?) });
    }
    if !is_this_host {
        return Ok(Kept::default());
    }
    let places = Places::of_caller(args.manifest.state_dir.as_deref())?;
    Kept::find(&places, subject, args.manifest.forget_machine)
}

/// The facts that were asked for; else this host's, or of a plain one if nothing can be planned for this.
fn host(args: &ExplainArgs) -> anyhow::Result<Host> {
    let qemu = args.manifest.qemu.as_deref();
    let (facts, name, is_this) = match args.facts.as_deref() {
        _ if args.reference => (HostFacts::reference(), PLAIN_HOST.to_owned(), false),
        Some("here") => (crate::host::facts(qemu)?, "this host".to_owned(), true),
        Some(path) => (read_json(Path::new(path))?, format!("the host described in {path}"), false),
        None => match crate::host::facts(qemu) {
            Ok(facts) => (facts, "this host".to_owned(), true),
            // A QEMU that the user names is not replaced by another one.
            Err(error) if qemu.is_some() => return Err(error),
            Err(error) => (HostFacts::reference(), format!("{PLAIN_HOST}, because {error:#}"), false),
        },
    };
    Ok(Host { facts, name, is_this })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| {
        format!("{} is not a facts file of this version of `doctor --facts` or of a run", path.display())
    })
}
