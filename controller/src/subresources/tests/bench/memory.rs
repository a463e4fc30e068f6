//! What a controller keeps in memory for streams and for agents that do nothing.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use super::super::instance::NODE;
use super::machines::Machines;
use super::{Clients, OF_A_TENANT, PATIENCE, Websocket, count, in_processes};

/// How many are open at once.
const MANY: &str = "GARBOARD_BENCH_MANY";
const OF_A_UNIT_TEST: usize = 100;
/// Those that are there before any is counted: what the first ones cost once is no cost of one more.
const UNCOUNTED: usize = 50;
/// Streams of one connection of an agent; the tunnel has 256.
const OF_A_CONNECTION: usize = 200;
/// What a thousand idle streams may cost, KiB.
const OF_1000_STREAMS: i64 = 64 * 1024;
/// What the agents of 8000 nodes may cost, KiB.
const OF_8000_AGENTS: i64 = 1024 * 1024;

/// How soon another tenant's stream is open while there are so many.
const SOON: Duration = Duration::from_secs(10);

/// These print nothing by themselves.
const QUIET: Machines = Machines { prints: 0 };

/// What a number of streams or agents cost.
struct Cost {
    number: i64,
    kib: i64,
}

impl Cost {
    /// What so many of them would, KiB.
    fn of(&self, others: i64) -> i64 {
        self.kib * others / self.number
    }

    /// Prints a row, which says how long it took, and fails where `goal` of them would cost `limit` KiB or more.
    fn judge(&self, what: &str, took: Duration, goal: i64, limit: i64) {
        let Self { number, kib } = self;
        let (each, all) = (self.of(1), self.of(goal));
        let by_arithmetic = format!("{goal}: {} MiB, limit {}", all / 1024, limit / 1024);
        println!("| {number} {what} | {took:.1?} | {kib} KiB | {each} KiB | {by_arithmetic} |");
        assert!(all < limit, "{goal} {what} cost {all} KiB, and are to cost less than {limit} KiB");
    }
}

/// The console of each of these users.
async fn consoles(clients: &Clients, users: Range<usize>) -> Vec<Websocket> {
    let mut open = Vec::new();
    for user in users {
        if user % OF_A_CONNECTION == 0 {
            // The newest connection of a node gets what is opened from now on.
            clients.agent(NODE, QUIET).await;
        }
        let mut console = clients.open(user, "console").await;
        assert_eq!(echo(&mut console).await, Message::binary("x"), "the console is there");
        open.push(console);
    }
    open
}

async fn echo(console: &mut Websocket) -> Message {
    console.send(Message::binary("x")).await.unwrap();
    let echoed = async {
        loop {
            let message = console.next().await.unwrap().unwrap();
            // The pings of both sides come in between.
            if !matches!(message, Message::Ping(_) | Message::Pong(_)) {
                return message;
            }
        }
    };
    tokio::time::timeout(PATIENCE, echoed).await.unwrap()
}

#[test]
fn a_thousand_idle_streams_cost_less_than_64_mib() {
    let test = concat!(module_path!(), "::a_thousand_idle_streams_cost_less_than_64_mib");
    in_processes(test, async |clients| {
        let many = count(MANY, OF_A_UNIT_TEST);
        let mut open = consoles(clients, 0..UNCOUNTED).await;
        let (before, begun) = (clients.resident_kib(), Instant::now());
        open.extend(consoles(clients, UNCOUNTED..UNCOUNTED + many).await);
        let took = begun.elapsed();
        // All of them are there still.
        for console in &mut open {
            assert_eq!(echo(console).await, Message::binary("x"));
        }
        let begun = Instant::now();
        drop(clients.open(UNCOUNTED + many + OF_A_TENANT, "console").await);
        let other = begun.elapsed();
        assert!(other < SOON, "{other:?}");
        let kib = clients.resident_kib() - before;
        Cost { number: many.try_into().unwrap(), kib }.judge("idle streams", took, 1000, OF_1000_STREAMS);
    });
}

/// The agents of nodes, all at once, as after a restart of a controller without a spread.
async fn agents(clients: &Clients, numbers: Range<usize>) {
    let dialling = numbers.map(|number| async move {
        clients.agent(&format!("another-{number}"), QUIET).await;
    });
    tokio::time::timeout(PATIENCE, futures::future::join_all(dialling)).await.expect("all are connected");
}

#[test]
fn the_agents_of_8000_nodes_fit_into_a_controller() {
    let test = concat!(module_path!(), "::the_agents_of_8000_nodes_fit_into_a_controller");
    in_processes(test, async |clients| {
        let many = count(MANY, OF_A_UNIT_TEST);
        agents(clients, 0..UNCOUNTED).await;
        let (before, begun) = (clients.resident_kib(), Instant::now());
        agents(clients, UNCOUNTED..UNCOUNTED + many).await;
        let took = begun.elapsed();
        // The mocked review names each one's node: the last one answers through the controller.
        clients.agent(NODE, QUIET).await;
        let _console = consoles(clients, 1..2).await;
        let kib = clients.resident_kib() - before;
        Cost { number: many.try_into().unwrap(), kib }.judge("agents", took, 8000, OF_8000_AGENTS);
    });
}
