use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use garboard_cluster::report::InstanceEvent;
use garboard_protocol::control;
use garboard_protocol::exit::{Account, ExitCause};
use kube::runtime::events::EventType;

use super::*;
use crate::identity::PodUid;
use crate::pods::ComputeEnd;
use crate::pods::tests::VMI;
use crate::status::tests::{ended, pod, report, scheduled, vmi};

/// An API server with one VMI. It keeps state, refuses what is stale, and fails on request.
#[derive(Clone)]
struct Fake(Arc<FakeState>);

struct FakeState {
    vmi: Mutex<VirtualMachineInstance>,
    failures: Mutex<VecDeque<()>>,
    patches: watch::Sender<Vec<Value>>,
    marks: watch::Sender<Vec<PodUpdate>>,
    events: watch::Sender<Vec<InstanceEvent>>,
    runs: watch::Sender<Vec<(String, Value)>>,
    asked: AtomicUsize,
}

impl Fake {
    fn new(vmi: VirtualMachineInstance) -> Self {
        Self(Arc::new(FakeState {
            vmi: Mutex::new(vmi),
            failures: Mutex::default(),
            patches: watch::Sender::default(),
            marks: watch::Sender::default(),
            events: watch::Sender::default(),
            runs: watch::Sender::default(),
            asked: AtomicUsize::new(0),
        }))
    }

    fn fail(&self, times: usize) {
        self.0.failures.lock().unwrap().extend(std::iter::repeat_n((), times));
    }

    fn falters(&self) -> Result<(), ClusterError> {
        let away = || ClusterError::Failed(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded));
        self.0.failures.lock().unwrap().pop_front().map_or(Ok(()), |()| Err(away()))
    }

    fn phase(&self) -> Option<String> {
        self.0.vmi.lock().unwrap().status.as_ref().and_then(|status| status.phase.clone())
    }

    fn gates(&self) -> Vec<bool> {
        self.0.marks.borrow().iter().filter_map(|news| news.unpaused).collect()
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.0.events.borrow().iter().map(|event| event.reason.name()).collect()
    }

    async fn patched(&self, times: usize) {
        let mut patches = self.0.patches.subscribe();
        let waiting = patches.wait_for(|patches| patches.len() >= times);
        tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("a patch arrives").unwrap();
    }
}

impl Cluster for Fake {
    async fn vmi(&self, _: &str, _: &str) -> Result<VirtualMachineInstance, ClusterError> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.0.vmi.lock().unwrap().clone())
    }

    async fn patch_vmi(&self, _: &str, _: &str, patch: Value) -> Result<VirtualMachineInstance, ClusterError> {
        self.falters()?;
        let mut vmi = self.0.vmi.lock().unwrap();
        if patch["metadata"]["resourceVersion"].as_str() != vmi.metadata.resource_version.as_deref() {
            return Err(ClusterError::Conflict);
        }
        let mut object = serde_json::to_value(&*vmi).unwrap();
        for (key, value) in patch["status"].as_object().unwrap() {
            object["status"][key] = value.clone();
        }
        *vmi = serde_json::from_value(object).unwrap();
        vmi.metadata.resource_version = Some((version(&vmi) + 1).to_string());
        self.0.patches.send_modify(|patches| patches.push(patch));
        Ok(vmi.clone())
    }

    async fn mark_vmi(&self, namespace: &str, name: &str, patch: Value) -> Result<(), ClusterError> {
        self.patch_vmi(namespace, name, patch).await.map(drop)
    }

    async fn pods_of(&self, _: &str) -> Result<Vec<LauncherPod>, ClusterError> {
        Ok(Vec::new())
    }

    async fn mark_pod(&self, _: &LauncherPod, news: &PodUpdate) -> Result<(), ClusterError> {
        self.falters()?;
        self.0.marks.send_modify(|marks| marks.push(news.clone()));
        Ok(())
    }

    async fn keep_run(&self, namespace: &str, run: Value) -> Result<(), ClusterError> {
        self.falters()?;
        self.0.runs.send_modify(|runs| runs.push((namespace.to_owned(), run)));
        Ok(())
    }

    async fn emit_event(&self, _: &LauncherPod, event: &InstanceEvent) -> Result<(), ClusterError> {
        self.0.events.send_modify(|events| events.push(event.clone()));
        Ok(())
    }
}

fn writer(
    fake: &Fake,
    mirrored: Option<VirtualMachineInstance>,
) -> (Writer<Fake>, Arc<Mirror<Arc<VirtualMachineInstance>>>) {
    let (pods, vmis) = (Arc::new(Mirror::default()), Arc::new(Mirror::default()));
    let mut gated = pod();
    gated.unpaused = None;
    pods.insert(pod().uid.as_str(), gated);
    if let Some(vmi) = mirrored {
        vmis.insert(VMI, Arc::new(vmi));
    }
    let setting = WriterContext {
        cluster: fake.clone(),
        node: "node-1".into(),
        pods,
        vmis: Arc::clone(&vmis),
        pace: Arc::default(),
    };
    (Writer::new(setting), vmis)
}

#[tokio::test(start_paused = true)]
async fn a_start_is_two_writes_and_two_events() {
    let fake = Fake::new(vmi(scheduled()));
    let (writer, _) = writer(&fake, Some(vmi(scheduled())));
    writer.note(&pod(), report(1));
    fake.patched(1).await;
    writer.note(&pod(), report(2));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(fake.phase().as_deref(), Some("Running"));
    assert_eq!((fake.0.patches.borrow().len(), fake.gates()), (1, vec![true]));
    assert!(fake.0.marks.borrow().iter().all(|news| news.report.is_none()), "it is written where it belongs");
    assert_eq!(fake.reasons(), ["Created", "Started"]);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_gets_the_newest_when_it_is_back() {
    let fake = Fake::new(vmi(scheduled()));
    fake.fail(7);
    let (writer, _) = writer(&fake, Some(vmi(scheduled())));
    writer.note(&pod(), report(1));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut paused = report(2);
    paused.paused = Some(garboard_protocol::control::PauseReason::PausedByUser);
    writer.note(&pod(), paused);
    writer.note(&pod(), report(1));
    fake.patched(1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(fake.0.patches.borrow().len(), 1);
    let conditions = fake.0.patches.borrow()[0]["status"]["conditions"].clone();
    assert!(conditions.to_string().contains("PausedByUser"), "{conditions}");
    assert_eq!(fake.gates().last(), Some(&false));
}

#[tokio::test(start_paused = true)]
async fn a_vmi_that_changed_meanwhile_is_read_again() {
    let mut newer = vmi(scheduled());
    newer.metadata.resource_version = Some("8".into());
    newer.status.as_mut().unwrap().virtual_machine_revision_name = Some("kept".into());
    let fake = Fake::new(newer);
    let (writer, _) = writer(&fake, Some(vmi(scheduled())));
    writer.note(&pod(), report(1));
    fake.patched(1).await;
    assert_eq!(fake.0.patches.borrow()[0]["metadata"]["resourceVersion"], "8");
    let kept = fake.0.vmi.lock().unwrap().status.as_ref().unwrap().virtual_machine_revision_name.clone();
    assert_eq!(kept.as_deref(), Some("kept"));
}

#[tokio::test(start_paused = true)]
async fn however_many_pods_report_the_node_writes_at_its_pace() {
    let fake = Fake::new(unplaced());
    let (writer, _) = writer(&fake, None);
    for number in 0..500 {
        let uid = crate::identity::PodUid::parse(&format!("{number:08x}-7c1f-4d57-9c5e-6f0c7d6a1b2c")).unwrap();
        writer.note(&LauncherPod { uid, ..pod() }, report(1));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let soon = fake.0.marks.borrow().len();
    assert!((200..=221).contains(&soon), "{soon}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(fake.0.marks.borrow().len(), 500);
}

fn unplaced() -> VirtualMachineInstance {
    vmi(serde_json::json!({"phase": "Pending"}))
}

#[tokio::test(start_paused = true)]
async fn a_vmi_without_a_node_is_reported_on_its_pod() {
    let fake = Fake::new(unplaced());
    let (writer, vmis) = writer(&fake, None);
    writer.note(&pod(), report(1));
    writer.note(&pod(), report(2));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(fake.0.patches.borrow().is_empty());
    let marks = fake.0.marks.borrow().clone();
    assert_eq!(marks.len(), 1, "one write for gate and report");
    assert_eq!(
        (marks[0].unpaused, marks[0].report.as_ref().map(|report| report.phase)),
        (Some(true), Some(control::ReportedPhase::Running))
    );
    // The controller writes just this.
    let (report, pod_of_it) = (report(2), pod());
    let (addresses, claims) = (&pod_of_it.addresses, &pod_of_it.claims);
    let seen = report::Seen { report: &report, addresses, claims, vmi: &unplaced(), now: Timestamp::now() };
    let mut placed = vmi(serde_json::to_value(report::next_status(&seen)).unwrap());
    let status = placed.status.as_mut().unwrap();
    (status.node_name, status.active_pods) =
        (Some("node-1".into()), [(pod().uid.as_str().into(), "node-1".into())].into());
    placed.metadata.resource_version = Some("9".into());
    *fake.0.vmi.lock().unwrap() = placed.clone();
    vmis.insert(VMI, Arc::new(placed));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(fake.0.patches.borrow().is_empty(), "{:?}", fake.0.patches.borrow());
    writer.note(&pod(), ended(ExitCause::GuestShutdown));
    fake.patched(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fake.reasons(), ["Stopped"], "the controller has recorded the start");
}

#[tokio::test(start_paused = true)]
async fn a_vmi_that_is_placed_late_is_not_asked_for_and_one_that_never_comes_is() {
    let fake = Fake::new(unplaced());
    let (writer, vmis) = writer(&fake, None);
    writer.note(&pod(), report(1));
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(fake.0.asked.load(Ordering::SeqCst), 0, "the controller has much to do");
    // Placed, and its label is not the one that the watch asks for.
    let mut placed = vmi(scheduled());
    placed.metadata.resource_version = Some("9".into());
    *fake.0.vmi.lock().unwrap() = placed;
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!((fake.0.asked.load(Ordering::SeqCst), fake.phase().as_deref()), (1, Some("Running")));
    drop(vmis);
}

#[tokio::test(start_paused = true)]
async fn an_end_before_the_vmi_has_a_node_is_reported_on_the_pod() {
    let fake = Fake::new(unplaced());
    let (writer, _) = writer(&fake, None);
    writer.note(&pod(), report(1));
    tokio::time::sleep(Duration::from_secs(5)).await;
    writer.note(&pod(), ended(ExitCause::GuestPanic));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let marks = fake.0.marks.borrow().clone();
    assert!(marks.last().unwrap().report.as_ref().unwrap().ended.is_some());
    assert_eq!((marks.len(), fake.reasons()), (2, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_started_again_does_not_tell_again() {
    let fake = Fake::new(unplaced());
    let (writer, _) = writer(&fake, None);
    let mut known = pod();
    (known.is_reported, known.unpaused) = (true, Some("True".into()));
    writer.setting.pods.insert(pod().uid.as_str(), known.clone());
    writer.note(&known, report(1));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((fake.0.marks.borrow().len(), fake.reasons()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_end_is_written_once_and_ends_the_task() {
    for (cause, phase, kind) in [
        (ExitCause::GuestShutdown, "Succeeded", EventType::Normal),
        (ExitCause::QemuCrashed { signal: 11 }, "Failed", EventType::Warning),
        (ExitCause::GracePeriodExceeded, "Failed", EventType::Normal),
    ] {
        let fake = Fake::new(vmi(scheduled()));
        let (writer, _) = writer(&fake, Some(vmi(scheduled())));
        writer.note(&pod(), report(1));
        fake.patched(1).await;
        let reason = cause.reason();
        writer.note(&pod(), ended(cause));
        fake.patched(2).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(fake.phase().as_deref(), Some(phase));
        assert!(writer.tasks.lock().unwrap().values().all(|task| task.newest.is_closed()));
        let last = fake.0.events.borrow().last().cloned().unwrap();
        assert_eq!((last.reason.name(), last.kind), ("Stopped", kind));
        assert_eq!(Account::read(&last.note).reason, reason, "{}", last.note);
    }
}

#[tokio::test(start_paused = true)]
async fn stale_reports_are_passed_over() {
    let fake = Fake::new(vmi(scheduled()));
    let (writer, _) = writer(&fake, Some(vmi(scheduled())));
    writer.note(&pod(), report(5));
    fake.patched(1).await;
    let mut stale = report(4);
    stale.software_emulation = true;
    writer.note(&pod(), stale);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(fake.0.patches.borrow().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_has_one_record_however_often_it_is_sent_and_whatever_fails() {
    let fake = Fake::new(vmi(scheduled()));
    fake.fail(3);
    let (writer, _) = writer(&fake, Some(vmi(scheduled())));
    let record = garboard_protocol::record::RunRecord { reason: "GuestShutdown".into(), ..Default::default() };
    for _ in 0..3 {
        writer.keep(&pod(), record.clone());
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let runs = fake.0.runs.borrow().clone();
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!((runs[0].0.as_str(), &runs[0].1["spec"]["reason"]), (pod().namespace.as_str(), &json!("GuestShutdown")));
    assert_eq!(fake.0.patches.borrow().len(), 0);
}

/// Neither PID 1 nor the supervisor has seen it: on cgroup v2 both die with QEMU, or are asked when it is over.
#[tokio::test(start_paused = true)]
async fn the_record_of_a_machine_without_memory_left_waits_for_the_kubelet_to_say_so() {
    let killed = |end: Option<ComputeEnd>| async move {
        let fake = Fake::new(vmi(scheduled()));
        let (writer, _) = writer(&fake, Some(vmi(scheduled())));
        let record = RunRecord {
            reason: "MachineKilled".into(),
            message: "at once".into(),
            ended_at_ms: 1,
            ..Default::default()
        };
        writer.keep(&pod(), record);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(fake.0.runs.borrow().len(), 0, "the kubelet has not looked");
        if let Some(compute_end) = end {
            writer.setting.pods.insert(pod().uid.as_str(), LauncherPod { compute_end, ..pod() });
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        let runs = fake.0.runs.borrow().clone();
        assert_eq!(runs.len(), 1, "{runs:?}");
        let text = |key: &str| runs[0].1["spec"][key].as_str().unwrap().to_owned();
        (text("reason"), text("message"))
    };
    let (reason, message) = killed(Some(ComputeEnd::OutOfMemory { limit_bytes: Some(1 << 20) })).await;
    assert!(reason == "OutOfMemory" && message.contains("1048576 bytes"), "{reason}: {message}");
    for end in [Some(ComputeEnd::Otherwise), None] {
        assert_eq!(killed(end).await, ("MachineKilled".to_owned(), "at once".to_owned()), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_goes_on_after_its_pod_is_gone_has_one_record_all_the_same() {
    let fake = Fake::new(vmi(scheduled()));
    let (writer, _) = writer(&fake, None);
    let gone = LauncherPod { uid: PodUid::parse("22222222-7c1f-4d57-9c5e-6f0c7d6a1b2c").unwrap(), ..pod() };
    for _ in 0..3 {
        writer.keep(&gone, RunRecord::default());
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert_eq!(fake.0.runs.borrow().len(), 1);
    tokio::time::sleep(RECORD_REMEMBERED).await;
    writer.keep(&pod(), RunRecord::default());
    assert_eq!(writer.kept.lock().unwrap().len(), 1, "of what is long gone nothing is kept");
}
