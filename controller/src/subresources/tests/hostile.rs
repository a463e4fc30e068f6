//! A launcher that was taken over: whatever it answers, a user gets a short refusal. With real parts in
//! `tests/e2e/cluster/hostile/test_launcher.py`.

use std::sync::Arc;
use std::time::Duration;

use garboard_protocol::wire::LONGEST_ANSWER_BYTES;
use garboard_tunnel::agent::{self, Opened, Refusal, Supervisors};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::forward::answered;
use super::instance::{BASE, NODE, running};
use super::{Api, api, vm};

/// A line that never ends, and a refusal that would drive a terminal.
const ENDLESS: &[u8] = &[b'['; 4096];
const DENIES: &[u8] = b"{\"answer\": \"denied\", \"reason\": \"\\u001b[2J\\r\\n\"}\n";

/// What it says to every request, again and again.
#[derive(Clone, Copy)]
struct Says(&'static [u8]);

impl Supervisors for Says {
    async fn open(&self, _pod_uid: &str) -> Result<Opened, Refusal> {
        let (ours, mut theirs) = UnixStream::pair().map_err(|_| Refusal::Busy)?;
        let says = self.0;
        tokio::spawn(async move { while theirs.write_all(says).await.is_ok() {} });
        Ok(Opened { socket: ours, place: None })
    }
}

async fn with(launcher: Says) -> Api {
    let api = api(true, vm("Always"), Some(running()));
    let (above, below) = UnixStream::pair().unwrap();
    tokio::spawn(agent::serve(below, Arc::new(launcher)));
    let nodes = api.nodes.clone();
    tokio::spawn(async move { nodes.serve(NODE, above).await });
    let connecting = async {
        while api.nodes.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), connecting).await.unwrap();
    api
}

#[tokio::test]
async fn an_answer_without_an_end_and_one_that_is_none_are_refusals() {
    let too_long = format!("longer than {LONGEST_ANSWER_BYTES} bytes");
    let table: [(&[u8], &str); 4] = [
        (ENDLESS, &too_long),
        (b"{\"answer\": \"everything\"}\n", "cannot be parsed"),
        (b"\x1b[2J\xff\n", "cannot be parsed"),
        (b"{\"answer\": \"healthy\"}\n", "unexpected answer"),
    ];
    for (says, expected) in table {
        let (code, message) = answered(&with(Says(says)).await, &format!("{BASE}/console")).await;
        assert!(code == 500 && message.contains(expected), "{code} {message}");
        assert!(message.len() < 1024 && !message.contains('\x1b'), "{message:?}");
    }
}

#[tokio::test]
async fn a_reason_is_bounded_and_printable() {
    let (code, message) = answered(&with(Says(DENIES)).await, &format!("{BASE}/console")).await;
    assert!(code == 409 && message.contains("\\u{1b}[2J") && !message.contains('\x1b'), "{code} {message:?}");
}
