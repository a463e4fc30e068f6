//! A launcher that was taken over: whatever it answers, a user gets a short refusal. With real parts in
//! `tests/e2e/cluster/hostile/test_launcher.py`.

use garboard_protocol::wire::LONGEST_ANSWER_BYTES;
use garboard_tunnel::agent::{Opened, Refusal, Supervisors};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use super::forward::answered;
use super::instance::{BASE, running};
use super::record::OWN;
use super::{Api, api, played, vm};

/// A line that never ends, and a refusal that would drive a terminal.
const ENDLESS: &[u8] = &[b'['; 4096];
const DENIES: &[u8] = b"{\"answer\": \"denied\", \"reason\": \"\\u001b[2J\\r\\n\"}\n";

/// What it says to every request, again and again.
#[derive(Clone, Copy)]
struct Says(&'static [u8]);

impl Supervisors for Says {
    async fn open(&self, pod_uid: &str) -> Result<Opened, Refusal> {
        let says = self.0;
        played::open(pod_uid, move |mut socket| async move { while socket.write_all(says).await.is_ok() {} })
    }
}

async fn with(launcher: Says) -> Api {
    let api = api(true, vm("Always"), Some(running()));
    drop(played::connect(&api, launcher).await);
    api
}

#[tokio::test]
async fn an_answer_without_an_end_and_one_that_is_none_are_refusals() {
    let too_long = format!("longer than {LONGEST_ANSWER_BYTES} bytes");
    let table: [(&[u8], &str); 5] = [
        (ENDLESS, &too_long),
        (b"{\"answer\": \"everything\"}\n", "cannot be parsed"),
        (b"\x1b[2J\xff\n", "cannot be parsed"),
        (b"{\"answer\": \"healthy\"}\n", "unexpected answer"),
        (b"{\"answer\": \"part\", \"bytes\": 7}\n", "unexpected answer"),
    ];
    for (says, expected) in table {
        let (code, message) = answered(&with(Says(says)).await, &format!("{BASE}/console")).await;
        assert!(code == 500 && message.contains(expected), "{code} {message}");
        assert!(message.len() < 1024 && !message.contains('\x1b'), "{message:?}");
    }
}

/// Of an endless part, and one that is announced as larger than any.
#[tokio::test]
async fn a_part_has_the_bytes_that_were_announced_and_no_more_than_a_part_may_have() {
    let path = format!("{OWN}/logs/qemu");
    let endless = with(Says(b"{\"answer\": \"part\", \"bytes\": 70, \"leftOut\": 18446744073709551615}\n")).await;
    let answer = endless.ask("GET", &path, Value::Null).await;
    assert_eq!(answer.status().as_u16(), 200);
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    assert!(body.len() == 70 && body.starts_with(b"{\"answer\": \"part\""), "{body:?}");
    let large = with(Says(b"{\"answer\": \"part\", \"bytes\": 1048577}\n")).await;
    let (code, message) = answered(&large, &path).await;
    assert!(code == 500 && message.contains("unexpected answer"), "{code} {message}");
}

#[tokio::test]
async fn a_reason_is_bounded_and_printable() {
    let (code, message) = answered(&with(Says(DENIES)).await, &format!("{BASE}/console")).await;
    assert!(code == 409 && message.contains("\\u{1b}[2J") && !message.contains('\x1b'), "{code} {message:?}");
}
