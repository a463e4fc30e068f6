//! The agent client against a real qemu-guest-agent, run here on a unix socket with everything that changes anything
//! blocked. The agent is `qemu-ga` of the path, or what `GARBOARD_TEST_QEMU_GA` names.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use garboard_qmp::agent::{Agent, AgentOptions, GuestAgentError, ShutdownMode};
use tempfile::TempDir;

/// What must never run on the machine that runs the tests.
const BLOCKED: &str = "guest-shutdown,guest-suspend-disk,guest-suspend-ram,guest-suspend-hybrid,guest-exec,guest-set-time,\
    guest-set-vcpus,guest-set-memory-blocks,guest-set-user-password,guest-file-open,guest-fsfreeze-freeze,\
    guest-fsfreeze-freeze-list,guest-fstrim,guest-ssh-add-authorized-keys,guest-ssh-remove-authorized-keys";

/// For what has to come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

struct QemuGa {
    child: Child,
    directory: TempDir,
}

impl Drop for QemuGa {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start() -> Option<QemuGa> {
    let binary = std::env::var_os("GARBOARD_TEST_QEMU_GA").unwrap_or_else(|| "qemu-ga".into());
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(&binary);
    command.args(["--method", "unix-listen", "--block-rpcs", BLOCKED, "--path"]).arg(directory.path().join("ga.sock"));
    command.arg("--statedir").arg(directory.path()).arg("--pidfile").arg(directory.path().join("pid"));
    match command.stdin(Stdio::null()).spawn() {
        Ok(child) => Some(QemuGa { child, directory }),
        Err(error) => {
            eprintln!("skipped: {} does not run ({error}); install qemu-guest-agent", binary.display());
            None
        }
    }
}

async fn connect(socket: &Path) -> Agent {
    let connecting = async {
        loop {
            // The agent makes its socket itself, some time after it was started.
            match Agent::connect(socket, AgentOptions { limit: PATIENCE, ..AgentOptions::default() }).await {
                Ok(agent) => return agent,
                Err(GuestAgentError::Open { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, connecting).await.expect("the agent listens in time")
}

#[tokio::test]
async fn a_real_agent_answers_every_question() {
    let Some(qemu_ga) = start() else { return };
    let agent = connect(&qemu_ga.directory.path().join("ga.sock")).await;
    agent.ping().await.unwrap();
    let info = agent.info().await.unwrap();
    assert!(info.allows("guest-get-osinfo") && !info.allows("guest-shutdown"), "{info:?}");
    assert_eq!(info.commands.left_out(), 0);
    let host_name = agent.host_name().await.unwrap();
    assert_eq!(host_name.as_str(), nix::unistd::gethostname().unwrap().to_str().unwrap());
    assert!(agent.os_info().await.unwrap().machine.is_some());
    let interfaces = agent.interfaces().await.unwrap();
    let loopback = interfaces.items().iter().find(|interface| interface.name.as_str() == "lo").expect("lo");
    assert!(loopback.addresses.items().iter().any(|address| address.ip.is_loopback()), "{loopback:?}");
    assert!(agent.timezone().await.unwrap().offset_seconds.abs() <= 14 * 3600);
    assert_eq!(agent.users().await.unwrap().left_out(), 0);
    assert!(!agent.is_frozen().await.unwrap());
    match agent.filesystems().await {
        Ok(filesystems) => assert_eq!(filesystems.left_out(), 0),
        // A container may show mounts whose devices it hides.
        Err(GuestAgentError::Refused { .. }) => {}
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_real_agent_refuses_what_is_blocked() {
    let Some(qemu_ga) = start() else { return };
    let agent = connect(&qemu_ga.directory.path().join("ga.sock")).await;
    let error = agent.shut_down(ShutdownMode::PowerDown).await.unwrap_err();
    assert!(error.is_unsupported(), "{error:?}");
    let error = agent.freeze().await.unwrap_err();
    assert!(error.is_unsupported() && !error.may_have_taken_effect(), "{error:?}");
    let error = agent.set_authorized_keys("nobody", &[]).await.unwrap_err();
    assert!(error.is_unsupported(), "{error:?}");
    let error = agent.set_password("nobody", b"hunter2").await.unwrap_err();
    assert!(error.is_unsupported(), "{error:?}");
    agent.ping().await.unwrap();
}

#[tokio::test]
async fn a_real_agent_is_in_step_again_with_the_next_client() {
    let Some(qemu_ga) = start() else { return };
    let socket = qemu_ga.directory.path().join("ga.sock");
    for _ in 0..3 {
        let agent = connect(&socket).await;
        // Given up before the answer can have come: the next client finds it in the channel.
        let _ = tokio::time::timeout(Duration::ZERO, agent.os_info()).await;
        agent.host_name().await.unwrap();
    }
}
