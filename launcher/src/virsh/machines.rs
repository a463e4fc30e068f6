//! The machines that a directory has.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use garboard_common::foreign;
use garboard_domain_xml::domain_name;
use garboard_plan::LaunchPlan;
use garboard_protocol::control::{Asked, ControlReply, ControlRequest, Status};
use garboard_protocol::paths::{self, Layout};
use garboard_protocol::wire;

use super::VirshError;

/// The longest plan, bytes: an argv of 256 disks is about 200 KiB, and a plan has each disk once more.
const LONGEST_PLAN_BYTES: u64 = 8 << 20;

/// A supervisor that is alive answers at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// One machine.
pub(super) struct Machine {
    /// Its place among those of the directory, from 1.
    pub(super) number: u32,
    /// Its directories.
    pub(super) layout: Layout,
}

impl Machine {
    /// Those of a directory: the one of a pod, or those of a bare host by namespace and name.
    pub(super) fn all(root: &Path) -> Vec<Self> {
        let own = Layout::new(root);
        // By the file, as a namespace of a bare host may have the directory's name.
        let layouts = if own.supervisor().join(paths::PLAN).is_file() {
            vec![own]
        } else {
            directories(root).iter().flat_map(|namespace| directories(namespace)).map(Layout::new).collect()
        };
        let found = layouts.into_iter().filter(|layout| layout.supervisor().is_dir());
        found.zip(1..).map(|(layout, number)| Self { number, layout }).collect()
    }

    /// The one that a person names: by number, name or UUID.
    pub(super) fn find(root: &Path, domain: &str) -> Result<Self, VirshError> {
        let is_it = |machine: &Self| {
            let names = [Some(machine.number.to_string()), machine.name().ok(), machine.uuid().ok().flatten()];
            names.iter().flatten().any(|name| name == domain)
        };
        Self::all(root).into_iter().find(is_it).ok_or_else(|| VirshError::NoDomain(domain.to_owned()))
    }

    /// What was executed.
    pub(super) fn plan(&self) -> Result<LaunchPlan, VirshError> {
        let unreadable = |source| VirshError::File { name: paths::PLAN, source };
        let read = foreign::read(&self.layout.supervisor(), paths::PLAN, LONGEST_PLAN_BYTES);
        let bytes = read.map_err(|error| unreadable(error.into()))?;
        let bytes = bytes.ok_or_else(|| unreadable("it is not there yet".into()))?;
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.into()))
    }

    /// Its name as libvirt would have it.
    pub(super) fn name(&self) -> Result<String, VirshError> {
        Ok(domain_name(&self.plan()?))
    }

    /// The UUID that its guest sees.
    pub(super) fn uuid(&self) -> Result<Option<String>, VirshError> {
        Ok(self.plan()?.identity.firmware_uuid)
    }

    /// Its number while a guest is there.
    pub(super) fn number_if_active(&self) -> Option<u32> {
        let status = self.status().ok().flatten();
        (super::state(status.as_ref()).0 != "shut off").then_some(self.number)
    }

    /// What its supervisor reports; nothing where none listens any more.
    pub(super) fn status(&self) -> Result<Option<Status>, VirshError> {
        let Ok(stream) = self.connect() else { return Ok(None) };
        match ask(&mut BufReader::new(stream), ControlRequest::Status)? {
            ControlReply::Status(status) => Ok(Some(*status)),
            ControlReply::Denied { reason } => Err(VirshError::Denied(reason)),
            ControlReply::Queued
            | ControlReply::AlreadySo
            | ControlReply::Done
            | ControlReply::Streaming
            | ControlReply::Session
            | ControlReply::Resumed(_)
            | ControlReply::Healthy
            | ControlReply::Guest(_)
            | ControlReply::Statistics(_)
            | ControlReply::Part(_)
            | ControlReply::NoPart { .. } => Err(VirshError::Answer),
        }
    }

    /// A connection to its supervisor.
    pub(super) fn connect(&self) -> std::io::Result<UnixStream> {
        let stream = foreign::connect(&self.layout.supervisor(), paths::CONTROL_SOCKET)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

/// Sends a request and reads the line of its answer; what follows stays to be read.
pub(super) fn ask(stream: &mut BufReader<UnixStream>, request: ControlRequest) -> Result<ControlReply, VirshError> {
    let asked = Asked { request, claimed_user: Some(super::NAME.to_owned()), audit_id: None, number: None };
    let line = wire::encode(&asked).map_err(|_| VirshError::Answer)?;
    stream.get_mut().write_all(&line).map_err(VirshError::Supervisor)?;
    wire::decode(&read_line(stream)?).map_err(|_| VirshError::Answer)
}

/// One line, bounded.
pub(super) fn read_line(stream: &mut BufReader<UnixStream>) -> Result<Vec<u8>, VirshError> {
    let most = u64::try_from(wire::MAX_LINE_BYTES).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    stream.by_ref().take(most).read_until(b'\n', &mut line).map_err(VirshError::Supervisor)?;
    if line.ends_with(b"\n") { Ok(line) } else { Err(VirshError::Answer) }
}

/// The directories of a directory, by name; none of one that cannot be read. What begins with a dot is being removed.
fn directories(of: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(of).into_iter().flatten().filter_map(Result::ok);
    let is_shown = |entry: &std::fs::DirEntry| {
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let mut paths: Vec<_> = entries.filter(is_shown).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
