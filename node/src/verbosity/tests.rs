use garboard_agent::line_socket::LineSocket;
use garboard_net::GuestAddresses;
use garboard_protocol::agent::AgentReply;
use garboard_protocol::control::{Asked, ControlReply, ControlRequest};
use garboard_protocol::wire;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::*;
use crate::identity::PodUid;
use crate::pods::launcher_pod;
use crate::pods::tests::{POD, VMI, example};

/// For what has to come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const OTHER_POD: &str = "11111111-7c1f-4d57-9c5e-6f0c7d6a1b2c";

type Reply = AgentReply<GuestAddresses>;

fn known(written: &Value) -> BTreeMap<String, KubeVirt> {
    let object: KubeVirt = serde_json::from_value(json!({
        "metadata": {"name": "kubevirt", "namespace": "garboard", "uid": "u"},
        "spec": {"configuration": {"developerConfiguration": {"logVerbosity": written}}},
    }))
    .unwrap();
    BTreeMap::from([("u".to_owned(), object)])
}

#[test]
fn the_settings_set_the_agents_levels_and_the_usual_number_of_supervisors() {
    let (_filter, levels) = garboard_log::filter::<tracing_subscriber::Registry>(None);
    let (usual, published) = watch::channel(None);
    let own = Own { namespace: "garboard".to_owned(), node: "n".to_owned(), levels: levels.clone(), usual };
    for (written, expected, of_supervisors) in [
        (known(&json!({"virtHandler": 6, "virtLauncher": 4})), 6, 4),
        (known(&json!({"virtHandler": 6, "nodeVerbosity": {"n": 3}})), 3, USUAL),
        (known(&json!({"virtHandler": 6, "nodeVerbosity": {"other": 3}})), 6, USUAL),
        (BTreeMap::new(), USUAL, USUAL),
    ] {
        own.apply(&written);
        assert_eq!(levels.set(targets(expected)), Outcome::AlreadySo, "{written:?}");
        assert_eq!(*published.borrow(), Some(of_supervisors), "{written:?}");
    }
}

#[test]
fn a_number_is_sent_once_on_each_connection() {
    let connected = || HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let message = |connection, verbosity| Message { connection, verbosity };
    let before = HashMap::from([("a".to_owned(), message(1, 2)), ("b".to_owned(), message(2, 2))]);
    assert!(due(connected(), &before, |_| 2).is_empty());
    assert_eq!(due(connected(), &before, |pod| if pod == "a" { 6 } else { 2 }), [("a".to_owned(), message(1, 6))]);
    let again = HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 3)]);
    assert_eq!(due(again, &before, |_| 2), [("b".to_owned(), message(3, 2))]);
    assert_eq!(due(connected(), &HashMap::new(), |_| 2).len(), 2);
}

/// A supervisor of a pod that is connected, answers everything in one way, and passes the numbers on to here.
async fn connect(supervisors: &Connected, pod: &str, reply: ControlReply) -> mpsc::UnboundedReceiver<u32> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (serving, uid) = (supervisors.clone(), PodUid::parse(pod).unwrap());
    tokio::spawn(async move {
        let mut socket = LineSocket::new(theirs);
        let _ = serving.serve(&mut socket, &uid).await;
    });
    let mut socket = LineSocket::new(ours);
    assert_eq!(socket.receive::<Reply>().await.unwrap(), Reply::Serving);
    let (note, noted) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(Reply::Connection) = socket.receive::<Reply>().await {
            let stream = std::os::unix::net::UnixStream::from(socket.take_descriptors(1).unwrap().remove(0));
            stream.set_nonblocking(true).unwrap();
            let mut stream = BufReader::new(UnixStream::from_std(stream).unwrap());
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let asked: Asked = wire::decode(line.as_bytes()).unwrap();
            let ControlRequest::LogVerbosity { verbosity } = asked.request else { panic!("{asked:?}") };
            stream.write_all(&wire::encode(&reply).unwrap()).await.unwrap();
            let _ = note.send(verbosity);
        }
    });
    noted
}

async fn next(noted: &mut mpsc::UnboundedReceiver<u32>) -> u32 {
    tokio::time::timeout(PATIENCE, noted.recv()).await.expect("it is sent").unwrap()
}

fn instance(labels: Value) -> Arc<VirtualMachineInstance> {
    let written = json!({
        "metadata": {"name": "vm", "namespace": "default", "uid": VMI, "labels": labels},
        "spec": {"domain": {"devices": {}}},
    });
    Arc::new(serde_json::from_value(written).unwrap())
}

#[tokio::test]
async fn a_supervisor_has_the_number_of_its_instance_or_of_the_settings_and_so_has_the_next_one() {
    let (pods, vmis, supervisors) = (Arc::<Mirror<_>>::default(), Arc::<Mirror<_>>::default(), Connected::default());
    pods.insert(POD, launcher_pod(&example(), "node-1").unwrap());
    let recipients = Recipients { pods, vmis: Arc::clone(&vmis), supervisors: supervisors.clone() };
    let (usual, follows) = watch::channel(None);
    tokio::spawn(send(recipients, follows));
    let mut first = connect(&supervisors, POD, ControlReply::Done).await;
    usual.send_replace(Some(6));
    assert_eq!(next(&mut first).await, 6, "as soon as the settings are known");
    vmis.insert(VMI, instance(json!({"logVerbosity": "3"})));
    assert_eq!(next(&mut first).await, 3, "the label of its instance goes before");
    vmis.insert(VMI, instance(json!({"logVerbosity": "high"})));
    assert_eq!(next(&mut first).await, 6, "which has to be a number");
    let mut second = connect(&supervisors, POD, ControlReply::AlreadySo).await;
    assert_eq!(next(&mut second).await, 6, "another supervisor begins with the usual levels");
    usual.send_replace(Some(USUAL));
    assert_eq!(next(&mut second).await, USUAL);
    assert!(first.try_recv().is_err(), "nothing more was sent to the one before");
}

#[tokio::test]
async fn a_supervisor_of_a_version_before_is_asked_once_for_each_number() {
    let (vmis, supervisors) = (Arc::<Mirror<_>>::default(), Connected::default());
    let recipients = Recipients { pods: Arc::default(), vmis: Arc::clone(&vmis), supervisors: supervisors.clone() };
    let (usual, follows) = watch::channel(Some(6));
    tokio::spawn(send(recipients, follows));
    let denied = ControlReply::Denied { reason: "unknown variant `logVerbosity`".to_owned() };
    let mut before = connect(&supervisors, POD, denied).await;
    assert_eq!(next(&mut before).await, 6);
    // Each of these is a reason to look at all of them again.
    vmis.insert(VMI, instance(json!({})));
    let mut other = connect(&supervisors, OTHER_POD, ControlReply::Done).await;
    assert_eq!(next(&mut other).await, 6);
    usual.send_replace(Some(4));
    assert_eq!((next(&mut before).await, next(&mut other).await), (4, 4));
}
