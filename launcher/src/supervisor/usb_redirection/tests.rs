use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// The sockets of a QEMU with these slots.
struct Played {
    room: tempfile::TempDir,
    listeners: Vec<UnixListener>,
    slots: Slots,
}

impl Played {
    fn with(numbers: Vec<u32>) -> Self {
        let room = tempfile::tempdir().unwrap();
        let listen = |&slot: &u32| listen_async(room.path(), &paths::usb_redirection_slot_socket(slot)).unwrap();
        let listeners = numbers.iter().map(listen).collect();
        let slots = Slots { directory: room.path().to_owned(), numbers, in_use: Arc::default() };
        Self { room, listeners, slots }
    }

    /// A client with the next slot, QEMU's end of it, and the relay between both.
    async fn client(&self, expected: u32) -> (UnixStream, UnixStream, JoinHandle<io::Result<()>>) {
        let slot = self.slots.take().await.unwrap();
        assert_eq!(slot.number(), expected);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let relay = tokio::spawn(slot.relay(theirs));
        let accepted = timeout(PATIENCE, self.listeners[usize::try_from(expected).unwrap()].accept()).await;
        (ours, accepted.unwrap().unwrap().0, relay)
    }
}

/// Numbers as they are sent.
fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// What either side says first: its version, and that it can all that there is.
fn greeting() -> Vec<u8> {
    [numbers(&[0, 68, 0]), vec![b'v'; 64], numbers(&[0xff])].concat()
}

async fn expect(stream: &mut UnixStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    timeout(PATIENCE, stream.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(read, bytes);
}

async fn expect_end(stream: &mut UnixStream) {
    // A connection whose bytes were not all read is reset.
    let read = timeout(PATIENCE, stream.read(&mut [0; 1])).await.expect("it ends");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

async fn ends(relay: JoinHandle<io::Result<()>>) {
    let _ = timeout(PATIENCE, relay).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn each_client_has_the_first_free_slot_and_one_more_is_refused() {
    let qemu = Played::with(vec![0, 1, 2, 3]);
    let mut clients = Vec::new();
    for slot in 0..4 {
        clients.push(qemu.client(slot).await);
    }
    assert_eq!(qemu.slots.take().await.unwrap_err(), ALL_IN_USE);
    let (client, _, relay) = clients.remove(1);
    drop(client);
    ends(relay).await;
    let again = qemu.client(1).await;
    assert_eq!(qemu.slots.take().await.unwrap_err(), ALL_IN_USE);
    drop((again, clients));
}

#[tokio::test]
async fn bytes_go_both_ways_until_one_side_hangs_up() {
    let qemu = Played::with(vec![0]);
    let (mut client, mut device, relay) = qemu.client(0).await;
    device.write_all(&greeting()).await.unwrap();
    expect(&mut client, &greeting()).await;
    device.write_all(b"reset").await.unwrap();
    expect(&mut client, b"reset").await;
    client.write_all(&greeting()).await.unwrap();
    // What was sent before it hung up arrives.
    drop(client);
    expect(&mut device, &greeting()).await;
    expect_end(&mut device).await;
    ends(relay).await;

    let (mut client, device, relay) = qemu.client(0).await;
    drop(device);
    expect_end(&mut client).await;
    ends(relay).await;
}

#[tokio::test]
async fn another_protocol_does_not_reach_qemu() {
    let qemu = Played::with(vec![0]);
    let (early, long) = (numbers(&[1, 64, 0]), numbers(&[0, 257, 0]));
    for sent in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), numbers(&[0, 63, 0]), early, long] {
        let (mut client, mut device, relay) = qemu.client(0).await;
        device.write_all(&greeting()).await.unwrap();
        client.write_all(&sent).await.unwrap();
        expect_end(&mut device).await;
        ends(relay).await;
    }
    drop(qemu.client(0).await);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_qemu_reads_nothing_keeps_no_slot() {
    let qemu = Played::with(vec![0]);
    let (mut client, mut stopped, relay) = qemu.client(0).await;
    stopped.write_all(&greeting()).await.unwrap();
    client.write_all(&greeting()).await.unwrap();
    // The head of a long transfer, and as much of it as goes.
    client.write_all(&numbers(&[100, 64 << 20, 0, 0])).await.unwrap();
    let flood = async { while client.write_all(&[0; 4096]).await.is_ok() {} };
    assert!(timeout(Duration::from_millis(300), flood).await.is_err(), "nothing is read any more");
    drop(client);
    ends(relay).await;
    // Nor one that nobody has greeted yet, because the guest is paused.
    let (mut client, _paused, relay) = qemu.client(0).await;
    client.write_all(&greeting()).await.unwrap();
    drop(client);
    ends(relay).await;
    drop(qemu.client(0).await);
}

#[tokio::test]
async fn a_slot_whose_socket_is_gone_is_not_lost() {
    let qemu = Played::with(vec![0]);
    let socket = qemu.room.path().join(paths::usb_redirection_slot_socket(0));
    let aside = qemu.room.path().join("aside");
    std::fs::rename(&socket, &aside).unwrap();
    assert_eq!(qemu.slots.take().await.unwrap_err(), UNREACHED);
    std::fs::rename(&aside, &socket).unwrap();
    assert_eq!(qemu.slots.take().await.unwrap().number(), 0);
}

#[tokio::test]
async fn a_client_waits_until_the_slots_are_known() {
    let (known, slots) = watch::channel(None);
    let waiting = tokio::spawn(take(slots.clone()));
    let qemu = Played::with(Vec::new());
    known.send_replace(Some(qemu.slots.clone()));
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap_err(), NO_SLOTS);
    drop(known);
    assert_eq!(take(slots).await.unwrap_err(), NO_SLOTS);
    let (never, slots) = watch::channel(None);
    drop(never);
    assert_eq!(take(slots).await.unwrap_err(), ENDED);
}

#[tokio::test]
async fn a_socket_on_a_bare_host_gives_each_client_a_slot_and_hangs_up_on_one_more() {
    let qemu = Played::with(vec![0]);
    listen(qemu.room.path(), qemu.slots.clone()).unwrap();
    let connect = || UnixStream::connect(qemu.room.path().join(paths::USB_REDIRECTION_SOCKET));
    let mut first = connect().await.unwrap();
    let (mut device, _) = timeout(PATIENCE, qemu.listeners[0].accept()).await.unwrap().unwrap();
    device.write_all(&greeting()).await.unwrap();
    expect(&mut first, &greeting()).await;
    let mut second = connect().await.unwrap();
    expect_end(&mut second).await;
}
