//! The supervisors of this node that take control connections, and the way to each: its newest connection to the agent.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use garboard_agent::line_socket::{LineError, LineSocket};
use garboard_net::GuestAddresses;
use garboard_protocol::agent::{AgentReply, AgentRequest};
use garboard_protocol::control::MOST_VIEWERS;
use garboard_tunnel::agent::{Opened, Refusal, Supervisors};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::identity::PodUid;

/// Connections that wait to be sent to one supervisor.
const WAITING: usize = 16;
/// Connections of one pod at once: a user's consoles take nothing from other pods.
const OF_A_POD: usize = 32;
// Those who look on leave room for sessions, USB devices and requests.
const _: () = assert!(OF_A_POD >= 3 * MOST_VIEWERS);
/// How long one may wait.
const WITHIN: Duration = Duration::from_secs(5);

type Reply = AgentReply<GuestAddresses>;

/// Those that are connected.
#[derive(Clone, Default)]
pub struct Connected(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    /// How many have connected.
    connected: watch::Sender<u64>,
    by_pod: HashMap<String, Supervisor>,
}

struct Supervisor {
    number: u64,
    wanted: mpsc::Sender<oneshot::Sender<UnixStream>>,
    places: Arc<Semaphore>,
}

impl Connected {
    /// Sends control connections to a supervisor, until it closes this one or opens another one for them.
    ///
    /// # Errors
    /// The connection failed, or something else was asked on it.
    pub async fn serve(&self, socket: &mut LineSocket, pod: &PodUid) -> Result<(), LineError> {
        let (entry, mut wanted) = self.enter(pod);
        socket.send(&Reply::Serving, &[]).await?;
        loop {
            let opened: oneshot::Sender<UnixStream> = tokio::select! {
                next = wanted.recv() => match next {
                    Some(next) => next,
                    // Another connection of this pod has taken its place.
                    None => break,
                },
                asked = socket.receive::<AgentRequest>() => return asked.map(drop),
            };
            let (ours, theirs) = UnixStream::pair()?;
            socket.send(&Reply::Connection, &[theirs.as_fd()]).await?;
            // Who asked may be gone; its end closes.
            let _ = opened.send(ours);
        }
        drop(entry);
        Ok(())
    }

    /// The pods of all, by their UIDs, with the number of the newest connection of each.
    pub(crate) fn all(&self) -> HashMap<String, u64> {
        self.lock().by_pod.iter().map(|(pod, supervisor)| (pod.clone(), supervisor.number)).collect()
    }

    /// Signals each that connects from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.lock().connected.subscribe()
    }

    fn enter(&self, pod: &PodUid) -> (Entry, mpsc::Receiver<oneshot::Sender<UnixStream>>) {
        let (wanted, waiting) = mpsc::channel(WAITING);
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        // Those of an earlier connection may be open still, and count.
        let places = table
            .by_pod
            .get(pod.as_str())
            .map_or_else(|| Arc::new(Semaphore::new(OF_A_POD)), |it| Arc::clone(&it.places));
        table.by_pod.insert(pod.to_string(), Supervisor { number, wanted, places });
        table.connected.send_replace(table.next);
        (Entry { connected: self.clone(), pod: pod.to_string(), number }, waiting)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisors for Connected {
    async fn open(&self, pod_uid: &str) -> Result<Opened, Refusal> {
        let (opened, stream) = oneshot::channel();
        let place = {
            let table = self.lock();
            let supervisor = table.by_pod.get(pod_uid).ok_or(Refusal::NoSupervisor)?;
            let place = Arc::clone(&supervisor.places).try_acquire_owned().map_err(|_| Refusal::Busy)?;
            supervisor.wanted.try_send(opened).map_err(|_| Refusal::Busy)?;
            place
        };
        match tokio::time::timeout(WITHIN, stream).await {
            Ok(Ok(socket)) => Ok(Opened { socket, place: Some(place) }),
            Ok(Err(_)) => Err(Refusal::NoSupervisor),
            Err(_) => Err(Refusal::Busy),
        }
    }
}

/// A supervisor's place in the table.
struct Entry {
    connected: Connected,
    pod: String,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.connected.lock();
        if table.by_pod.get(&self.pod).is_some_and(|newest| newest.number == self.number) {
            table.by_pod.remove(&self.pod);
        }
    }
}
