//! The record of a run in a pod: collected when the run is over, and given to the node agent, which keeps it as an object of the cluster
//! ([ADR 43](../../../docs/adr/0043-a-record-of-each-run.md)). Nothing is sent while the machine runs.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use garboard_agent::client::{AgentClient, NetworkPlace, NodeAgentError};
use garboard_api::v1::Volume;
use garboard_common::foreign;
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{PauseReason, ReportedPhase, Status};
use garboard_protocol::paths::{self, Layout};
use garboard_protocol::record::{Hidden, RunRecord, RunStep};
use garboard_protocol::volumes::{NETWORK_DATA_PREFIX, PASSWORDS_PREFIX, SSH_KEYS_PREFIX};
use garboard_storage::open::{Dir, OpenError};
use garboard_storage::seed;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::prepare::{Order, read_plan};
use super::serial_log::{SerialLog, read_tail};

/// How often the agent is asked to keep it, and the pause between. One of a version before closes the connection.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// How long the last attempt may take when the pod is going.
const FAREWELL: Duration = Duration::from_secs(2);
/// The end of each file that is looked at, bytes: the record keeps less.
const TAIL: usize = 32 << 10;
/// The most steps that are noted.
const STEPS: usize = 32;
/// Fields of a manifest whose text is secret, and those whose text is base64 of such.
const DOCUMENTS: [&str; 2] = ["userData", "networkData"];
const ENCODED: [&str; 2] = ["userDataBase64", "networkDataBase64"];

/// The task that sends the record.
pub(crate) struct Recorder {
    kept: watch::Receiver<bool>,
}

/// Waits for the end of the run from now on.
pub(crate) fn start(layout: &Layout, status: watch::Receiver<Status>) -> Recorder {
    let (keep, kept) = watch::channel(false);
    let layout = layout.clone();
    tokio::spawn(async move {
        if record(&layout, status).await {
            keep.send_replace(true);
        }
    });
    Recorder { kept }
}

impl Recorder {
    /// Waits until the agent has it, for a moment.
    pub(crate) async fn finish(mut self) {
        let kept = self.kept.wait_for(|kept| *kept);
        if !matches!(tokio::time::timeout(FAREWELL, kept).await, Ok(Ok(_))) {
            tracing::warn!("the node agent has no record of this run");
        }
    }
}

/// Whether the agent has it.
async fn record(layout: &Layout, mut status: watch::Receiver<Status>) -> bool {
    let mut steps = Vec::new();
    let last = loop {
        let newest = status.borrow_and_update().clone();
        note(&mut steps, &newest);
        if newest.ended.is_some() {
            break newest;
        }
        if status.changed().await.is_err() {
            return false;
        }
    };
    let own = layout.clone();
    let Ok(record) = tokio::task::spawn_blocking(move || collected(&own, &last, steps).bounded()).await else {
        return false;
    };
    let socket = layout.order().join(paths::AGENT_SOCKET);
    for attempt in 1..=ATTEMPTS {
        match sent(&socket, &record).await {
            Ok(()) => return true,
            Err(error @ NodeAgentError::Refused { .. }) => {
                tracing::warn!(error = %ErrorChain(&error), "the node agent does not keep the record of this run");
                return false;
            }
            Err(error) => tracing::debug!(attempt, error = %ErrorChain(&error), "the record could not be sent"),
        }
        tokio::time::sleep(PAUSE).await;
    }
    false
}

/// On a connection of its own: an earlier agent closes it, and reports go on.
async fn sent(socket: &Path, record: &RunRecord) -> Result<(), NodeAgentError> {
    AgentClient::connect(socket, NetworkPlace::Ours).await?.record(record).await
}

/// Notes what began since the last status.
fn note(steps: &mut Vec<RunStep>, status: &Status) {
    if let (true, Some(supervisor)) = (steps.is_empty(), &status.supervisor) {
        steps.push(RunStep { name: "Supervisor".to_owned(), at_ms: supervisor.started_at_ms });
    }
    if !status.observed {
        return;
    }
    let at_ms = status.ended.as_ref().map_or(status.phase_since_ms, |ended| ended.at_ms);
    let name = match (&status.ended, status.paused, status.phase) {
        (Some(_), ..) => "Ended",
        (None, ..) if status.stopping => "Stopping",
        (None, Some(PauseReason::PausedIOError), _) => "PausedIOError",
        (None, Some(PauseReason::PausedByUser), _) => "Paused",
        (None, None, ReportedPhase::Running) => "Running",
        (None, None, ReportedPhase::Succeeded | ReportedPhase::Failed) => "Ended",
        (None, None, ReportedPhase::Scheduled) => "Preparing",
    };
    let is_new = steps.last().is_none_or(|last| last.name != name);
    let is_of_phase = matches!(name, "Ended" | "Preparing") || !steps.iter().any(|step| step.name == "Running");
    // The last place is that of the end.
    if is_new && (steps.len() < STEPS - 1 || name == "Ended") {
        let at_ms = if is_of_phase { at_ms } else { now_ms() };
        steps.push(RunStep { name: name.to_owned(), at_ms });
    }
}

/// Now, milliseconds since 1970: a pause has no time of its own in a status.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// What the machine's files have of the run. One that is missing has nothing.
fn collected(layout: &Layout, status: &Status, steps: Vec<RunStep>) -> RunRecord {
    let own = layout.supervisor();
    let hidden = hidden(&layout.order());
    let plan = std::fs::read(own.join(paths::PLAN)).unwrap_or_default();
    let ended = status.ended.as_ref();
    let of_init = ended.and_then(|ended| ended.report.as_ref()).map(|report| report.last_output.clone());
    let qemu = foreign_tail(&layout.init(), paths::QEMU_LOG).map(whole_lines);
    let transcript = read_tail(&own.join(paths::TRANSCRIPT), TAIL as u64).map(whole_lines).unwrap_or_default();
    let serial = whole_lines(SerialLog::new(own.join(paths::serial_log(0))).tail(TAIL));
    // Where it is not known what is secret, nothing that may repeat it is kept.
    let safe = |text: String| hidden.as_ref().map(|hidden| hidden.of(&text)).unwrap_or_default();
    RunRecord {
        uid: status.uid.clone(),
        run: status.run.clone(),
        version: status.supervisor.as_ref().map(|one| one.version.clone()).unwrap_or_default(),
        reason: ended.map(|ended| ended.cause.reason().as_str().to_owned()).unwrap_or_default(),
        message: ended.map(|ended| ended.message.clone()).unwrap_or_default(),
        ended_at_ms: ended.map(|ended| ended.at_ms).unwrap_or_default(),
        steps,
        resets: status.resets,
        taints: status.taints.clone(),
        machine: status.machine.clone(),
        argv: read_plan(&own).map(|plan| plan.argv).unwrap_or_default(),
        plan_digest: if plan.is_empty() { String::new() } else { format!("sha256:{:x}", Sha256::digest(&plan)) },
        qemu_output: safe(qemu.or(of_init).unwrap_or_default()),
        // It is redacted as it is written.
        transcript,
        serial: safe(serial),
    }
}

/// A tail as text. A line whose beginning is cut off is left out: half a secret is not recognized.
fn whole_lines(tail: Vec<u8>) -> String {
    let text = String::from_utf8_lossy(&tail).into_owned();
    if tail.len() < TAIL {
        return text;
    }
    text.split_once('\n').map_or_else(|| text.clone(), |(_, rest)| rest.to_owned())
}

/// The end of a file in a directory that PID 1 and QEMU's container may write to: no link is followed.
fn foreign_tail(directory: &Path, name: &str) -> Option<Vec<u8>> {
    let mut file = foreign::open_file(directory, name).ok()??;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL as u64))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL as u64).read_to_end(&mut tail).ok()?;
    Some(tail)
}

/// What a guest was given that is secret: its user data, and all files of Secrets. Nothing if some of it cannot be read, or is more than is
/// looked for.
fn hidden(order: &Path) -> Option<Hidden> {
    let mut hidden = Hidden::default();
    let order = Order::read(order).ok()?;
    documents(&serde_json::to_value(&order.vmi).ok()?, &mut hidden);
    for (name, place) in &order.volumes.places {
        let VolumePlace::Directory { path } = place else { continue };
        if !is_secret(name, &order.vmi.spec.volumes) {
            continue;
        }
        let folder = match Dir::open(Path::new(path)) {
            Ok(folder) => folder,
            // An optional Secret that is not there.
            Err(OpenError::Missing { .. }) => continue,
            Err(_) => return None,
        };
        for content in seed::read_folder(&folder).ok()?.into_values() {
            hidden.add(&String::from_utf8_lossy(&content));
        }
    }
    Some(hidden).filter(Hidden::is_whole)
}

/// Whether a place in the volume table has files of Secrets. Images and claims have not.
fn is_secret(name: &str, volumes: &[Volume]) -> bool {
    if [NETWORK_DATA_PREFIX, SSH_KEYS_PREFIX, PASSWORDS_PREFIX].iter().any(|prefix| name.starts_with(prefix)) {
        return true;
    }
    volumes.iter().filter(|volume| volume.name == name).any(|volume| {
        volume.secret.is_some()
            || volume.cloud_init_no_cloud.is_some()
            || volume.cloud_init_config_drive.is_some()
            || volume.sysprep.is_some()
            || volume.service_account.is_some()
            || volume.iscsi.is_some()
    })
}

fn documents(value: &Value, hidden: &mut Hidden) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(text) if DOCUMENTS.contains(&key.as_str()) => hidden.add(text),
                    Value::String(text) if ENCODED.contains(&key.as_str()) => {
                        let text: String = text.split_ascii_whitespace().collect();
                        let decoded = STANDARD.decode(text).unwrap_or_default();
                        hidden.add(&String::from_utf8_lossy(&decoded));
                    }
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_) => documents(member, hidden),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| documents(element, hidden)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use garboard_agent::line_socket::LineSocket;
    use garboard_net::GuestAddresses;
    use garboard_protocol::agent::{AgentReply, AgentRequest};
    use garboard_protocol::control::Ended;
    use garboard_protocol::exit::ExitCause;
    use garboard_protocol::testing::running;
    use serde_json::json;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn ended() -> Status {
        let ended = Ended {
            cause: ExitCause::GuestShutdown,
            message: "the guest powered itself off".to_owned(),
            report: None,
            at_ms: 9000,
        };
        Status { ended: Some(ended), observed: true, ..running(2) }
    }

    /// A machine's directory with a plan, logs, and a secret.
    fn room() -> (tempfile::TempDir, Layout) {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.order(), layout.supervisor(), layout.init()] {
            std::fs::create_dir(directory).unwrap();
        }
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/many-disks/plan.json");
        let mut plan: Value = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
        plan["argv"] = json!(["/usr/bin/qemu-system-x86_64", "-S"]);
        std::fs::write(layout.supervisor().join(paths::PLAN), plan.to_string()).unwrap();
        let order = layout.order();
        let vmi = json!({"metadata": {"name": "vm"}, "spec": {"domain": {"devices": {}}, "volumes": [{"name": "seed",
            "cloudInitNoCloud": {"userData": "#cloud-config\nuser: ada-of-the-house\n"}}]}});
        std::fs::write(order.join(paths::VMI), vmi.to_string()).unwrap();
        let facts = serde_json::to_string(&garboard_machine::facts::HostFacts::reference()).unwrap();
        std::fs::write(order.join(paths::FACTS), facts).unwrap();
        let options = serde_json::to_string(&garboard_plan::PlanOptions::default()).unwrap();
        std::fs::write(order.join(paths::OPTIONS), options).unwrap();
        let (secret, image) = (room.path().join("secret"), room.path().join("image"));
        for (folder, content) in [(&secret, "s3cr3t-of-the-house\n"), (&image, "login: root of an image\n")] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), content).unwrap();
        }
        let place = |folder: &Path| json!({"place": "directory", "path": folder});
        let volumes = json!({"network-data/seed": place(&secret), "root": place(&image)});
        std::fs::write(order.join(paths::VOLUMES), volumes.to_string()).unwrap();
        std::fs::write(layout.init().join(paths::QEMU_LOG), "qemu: could not\n").unwrap();
        std::fs::write(layout.supervisor().join(paths::TRANSCRIPT), "{\"kind\":\"event\"}\n").unwrap();
        let printed = "boot\nuser: ada-of-the-house was made\nwith s3cr3t-of-the-house\nlogin: root of an image";
        std::fs::write(layout.supervisor().join(paths::serial_log(0)), printed).unwrap();
        (room, layout)
    }

    #[tokio::test]
    async fn one_record_is_sent_when_the_run_is_over_and_none_before() {
        let (_room, layout) = room();
        let agent = tokio::net::UnixListener::bind(layout.order().join(paths::AGENT_SOCKET)).unwrap();
        let (publish, published) = watch::channel(Status { observed: true, ..running(1) });
        let recorder = start(&layout, published);
        let early = tokio::time::timeout(Duration::from_millis(200), agent.accept()).await;
        assert!(early.is_err(), "nothing is sent while it runs");
        publish.send_replace(ended());
        let (stream, _) = tokio::time::timeout(PATIENCE, agent.accept()).await.unwrap().unwrap();
        let mut socket = LineSocket::new(stream);
        let AgentRequest::Record { record } = socket.receive().await.unwrap() else { panic!("no record") };
        socket.send(&AgentReply::<GuestAddresses>::Noted, &[]).await.unwrap();
        recorder.finish().await;
        assert_eq!((record.reason.as_str(), record.ended_at_ms), ("GuestShutdown", 9000));
        assert!(record.argv.len() == 2 && record.plan_digest.starts_with("sha256:"), "{record:?}");
        assert_eq!(record.qemu_output, "qemu: could not\n");
        assert_eq!(record.serial, "boot\n<redacted>\n<redacted>\nlogin: root of an image");
        let names: Vec<&str> = record.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"Ended"), "{names:?}");
    }

    #[test]
    fn without_the_order_no_text_of_the_guest_is_kept_and_half_a_line_never() {
        let (_room, layout) = room();
        std::fs::remove_file(layout.order().join(paths::VMI)).unwrap();
        let record = collected(&layout, &ended(), Vec::new());
        assert_eq!((record.serial.as_str(), record.qemu_output.as_str()), ("", ""));
        assert_eq!(record.argv.len(), 2, "{record:?}");
        let (room, layout) = self::room();
        std::fs::write(room.path().join("secret/file"), "a line of the document\n".repeat(5000)).unwrap();
        let record = collected(&layout, &ended(), Vec::new());
        assert_eq!((record.serial.as_str(), record.qemu_output.as_str()), ("", ""), "more than is looked for");
        let long = format!("{}\nwhole", "s".repeat(TAIL - 6));
        assert_eq!(whole_lines(long.clone().into_bytes()), "whole");
        assert_eq!(whole_lines(long.as_bytes()[1..].to_vec()), long[1..]);
    }

    #[test]
    fn a_link_in_the_place_of_qemus_log_leads_nowhere() {
        let (room, layout) = room();
        let log = layout.init().join(paths::QEMU_LOG);
        std::fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink(room.path().join("secret/file"), &log).unwrap();
        let record = collected(&layout, &ended(), Vec::new());
        assert_eq!(record.qemu_output, "");
    }

    #[test]
    fn steps_are_noted_once_each() {
        let mut steps = Vec::new();
        let preparing = Status { observed: true, phase: ReportedPhase::Scheduled, phase_since_ms: 1, ..running(1) };
        let runs = Status { observed: true, phase_since_ms: 2, ..running(2) };
        let paused = Status { paused: Some(PauseReason::PausedByUser), ..runs.clone() };
        for status in [&preparing, &preparing, &runs, &runs, &paused, &runs, &ended()] {
            note(&mut steps, status);
        }
        let steps: Vec<&str> =
            steps.iter().map(|step| step.name.as_str()).filter(|name| *name != "Supervisor").collect();
        assert_eq!(steps, ["Preparing", "Running", "Paused", "Running", "Ended"]);
    }
}
