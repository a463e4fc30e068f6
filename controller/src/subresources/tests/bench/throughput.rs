//! Bytes per second, and how long a keystroke and a picture take: every way beside a direct socket, in turns.

use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio_tungstenite::tungstenite::Message;

use super::super::instance::NODE;
use super::machines::{FRAME, Machines, NEXT_FRAME, Printer};
use super::{Clients, PATIENCE, Websocket, count, in_processes};

/// How many MiB each way moves in a round, and how many rounds there are.
const MIB: &str = "GARBOARD_BENCH_MIB";
const ROUNDS: &str = "GARBOARD_BENCH_ROUNDS";
/// In a round.
const KEYSTROKES: usize = 200;
const KEY: &[u8] = b"k";

/// A client's end.
enum Client {
    Direct { socket: UnixStream, buffer: Vec<u8> },
    Through(Box<Websocket>),
}

impl Client {
    /// Over a socket to the machine, without anything between.
    fn direct(prints: usize) -> Self {
        let (socket, machine) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let _ = Printer::PLAIN.play(machine, prints).await;
        });
        Self::Direct { socket, buffer: vec![0; 64 * 1024] }
    }

    async fn send(&mut self, bytes: &'static [u8]) {
        match self {
            Self::Direct { socket, .. } => socket.write_all(bytes).await.unwrap(),
            Self::Through(websocket) => websocket.send(Message::binary(bytes)).await.unwrap(),
        }
    }

    /// How many bytes came.
    async fn receive(&mut self) -> usize {
        match self {
            Self::Direct { socket, buffer } => socket.read(buffer).await.unwrap(),
            Self::Through(websocket) => loop {
                if let Message::Binary(part) = websocket.next().await.unwrap().unwrap() {
                    return part.len();
                }
            },
        }
    }

    async fn receive_all(&mut self, bytes: usize) {
        let mut received = 0;
        while received < bytes {
            let count = tokio::time::timeout(PATIENCE, self.receive()).await.unwrap();
            assert!(count > 0, "the machine has ended");
            received += count;
        }
        assert_eq!(received, bytes, "what was printed arrives once");
    }

    /// How long the answer of so many bytes takes.
    async fn answer(&mut self, request: &'static [u8], bytes: usize) -> Duration {
        let begun = Instant::now();
        self.send(request).await;
        self.receive_all(bytes).await;
        begun.elapsed()
    }
}

/// A way from a client to a machine, and what was measured of it.
struct Way<'a> {
    name: &'a str,
    /// Of the stream; none: a direct socket.
    path: Option<&'a str>,
    /// Pictures that are asked for in a round.
    frames: usize,
    /// MiB per second of each round.
    rates: Vec<f64>,
    keystrokes: Vec<Duration>,
    pictures: Vec<Duration>,
}

impl<'a> Way<'a> {
    const fn new(name: &'a str, path: Option<&'a str>, frames: usize) -> Self {
        Self { name, path, frames, rates: Vec::new(), keystrokes: Vec::new(), pictures: Vec::new() }
    }

    /// A round.
    async fn measure(&mut self, clients: &Clients, user: usize, bytes: usize) {
        let mut client = match self.path {
            None => Client::direct(bytes),
            Some(path) => Client::Through(Box::new(clients.open(user, path).await)),
        };
        let begun = Instant::now();
        client.receive_all(bytes).await;
        let seconds = begun.elapsed().as_secs_f64();
        self.rates.push(f64::from(u32::try_from(bytes >> 10).unwrap()) / 1024.0 / seconds);
        for _ in 0..KEYSTROKES {
            self.keystrokes.push(client.answer(KEY, KEY.len()).await);
        }
        for _ in 0..self.frames {
            self.pictures.push(client.answer(NEXT_FRAME, FRAME).await);
        }
    }

    /// Pictures per second.
    fn frame_rate(&self) -> f64 {
        1.0 / within(&self.pictures, 50).as_secs_f64()
    }

    /// Prints a row. No goal is a test's; what is far from any use is a defect.
    fn judge(&self, direct: &Self) {
        let rate = median(self.rates.iter().copied());
        let ratio = median(self.rates.iter().zip(&direct.rates).map(|(rate, direct)| rate / direct));
        let (keystroke, late) = (within(&self.keystrokes, 50), within(&self.keystrokes, 99));
        let frames = if self.pictures.is_empty() {
            "– | –".to_owned()
        } else {
            format!("{:.1} | {:.3}", self.frame_rate(), self.frame_rate() / direct.frame_rate())
        };
        println!("| {} | {rate:.0} | {ratio:.3} | {keystroke:.1?} | {late:.1?} | {frames} |", self.name);
        assert!(rate > 0.5, "{}: {rate} MiB/s", self.name);
        assert!(keystroke < Duration::from_secs(1), "{}: {keystroke:?}", self.name);
        assert!(self.pictures.is_empty() || self.frame_rate() > 0.2, "{}: {frames}", self.name);
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// How long so many of a hundred take at most.
fn within(times: &[Duration], of_100: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() * of_100 / 100]
}

/// A port that prints so many bytes to each connection.
async fn guest(bytes: usize) -> u16 {
    let guest = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = guest.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((connection, _)) = guest.accept().await {
            connection.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let _ = Printer::PLAIN.play(connection, bytes).await;
            });
        }
    });
    port
}

#[test]
fn streams_are_measured_beside_a_direct_socket() {
    let test = concat!(module_path!(), "::streams_are_measured_beside_a_direct_socket");
    in_processes(test, async |clients| {
        let bytes = count(MIB, 4) << 20;
        let frames = (bytes / FRAME).max(1);
        clients.agent(NODE, Machines { prints: bytes }).await;
        let forward = format!("portforward/{}", guest(bytes).await);
        let mut ways = [
            Way::new("a socket, direct", None, frames),
            Way::new("console", Some("console"), 0),
            Way::new("screen", Some("vnc"), frames),
            Way::new("port-forward", Some(forward.as_str()), 0),
        ];
        for round in 0..count(ROUNDS, 1) {
            for (number, way) in ways.iter_mut().enumerate() {
                // A stream that has ended may be counted still.
                way.measure(clients, round * 4 + number, bytes).await;
            }
        }
        for way in &ways {
            way.judge(&ways[0]);
        }
    });
}
