//! A probe's question, put to the guest agent.
//!
//! A guest whose vCPUs stand still cannot be asked, and is not ill because of it: a paused machine answers every probe.
//! Its pod is not Ready meanwhile anyway (readiness gate).

use std::time::Duration;

use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{GuestQuestion, Status};
use garboard_qmp::agent::{Agent, GuestAgentError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often a command is looked after.
const LOOK: Duration = Duration::from_millis(100);

/// Asks; the error is a message.
pub(crate) async fn ask(
    question: GuestQuestion,
    within: Duration,
    agent: &watch::Receiver<Option<Agent>>,
    status: &watch::Receiver<Status>,
) -> Result<(), String> {
    if status.borrow().paused.is_some() {
        return Ok(());
    }
    let agent = agent.borrow().clone().ok_or("no guest agent is connected")?;
    let answer = timeout(within, async {
        match question {
            GuestQuestion::Ping => agent.ping().await.map_err(|error| ErrorChain(&error).to_string()),
            GuestQuestion::Exec { command } => execute(&agent, &command).await,
        }
    });
    answer.await.unwrap_or_else(|_| Err(format!("the guest took longer than {} s", within.as_secs())))
}

/// Runs a command in the guest; well is an end with 0.
async fn execute(agent: &Agent, command: &[String]) -> Result<(), String> {
    let message = |error: GuestAgentError| ErrorChain(&error).to_string();
    let (program, arguments) = command.split_first().ok_or("the probe names no command")?;
    let process = agent.execute(program, arguments).await.map_err(message)?;
    loop {
        let seen = agent.look_after(process).await.map_err(message)?;
        match (seen.exited, seen.code) {
            (false, _) => sleep(LOOK).await,
            (true, Some(0)) => return Ok(()),
            (true, Some(code)) => return Err(format!("the command ended with {code}")),
            (true, None) => return Err("the command was ended by a signal".to_owned()),
        }
    }
}
