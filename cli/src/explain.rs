//! `garboard explain`: what `run` would do, without doing it. Same planner, same bytes.

use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_kubectl::difference;
use garboard_machine::facts::HostFacts;
use garboard_plan::{LaunchPlan, PlanOptions};
use garboard_protocol::paths;
use garboard_shim_client::places::{MachineId, Places};

use crate::accel::AccelChoice;
use crate::args::{ExplainArgs, ManifestArgs, Output, PlanFormat};
use crate::exit::{self, BAD_INPUT, REFUSED, exit_error};
use crate::here::{Here, MachineName};
use crate::kept::Kept;
use crate::logs::{self, Run};
use crate::output::note;
use crate::ports;
use crate::subject::{self, Subject};

/// What [`HostFacts::reference`] describes.
pub(crate) const PLAIN_HOST: &str = "a plain Debian 12 host with KVM, not for this one";

/// `garboard explain FILE…`, and what compares two plans.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    if args.diff {
        return diff(args);
    }
    if let Some(machine) = &args.against_running {
        return against_running(args, machine);
    }
    let Planned { plan, host: Host { name, is_this, .. }, id } = planned(args, &args.manifest)?;
    if !is_this && (args.shell || args.format.is_some() || args.output != Output::Text) {
        note!("garboard: planned for {name}");
    }
    if let Some(PlanFormat::DomainXml) = args.format {
        let places = Places::of_caller(args.manifest.state_dir.as_deref())?;
        let sockets = places.layout(&id).supervisor();
        garboard_kubectl::plan_text::show_domain(&plan, &sockets.to_string_lossy())?;
        return Ok(exit::OK);
    }
    garboard_kubectl::plan_text::show(&plan, &name, args.shell, args.output)?;
    Ok(exit::OK)
}

/// `--diff A B`.
fn diff(args: &ExplainArgs) -> anyhow::Result<u8> {
    let [before, after] = args.manifest.files.as_slice() else {
        return Err(exit_error(BAD_INPUT, "--diff takes two files"));
    };
    let plan_of = |file: &PathBuf| match difference::plan_in(file)? {
        Some(plan) => anyhow::Ok(plan),
        None => {
            let manifest = ManifestArgs { files: vec![file.clone()], ..args.manifest.clone() };
            Ok(planned(args, &manifest)?.plan)
        }
    };
    difference::show(&plan_of(before)?, &plan_of(after)?, args.output)
}

/// With the facts and options of the run, and with what it decided: what differs is due to the manifest, or to this version.
fn against_running(args: &ExplainArgs, machine: &MachineName) -> anyhow::Result<u8> {
    let subject = subject::find(&args.manifest)?;
    let here = Here { namespace: None, state_dir: args.manifest.state_dir.clone() };
    let (places, id) = (here.places()?, here.id(machine)?);
    let run = logs::find(&places, &id, false)?;
    if !matches!(run, Run::Running(_)) {
        return Err(exit_error(REFUSED, format!("{id} does not run; `explain` plans its next start")));
    }
    let before: LaunchPlan = of_run(&run, paths::PLAN)?;
    let (facts, options): (HostFacts, PlanOptions) = (of_run(&run, paths::FACTS)?, of_run(&run, paths::OPTIONS)?);
    let kept = Kept { file: None, machine: Some(before.stored.clone()) };
    difference::show(&before, &kept.plan(&subject, &facts, &options)?, args.output)
}

fn of_run<T: serde::de::DeserializeOwned>(run: &Run, name: &str) -> anyhow::Result<T> {
    let bytes = logs::bytes_of(run, name)?;
    serde_json::from_slice(&bytes).with_context(|| format!("{name} of the run is of another version"))
}

/// The plan of a manifest.
struct Planned {
    plan: LaunchPlan,
    /// What it is for.
    host: Host,
    /// The machine's.
    id: MachineId,
}

fn planned(args: &ExplainArgs, manifest: &ManifestArgs) -> anyhow::Result<Planned> {
    let subject = subject::find(manifest)?;
    let host = host(args)?;
    let mut options = match &args.options {
        Some(path) => read_json(path)?,
        None => PlanOptions::default(),
    };
    if args.options.is_none() {
        options.forwards = ports::parse_all(&manifest.publish)?;
    }
    if manifest.accel != AccelChoice::Auto {
        options.accelerator = manifest.accel.into();
    }
    let plan = kept(args, &subject, host.is_this)?.plan(&subject, &host.facts, &options)?;
    Ok(Planned { plan, host, id: subject.id })
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
