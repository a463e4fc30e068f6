//! Keys and passwords on their way from files into a simulated guest.

use std::fs;
use std::path::Path;

use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::control::PauseReason;
use garboard_protocol::testing::running;
use garboard_qmp::agent::AgentOptions;
use garboard_qmp::testing::{AgentBehaviour, FakeAgent};
use serde_json::{Value, json};
use tokio::time::{advance, timeout};

use super::*;

const KEYS: &str = "guest-ssh-add-authorized-keys";
const PASSWORD: &str = "guest-set-user-password";
/// `hunter2`, as it is sent.
const ENCODED: &str = "aHVudGVyMg==";

/// The files of Secrets, and a guest's agent.
struct World {
    room: tempfile::TempDir,
    fake: FakeAgent,
    agent: Agent,
    inbox: mpsc::Receiver<Input>,
    keeper: Keeper,
}

fn write(room: &Path, secret: &str, file: &str, content: &str) {
    let directory = room.join(secret.replace('/', "."));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(file), content).unwrap();
}

fn sources(room: &Path) -> Sources {
    let keys = |secret: &str, users: &[&str]| {
        json!({"sshPublicKey": {"source": {"secret": {"secretName": secret}},
        "propagationMethod": {"qemuGuestAgent": {"users": users}}}})
    };
    let password = json!({"userPassword": {"source": {"secret": {"secretName": "p"}},
        "propagationMethod": {"qemuGuestAgent": {}}}});
    let by_seed = json!({"sshPublicKey": {"source": {"secret": {"secretName": "seed"}},
        "propagationMethod": {"noCloud": {}}}});
    let credentials = [keys("a", &["ada"]), by_seed, password, keys("b", &["ada", "bob"])];
    let vmi = json!({"metadata": {}, "spec": {"domain": {"devices": {}}, "accessCredentials": credentials}});
    let place = |name: &str| {
        let path = room.join(name.replace('/', ".")).display().to_string();
        (name.to_owned(), VolumePlace::Directory { path })
    };
    let places = ["ssh-keys/a", "ssh-keys/b", "passwords/p"].map(place).into();
    Sources::of(&serde_json::from_value(vmi).unwrap(), &VolumeTable { places })
}

async fn world() -> World {
    let room = tempfile::tempdir().unwrap();
    write(room.path(), "ssh-keys/a", "one", "ssh-ed25519 A ada\n\n  ssh-rsa B ada  \n");
    write(room.path(), "ssh-keys/b", "two", "ssh-rsa B ada\nssh-rsa C");
    write(room.path(), "passwords/p", "root", "hunter2\n");
    write(room.path(), "passwords/p", "nobody", "\n");
    let (fake, stream) = FakeAgent::pair(b"").unwrap();
    let limit = Duration::from_secs(60);
    let agent = Agent::connect(stream, AgentOptions { limit, ..AgentOptions::default() }).await.unwrap();
    for command in [KEYS, PASSWORD] {
        fake.on(command, AgentBehaviour::Reply(json!({})));
    }
    let (happened, inbox) = mpsc::channel(16);
    let keeper = Keeper::new(sources(room.path()), happened);
    World { room, fake, agent, inbox, keeper }
}

impl World {
    async fn look(&mut self, status: &Status) {
        self.keeper.look(Some(self.agent.clone()), status).await;
    }

    /// What was reported since the last time.
    fn reported(&mut self) -> Option<(bool, String)> {
        match self.inbox.try_recv() {
            Ok(Input::CredentialsTried(tried)) => Some((tried.synchronized, tried.message)),
            Ok(_) => panic!("something else was reported"),
            Err(_) => None,
        }
    }

    fn asked(&self) -> (usize, usize) {
        (self.fake.arguments(KEYS).len(), self.fake.arguments(PASSWORD).len())
    }
}

#[tokio::test]
async fn each_user_gets_all_keys_and_the_password_as_the_agent_takes_them() {
    let mut world = world().await;
    world.look(&running(1)).await;
    let expected = [
        json!({"username": "ada", "keys": ["ssh-ed25519 A ada", "ssh-rsa B ada", "ssh-rsa C"], "reset": true}),
        json!({"username": "bob", "keys": ["ssh-rsa B ada", "ssh-rsa C"], "reset": true}),
    ];
    assert_eq!(world.fake.arguments(KEYS), expected);
    let expected = [json!({"username": "root", "password": ENCODED, "crypted": false})];
    assert_eq!(world.fake.arguments(PASSWORD), expected, "an empty password is none");
    assert_eq!(world.reported(), Some((true, String::new())));
}

#[tokio::test(start_paused = true)]
async fn the_agent_is_asked_again_when_something_may_be_missing_and_not_else() {
    let mut world = world().await;
    world.look(&running(1)).await;
    world.look(&running(2)).await;
    assert_eq!(world.asked(), (2, 1));
    write(world.room.path(), "passwords/p", "root", "hunter3");
    world.look(&running(2)).await;
    assert_eq!(world.asked(), (2, 2), "only what has changed");
    assert_eq!(world.fake.arguments(PASSWORD)[1]["password"], "aHVudGVyMw==");
    let rebooted = Status { resets: 1, ..running(3) };
    world.look(&rebooted).await;
    assert_eq!(world.asked(), (4, 3));
    world.keeper.agents += 1;
    world.look(&rebooted).await;
    assert_eq!(world.asked(), (6, 4));
    world.look(&rebooted).await;
    assert_eq!(world.asked(), (6, 4));
    advance(AGAIN_AFTER).await;
    world.look(&rebooted).await;
    assert_eq!(world.asked(), (8, 5));
    assert_eq!(world.reported(), Some((true, String::new())));
    assert_eq!(world.reported(), None, "the same outcome is reported once");
}

#[tokio::test]
async fn a_key_that_is_taken_from_its_secret_is_taken_from_the_guest() {
    let mut world = world().await;
    world.look(&running(1)).await;
    for secret in ["a", "b"] {
        fs::remove_dir_all(world.room.path().join(format!("ssh-keys.{secret}"))).unwrap();
        fs::create_dir(world.room.path().join(format!("ssh-keys.{secret}"))).unwrap();
    }
    world.look(&running(1)).await;
    assert_eq!(world.fake.arguments(KEYS)[2], json!({"username": "ada", "keys": [], "reset": true}));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_for_its_user_without_the_password_and_tried_again() {
    let mut world = world().await;
    for text in ["hunter2 is too short", "cannot decode aHVudGVyMg=="] {
        world.fake.on(PASSWORD, AgentBehaviour::Refuse("GenericError", text));
        advance(AGAIN_AFTER).await;
        world.look(&running(1)).await;
        let (synchronized, message) = world.reported().unwrap();
        assert!(!synchronized && message.contains("password of user root"), "{message}");
        assert!(message.contains("<redacted>") && !message.contains("hunter2"), "{message}");
        assert!(!message.contains(ENCODED), "{message}");
    }
    world.fake.on(KEYS, AgentBehaviour::Refuse("GenericError", "no such user"));
    world.fake.on(PASSWORD, AgentBehaviour::Reply(json!({})));
    advance(AGAIN_AFTER).await;
    world.look(&running(1)).await;
    let (_, message) = world.reported().unwrap();
    assert_eq!(message.matches("no such user").count(), 2, "{message}");
    assert_eq!(world.fake.arguments(PASSWORD).len(), 3, "the others get theirs");
    world.fake.on(KEYS, AgentBehaviour::Reply(json!({})));
    advance(LOOK).await;
    world.look(&running(1)).await;
    assert_eq!(world.reported(), Some((true, String::new())));
    assert_eq!(world.fake.arguments(PASSWORD).len(), 3, "and are not set again for that");
}

/// A message of a guest that counts.
fn numbered(number: u32) -> &'static str {
    Box::leak(format!("no, for the {number}th time").into_boxed_str())
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_refuses_is_asked_less_and_less_often_and_other_texts_of_it_are_reported_seldom() {
    let mut world = world().await;
    let mut reports = Vec::new();
    for number in 0..30 {
        world.fake.on(PASSWORD, AgentBehaviour::Refuse("GenericError", numbered(number)));
        world.look(&running(1)).await;
        reports.extend(world.reported());
        advance(LOOK).await;
    }
    assert_eq!(world.asked(), (2, 5), "after 10, 20, 40 and 80 seconds");
    assert_eq!(reports.len(), 1, "{reports:?}");
    // Its agent is away, and back with another text.
    world.keeper.look(None, &running(1)).await;
    assert_eq!(world.reported(), Some((false, "Guest agent is offline".to_owned())), "five minutes have passed");
    world.keeper.agents += 1;
    world.look(&running(1)).await;
    assert!(world.reported().unwrap().1.contains("for the 29th time"));
    world.keeper.look(None, &running(1)).await;
    assert_eq!(world.reported(), None);
    // A user changes the Secret, and learns at once what comes of it.
    world.fake.on(PASSWORD, AgentBehaviour::Refuse("GenericError", numbered(30)));
    write(world.room.path(), "passwords/p", "root", "hunter3");
    world.look(&running(1)).await;
    assert!(world.reported().unwrap().1.contains("for the 30th time"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_the_command_is_not_asked_again_but_another_is() {
    let mut world = world().await;
    world.fake.on(KEYS, AgentBehaviour::Refuse("CommandNotFound", "no such command"));
    world.look(&running(1)).await;
    assert_eq!(world.asked(), (2, 1));
    assert!(!world.reported().unwrap().0);
    advance(AGAIN_AFTER).await;
    world.look(&running(1)).await;
    assert_eq!(world.asked(), (2, 2), "the password is set again after its time");
    world.keeper.agents += 1;
    world.fake.on(KEYS, AgentBehaviour::Reply(json!({})));
    world.look(&running(1)).await;
    assert_eq!(world.asked(), (4, 3));
    assert_eq!(world.reported(), Some((true, String::new())));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_can_be_read_again_is_reported_although_nothing_is_due() {
    let mut world = world().await;
    world.look(&running(1)).await;
    assert_eq!(world.reported(), Some((true, String::new())));
    let (secret, away) = (world.room.path().join("passwords.p"), world.room.path().join("away"));
    fs::rename(&secret, &away).unwrap();
    world.look(&running(1)).await;
    assert!(!world.reported().unwrap().0);
    fs::rename(&away, &secret).unwrap();
    world.look(&running(1)).await;
    assert_eq!((world.asked(), world.reported()), ((2, 1), Some((true, String::new()))));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_repeats_a_password_at_length_or_in_nonsense_is_not_quoted() {
    let mut world = world().await;
    let long: &'static str = Box::leak(format!("{} hunter2", "x".repeat(294)).into_boxed_str());
    world.fake.on(PASSWORD, AgentBehaviour::Refuse("GenericError", long));
    world.look(&running(1)).await;
    let (_, message) = world.reported().unwrap();
    assert!(message.contains("GenericError") && !message.contains("hunte"), "{message}");
    let repeated = format!("{{\"execute\": \"{PASSWORD}\", \"password\": \"{ENCODED}\"}}\n");
    world.fake.on(PASSWORD, AgentBehaviour::Raw(repeated.into_bytes()));
    advance(AGAIN_AFTER).await;
    world.look(&running(1)).await;
    let (_, message) = world.reported().unwrap();
    assert!(message.contains("could not be parsed") && !message.contains(ENCODED), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_silent_is_not_asked_for_every_user() {
    let mut world = world().await;
    world.fake.on(KEYS, AgentBehaviour::Silence);
    world.look(&running(1)).await;
    let (_, message) = world.reported().unwrap();
    assert!(message.contains("did not answer"), "{message}");
    assert!(message.contains("password of user root was not set: the guest agent is silent"), "{message}");
    assert_eq!(world.asked(), (1, 0));
    // Its silence looks like another agent, once it answers again.
    world.keeper.agents += 1;
    world.look(&running(1)).await;
    assert_eq!(world.asked(), (1, 0));
    for (wait, asked) in [(LOOK, 2), (LOOK, 2), (LOOK, 3), (LOOK * 3, 3), (LOOK, 4)] {
        advance(wait).await;
        world.look(&running(1)).await;
        assert_eq!(world.asked(), (asked, 0), "after {wait:?}");
    }
    world.look(&Status { resets: 1, ..running(2) }).await;
    assert_eq!(world.asked(), (5, 0), "a guest that was reset is another one");
    world.fake.on(KEYS, AgentBehaviour::Reply(json!({})));
    advance(LOOK).await;
    world.look(&Status { resets: 1, ..running(2) }).await;
    assert_eq!(world.asked(), (7, 1));
    assert_eq!(world.reported(), Some((true, String::new())));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_away_is_reported_only_where_something_is_missing() {
    let mut world = world().await;
    world.keeper.look(None, &running(1)).await;
    assert_eq!(world.reported(), Some((false, "Guest agent is offline".to_owned())));
    world.look(&running(1)).await;
    assert_eq!(world.reported(), Some((true, String::new())));
    world.keeper.look(None, &Status { resets: 1, ..running(2) }).await;
    assert_eq!(world.reported(), None, "it reboots, and has the files of before");
    write(world.room.path(), "ssh-keys/b", "three", "ssh-rsa D");
    world.keeper.look(None, &running(2)).await;
    assert_eq!(world.reported(), Some((false, "Guest agent is offline".to_owned())));
}

#[tokio::test]
async fn a_guest_that_cannot_answer_is_asked_later() {
    let mut world = world().await;
    let standing = [
        Status { paused: Some(PauseReason::PausedByUser), ..running(1) },
        Status { frozen: true, ..running(1) },
        Status { phase: ReportedPhase::Scheduled, ..running(1) },
    ];
    for status in standing {
        world.look(&status).await;
        world.keeper.look(None, &status).await;
    }
    assert_eq!((world.asked(), world.reported()), ((0, 0), None));
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_named_with_its_field() {
    let mut world = world().await;
    fs::remove_dir_all(world.room.path().join("passwords.p")).unwrap();
    world.look(&running(1)).await;
    let (synchronized, message) = world.reported().unwrap();
    assert!(!synchronized && message.contains("spec.accessCredentials[2].userPassword: the Secret p"), "{message}");
    let credential = json!({"userPassword": {"source": {"secret": {"secretName": "p"}},
        "propagationMethod": {"qemuGuestAgent": {}}}});
    let vmi = json!({"metadata": {}, "spec": {"domain": {"devices": {}}, "accessCredentials": [credential]}});
    let unknown = Sources::of(&serde_json::from_value(vmi).unwrap(), &VolumeTable::default());
    assert!(unknown.read().err().unwrap().to_string().contains("is not among the volumes"));
}

/// As a kubelet changes a Secret: all of its files at once, by one link.
#[tokio::test(start_paused = true)]
async fn what_a_kubelet_changes_reaches_the_guest_by_itself() {
    let mut world = world().await;
    let secret = world.room.path().join("passwords.p");
    fs::remove_dir_all(&secret).unwrap();
    let version = |name: &str, password: &str| {
        fs::create_dir_all(secret.join(name)).unwrap();
        fs::write(secret.join(name).join("root"), password).unwrap();
        std::os::unix::fs::symlink(name, secret.join("..new")).unwrap();
        fs::rename(secret.join("..new"), secret.join("..data")).unwrap();
    };
    version("..1", "hunter2");
    std::os::unix::fs::symlink("..data/root", secret.join("root")).unwrap();
    let (agents, agent) = watch::channel(None);
    let (_keeps, status) = watch::channel(running(1));
    let keeping = tokio::spawn(world.keeper.run(agent, status));
    agents.send_replace(Some(world.agent.clone()));
    let patience = Duration::from_secs(3600);
    let passwords = |fake: &FakeAgent| -> Vec<Value> {
        fake.arguments(PASSWORD).into_iter().map(|each| each["password"].clone()).collect()
    };
    let until = async |password: &str| {
        while passwords(&world.fake).last().is_none_or(|last| last != password) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(patience, until(ENCODED)).await.unwrap();
    version("..2", "hunter3");
    timeout(patience, until("aHVudGVyMw==")).await.unwrap();
    // An answer that comes late, by this clock, makes the keeper send the same once more.
    let mut each = passwords(&world.fake);
    each.dedup();
    assert_eq!(each, [ENCODED, "aHVudGVyMw=="]);
    // QEMU is gone.
    drop(agents);
    timeout(patience, keeping).await.unwrap().unwrap();
    assert!(world.inbox.recv().await.is_some());
}
