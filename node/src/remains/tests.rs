use std::sync::Mutex;

use garboard_cluster::report::InstanceEvent;
use garboard_cluster::report::condition::PodUpdate;
use kube::runtime::watcher::Event;
use serde_json::Value;

use super::*;
use crate::pods::tests::POD;
use crate::status::tests::{pod, scheduled, vmi};

/// An API server that has these launcher pods, and keeps what is answered.
#[derive(Clone, Default)]
struct Fake(Arc<FakeState>);

#[derive(Default)]
struct FakeState {
    pods: Mutex<Vec<LauncherPod>>,
    answers: Mutex<Vec<Value>>,
    /// The VMI that refuses every write.
    refuses: Option<&'static str>,
}

impl Cluster for Fake {
    async fn vmi(&self, _: &str, _: &str) -> Result<VirtualMachineInstance, ClusterError> {
        Err(ClusterError::Gone)
    }

    async fn patch_vmi(&self, _: &str, _: &str, _: Value) -> Result<VirtualMachineInstance, ClusterError> {
        panic!("the answer of one that cannot be read cannot be read")
    }

    async fn mark_vmi(&self, _: &str, name: &str, patch: Value) -> Result<(), ClusterError> {
        if self.0.refuses == Some(name) {
            return Err(ClusterError::Slow);
        }
        self.0.answers.lock().unwrap().push(patch);
        Ok(())
    }

    async fn pods_of(&self, _: &str) -> Result<Vec<LauncherPod>, ClusterError> {
        Ok(self.0.pods.lock().unwrap().clone())
    }

    async fn mark_pod(&self, _: &LauncherPod, _: &PodUpdate) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn keep_run(&self, _: &str, _: Value) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn emit_event(&self, _: &LauncherPod, _: &InstanceEvent) -> Result<(), ClusterError> {
        Ok(())
    }
}

/// A directory of processes in which one is in the pod.
fn processes() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("fs")).unwrap();
    process(root.path(), 1, "0::/init.scope\n", "State:\tS (sleeping)\nThreads:\t1\n");
    process(root.path(), 7, &format!("0::/kubepods/pod{POD}/c\n"), "State:\tS (sleeping)\nThreads:\t9\n");
    root
}

fn process(root: &Path, number: u32, groups: &str, status: &str) {
    let directory = root.join(number.to_string());
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("cgroup"), groups).unwrap();
    std::fs::write(directory.join("status"), status).unwrap();
}

fn wanted() -> BTreeSet<PodUid> {
    BTreeSet::from([PodUid::parse(POD).unwrap()])
}

#[test]
fn a_process_of_a_pod_is_found_until_all_of_it_has_ended() {
    let root = processes();
    assert_eq!(left(root.path(), &wanted()).unwrap(), wanted());
    let unit = format!("0::/kubepods.slice/kubepods-pod{}.slice/cri-x.scope\n", POD.replace('-', "_"));
    process(root.path(), 7, &unit, "State:\tD (disk sleep)\nThreads:\t1\n");
    assert_eq!(left(root.path(), &wanted()).unwrap(), wanted(), "it cannot be killed yet");
    process(root.path(), 7, &unit, "State:\tZ (zombie)\nThreads:\t3\n");
    assert_eq!(left(root.path(), &wanted()).unwrap(), wanted(), "others of its threads live");
    process(root.path(), 7, &unit, "State:\tZ (zombie)\nThreads:\t1\n");
    assert_eq!(left(root.path(), &wanted()).unwrap(), BTreeSet::new());
    std::fs::remove_file(root.path().join("1/cgroup")).unwrap();
    assert_eq!(left(root.path(), &wanted()).unwrap(), BTreeSet::new(), "one that has gone meanwhile");
    assert!(left(Path::new("/nowhere"), &wanted()).is_err(), "what cannot be looked at is not empty");
}

#[test]
fn only_a_machine_of_this_node_that_is_not_over_is_asked_about() {
    let ask = |status: Value| questions(&vmi(status), "node-1").len();
    assert_eq!(ask(scheduled()), 1);
    for (key, value) in [
        ("phase", json!("Failed")),
        ("nodeName", json!("node-2")),
        ("activePods", json!({POD: ""})),
        ("activePods", json!({POD: "node-2"})),
        ("activePods", json!({"../etc": "node-1"})),
    ] {
        let mut status = scheduled();
        status[key] = value;
        assert_eq!(ask(status.clone()), 0, "{status}");
    }
}

#[test]
fn what_is_about_to_be_answered_is_looked_at_soon() {
    let mut progress = Progress::default();
    let grown = (0..4).fold(FIRST_PAUSE, |pause, _| progress.next_pause(pause));
    assert_eq!(grown, LONGEST_PAUSE, "something is left");
    progress.quiet = wanted();
    assert_eq!(progress.next_pause(grown), FIRST_PAUSE);
    progress.answered = wanted().into_iter().map(|pod| (pod, Instant::now())).collect();
    assert_eq!(progress.next_pause(grown), LONGEST_PAUSE);
}

#[tokio::test(start_paused = true)]
async fn the_answer_comes_when_nothing_is_left_and_the_api_server_has_no_such_pod() {
    let (fake, root) = (Fake::default(), processes());
    let (pods, vmis) = (Arc::new(Mirror::default()), Arc::new(Mirror::default()));
    vmis.insert("vm", Arc::new(vmi(scheduled())));
    fake.0.pods.lock().unwrap().push(pod());
    let remains = Remains {
        cluster: fake.clone(),
        node: "node-1".to_owned(),
        pods: Arc::clone(&pods),
        vmis,
        processes: root.path().to_owned(),
    };
    assert_eq!(remains.questions(), [], "the pods were not listed yet");
    for event in [Event::Init, Event::InitDone] {
        pods.apply(event, |()| (String::new(), None));
    }
    pods.insert(POD, pod());
    assert_eq!(remains.questions(), [], "it is there");
    pods.apply(Event::Delete(()), |()| (POD.to_owned(), None));
    let (questions, mut progress) = (remains.questions(), Progress::default());
    assert_eq!(questions.len(), 1);
    let mut look = async |times: usize| {
        for _ in 0..times {
            remains.look(&questions, &mut progress).await.unwrap();
        }
        fake.0.answers.lock().unwrap().len()
    };
    assert_eq!(look(3).await, 0, "a process of it is left");
    std::fs::remove_dir_all(root.path().join("7")).unwrap();
    assert_eq!(look(1).await, 0, "a last report may be on its way");
    assert_eq!(look(1).await, 0, "the API server has the pod");
    fake.0.pods.lock().unwrap().clear();
    assert_eq!(look(1).await, 1);
    assert_eq!(look(2).await, 1, "once is enough");
    let answer = fake.0.answers.lock().unwrap()[0].clone();
    assert_eq!(answer["status"], json!({"activePods": {POD: ""}}));
    assert_eq!(answer["metadata"], json!({"uid": crate::pods::tests::VMI}));
    tokio::time::advance(DELIVERY).await;
    assert_eq!(look(1).await, 2, "another client has overwritten it");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_keeps_no_other_back() {
    const OTHER: &str = "5d1f2b9c-0000-4d57-9c5e-6f0c7d6a1b2c";
    let fake = Fake(Arc::new(FakeState { refuses: Some("vm"), ..FakeState::default() }));
    let root = tempfile::tempdir().unwrap();
    let remains = Remains {
        cluster: fake.clone(),
        node: "node-1".to_owned(),
        pods: Arc::default(),
        vmis: Arc::default(),
        processes: root.path().to_owned(),
    };
    let question = |vmi: &str, pod: &str| Question {
        pod: PodUid::parse(pod).unwrap(),
        namespace: "default".to_owned(),
        vmi: vmi.to_owned(),
        vmi_uid: vmi.to_owned(),
    };
    let questions = [question("vm", POD), question("other", OTHER)];
    let mut progress = Progress::default();
    for _ in 0..4 {
        remains.look(&questions, &mut progress).await.unwrap();
    }
    let answers: Vec<_> = fake.0.answers.lock().unwrap().iter().map(|each| each["metadata"]["uid"].clone()).collect();
    assert_eq!(answers, ["other"], "once, and the refused one is tried again");
    assert!(progress.answered.keys().eq([&PodUid::parse(OTHER).unwrap()]));
    assert_eq!(progress.next_pause(LONGEST_PAUSE), LONGEST_PAUSE, "not twice a second for as long as it is refused");
}
