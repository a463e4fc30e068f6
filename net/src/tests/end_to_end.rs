//! Real DHCP clients on real taps, through the real kernel to a world and back.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use super::lab::{HOST, HOST6, Lab, MAC, Started, UNTIL_LINK_LOCAL, WORLD, WORLD6, dhcp_client, shell, try_shell};
use super::snapshot;
use crate::dhcp::{DhcpOptions, PrivateOption};
use crate::kernel::{Kernel, Paths};
use crate::netns::NetNs;
use crate::plan::{Binding, Masquerade, Port, Protocol};
use crate::publish;
use crate::testing::{programs_or_skip, root_or_skip};
use crate::uplink::{Removed, remove_in};

// In the foreground, and ended once it has its lease.
const DHCLIENT: &str = "dhclient -d -1 -sf SCRIPT -lf DIR/leases -pf DIR/pid -cf /dev/null eth0 2>&1 & \
                        until grep -q ^reason=BOUND DIR/notes; do busybox usleep 20000; kill -0 $!; done; kill $!; wait $! || true";
const DHCLIENT6: &str = "dhclient -6 -d -1 -sf SCRIPT -lf DIR/leases6 -pf DIR/pid6 -cf /dev/null eth0 2>&1 & \
                         until grep -q ^reason=BOUND6 DIR/notes; do busybox usleep 20000; kill -0 $!; done; kill $!; wait $! || true";
const UDHCPC: &str = "busybox udhcpc -i eth0 -n -q -f -s SCRIPT -O ntpsrv -O search 2>&1";

fn runnable(test: &str) -> bool {
    root_or_skip(test) && programs_or_skip(test, &["ip", "nft", "dhclient", "busybox"])
}

fn options() -> DhcpOptions {
    DhcpOptions {
        hostname: Some("lab-guest".to_owned()),
        domain: Some("example.org".to_owned()),
        searches: vec!["one.example.org".to_owned(), "example.org".to_owned()],
        nameservers: vec!["198.51.100.53".parse().unwrap(), "2001:db8:1::53".parse().unwrap()],
        ntp_servers: vec!["198.51.100.123".parse().unwrap()],
        private: vec![PrivateOption { code: 240, value: "private".to_owned() }],
        ..Default::default()
    }
}

/// Answers each connection with the address it came from.
fn serve_peer_address(namespace: &NetNs, address: &str) {
    let listener = namespace.run(|| TcpListener::bind(address).unwrap()).unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let from = connection.peer_addr().unwrap().ip();
            let _ = write!(connection, "{from}");
        }
    });
}

/// What the other side sends; none if it does not answer, however busy the machine is.
fn ask(namespace: &NetNs, address: &str) -> Option<String> {
    answer_within(Duration::from_secs(60), namespace, address)
}

/// The same of one that is not to answer, and is not waited for as long.
fn expect_no_answer(namespace: &NetNs, address: &str) -> Option<String> {
    answer_within(Duration::from_secs(4), namespace, address)
}

fn answer_within(patience: Duration, namespace: &NetNs, address: &str) -> Option<String> {
    let address: SocketAddr = address.parse().unwrap();
    namespace
        .run(|| {
            let mut connection = TcpStream::connect_timeout(&address, patience).ok()?;
            connection.set_read_timeout(Some(patience)).unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).ok().filter(|length| *length > 0).map(|_| answer)
        })
        .unwrap()
}

/// Until the other side answers: on a busy machine a frame may be dropped, or come late.
fn ping(namespace: &NetNs, program: &str, address: &str) {
    let until = format!("for i in $(seq 12); do busybox {program} -c 1 -W 5 {address} && exit 0; done; exit 1");
    shell(namespace, &until);
}

/// The blocking parts of a test run beside the servers.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

struct Running {
    lab: Arc<Lab>,
    started: Started,
}

impl Running {
    async fn new(binding: Binding) -> Self {
        let lab = Arc::new(Lab::new());
        let started = lab.start(binding, options()).await;
        Self { lab, started }
    }

    async fn client(&self, directory: &Path, command: &'static str) -> String {
        let (lab, directory) = (self.lab.clone(), directory.to_owned());
        beside(move || dhcp_client(&lab.guest, &directory, command)).await
    }

    async fn on<T: Send + 'static>(&self, work: impl FnOnce(&Lab) -> T + Send + 'static) -> T {
        let lab = self.lab.clone();
        beside(move || work(&lab)).await
    }
}

#[tokio::test]
async fn a_masqueraded_guest_leases_reaches_the_world_and_is_reached() {
    if !runnable("a_masqueraded_guest_leases_reaches_the_world_and_is_reached") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let running = Running::new(Binding::Masquerade(Masquerade::default())).await;
    let printed = running.client(directory.path(), DHCLIENT).await;
    for expected in [
        "new_ip_address=10.0.2.2\n",
        "new_subnet_mask=255.255.255.0\n",
        "new_routers=10.0.2.1\n",
        "new_domain_name_servers=198.51.100.53\n",
        "new_domain_name=example.org\n",
        "new_domain_search=one.example.org. example.org.\n",
        "new_host_name=lab-guest\n",
        "new_interface_mtu=1500\n",
        "new_ntp_servers=198.51.100.123\n",
        "new_dhcp_lease_time=4294967295\n",
    ] {
        assert!(printed.contains(expected), "{expected:?} not in {printed}");
    }
    let guest4 = running.started.uplink.guest4.addr().to_string();
    running
        .on(move |lab| {
            serve_peer_address(&lab.world, "0.0.0.0:80");
            serve_peer_address(&lab.guest, "0.0.0.0:22");
            ping(&lab.guest, "ping", WORLD);
            assert_eq!(ask(&lab.guest, &format!("{WORLD}:80")).as_deref(), Some(HOST), "the world sees the host");
            assert!(ask(&lab.host, &format!("{guest4}:22")).is_some(), "the host reaches the guest");
            serve_peer_address(&lab.host, "0.0.0.0:8080");
            assert!(ask(&lab.world, &format!("{HOST}:8080")).is_some(), "the host serves others");
            assert_eq!(
                expect_no_answer(&lab.guest, &format!("{HOST}:8080")),
                None,
                "a guest reaches no service of its host"
            );
            shell(&lab.world, "ip address add 169.254.169.254/32 dev lo");
            shell(&lab.host, &format!("ip route add 169.254.169.254/32 via {WORLD}"));
            assert!(ask(&lab.host, "169.254.169.254:80").is_some(), "the host has metadata");
            assert_eq!(
                expect_no_answer(&lab.guest, "169.254.169.254:80"),
                None,
                "a guest reaches no metadata of its host"
            );
            serve_peer_address(&lab.world, "169.254.169.254:53");
            assert!(ask(&lab.guest, "169.254.169.254:53").is_some(), "where a cloud has its name service too");
            shell(&lab.world, "ip address add 168.63.129.16/32 dev lo");
            shell(&lab.host, &format!("ip route add 168.63.129.16/32 via {WORLD}"));
            assert!(ask(&lab.host, "168.63.129.16:80").is_some(), "the host has another cloud's");
            assert_eq!(expect_no_answer(&lab.guest, "168.63.129.16:80"), None, "a guest does not");
            let published = format!(
                "nft -f - <<'END'\ntable ip published {{ chain prerouting {{ type nat hook prerouting priority dstnat; \
                 ip daddr {HOST} tcp dport 5432 counter dnat to {WORLD}:80; }}; }}\nEND"
            );
            shell(&lab.host, &published);
            assert_eq!(
                expect_no_answer(&lab.guest, &format!("{HOST}:5432")),
                None,
                "what its host passes on is a service of its host"
            );
            let counted = shell(&lab.host, "nft list table ip published");
            assert!(
                counted.contains("counter packets") && !counted.contains("packets 0"),
                "it was passed on: {counted}"
            );
            assert_eq!(ask(&lab.vm, "127.0.0.1:22").as_deref(), Some("10.0.2.1"), "localhost leads to the guest");
            shell(&lab.world, &format!("ip route add {guest4} via {HOST}"));
            assert_eq!(
                expect_no_answer(&lab.world, &format!("{guest4}:22")),
                None,
                "the world reaches only what is published"
            );
        })
        .await;
    running.started.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_raw_packets_is_served_too() {
    if !runnable("a_client_that_reads_raw_packets_is_served_too") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let running = Running::new(Binding::Masquerade(Masquerade::default())).await;
    let printed = running.client(directory.path(), UDHCPC).await;
    for expected in ["ip=10.0.2.2\n", "router=10.0.2.1\n", "hostname=lab-guest\n", "ntpsrv=198.51.100.123\n"] {
        assert!(printed.contains(expected), "{expected:?} not in {printed}");
    }
    running.on(|lab| ping(&lab.guest, "ping", WORLD)).await;
    running.started.stop().await;
}

#[tokio::test]
async fn an_ipv6_guest_learns_its_gateway_and_leases_its_address() {
    if !runnable("an_ipv6_guest_learns_its_gateway_and_leases_its_address") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let running = Running::new(Binding::Masquerade(Masquerade::default())).await;
    running.on(|lab| shell(&lab.guest, UNTIL_LINK_LOCAL)).await;
    let printed = running.client(directory.path(), DHCLIENT6).await;
    for expected in
        ["new_ip6_address=fd10:0:2::2\n", "new_dhcp6_name_servers=2001:db8:1::53\n", "new_max_life=4294967295\n"]
    {
        assert!(printed.contains(expected), "{expected:?} not in {printed}");
    }
    running
        .on(|lab| {
            serve_peer_address(&lab.world, "[::]:80");
            serve_peer_address(&lab.guest, "[::]:22");
            let until_route = "for i in $(seq 3000); do ip -6 route show default | grep -q 'via fe80' && break; busybox usleep 20000; done; ip -6 route show default";
            let routes = shell(&lab.guest, until_route);
            assert!(routes.contains("proto ra"), "{routes}");
            assert!(shell(&lab.guest, "ip -6 route").contains("fd10:0:2::/120"), "the range is on the link");
            ping(&lab.guest, "ping6", WORLD6);
            assert_eq!(ask(&lab.guest, &format!("[{WORLD6}]:80")).as_deref(), Some(HOST6));
        })
        .await;
    let guest6 = running.started.uplink.guest6.unwrap().addr();
    running.on(move |lab| assert!(ask(&lab.host, &format!("[{guest6}]:22")).is_some(), "DNAT for IPv6")).await;
    running.started.stop().await;
}

#[tokio::test]
async fn a_published_port_is_reached_from_the_world_and_from_both_localhosts() {
    if !runnable("a_published_port_is_reached_from_the_world_and_from_both_localhosts") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let ports = vec![Port { protocol: Protocol::Tcp, port: 22.try_into().unwrap() }];
    let running = Running::new(Binding::Masquerade(Masquerade { ports, ..Masquerade::default() })).await;
    running.client(directory.path(), DHCLIENT).await;
    let guest4 = running.started.uplink.guest4.addr();
    let lab = running.lab.clone();
    // The relay is a process of the host: a thread with a runtime of its own takes its place.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let relay = std::thread::spawn(move || {
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let published = ["2222:22".parse().unwrap(), "2223:23".parse().unwrap()];
                let listeners = publish::listen(&published).unwrap();
                assert!(matches!(publish::listen(&published), Err(publish::PublishError::InUse { .. })));
                ready.send(()).unwrap();
                let relay = std::pin::pin!(publish::relay(listeners, guest4.into()));
                let _ = futures::future::select(relay, stopped).await;
            });
        };
        lab.host.run(work).unwrap();
    });
    running
        .on(move |lab| {
            is_ready.recv().unwrap();
            serve_peer_address(&lab.guest, "0.0.0.0:22");
            serve_peer_address(&lab.guest, "0.0.0.0:23");
            for (from, address) in [
                (&lab.world, format!("{HOST}:2222")),
                (&lab.world, format!("[{HOST6}]:2222")),
                (&lab.host, "127.0.0.1:2222".to_owned()),
                (&lab.host, "[::1]:2222".to_owned()),
            ] {
                assert!(ask(from, &address).is_some(), "{address}");
            }
            assert_eq!(expect_no_answer(&lab.host, "127.0.0.1:2223"), None, "port 23 is not listed by the interface");
        })
        .await;
    let _ = stop.send(());
    relay.join().unwrap();
    running.started.stop().await;
}

#[tokio::test]
async fn a_guest_reaches_nothing_of_its_namespace_and_uses_no_other_address() {
    if !runnable("a_guest_reaches_nothing_of_its_namespace_and_uses_no_other_address") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let running = Running::new(Binding::Masquerade(Masquerade::default())).await;
    running.client(directory.path(), DHCLIENT).await;
    let guest4 = running.started.uplink.guest4.addr().to_string();
    running
        .on(move |lab| {
            serve_peer_address(&lab.vm, "0.0.0.0:8080");
            for address in ["10.0.2.1:8080", &format!("{guest4}:8080")] {
                assert_eq!(expect_no_answer(&lab.guest, address), None, "{address}");
            }
            ping(&lab.guest, "ping", "10.0.2.1");
            shell(&lab.guest, "ip addr add 10.0.2.77/24 dev eth0");
            let forged = format!("busybox ping -c 1 -W 1 -I 10.0.2.77 {WORLD}");
            assert!(try_shell(&lab.guest, &forged).is_err(), "a forged source passed");
        })
        .await;
    running.started.stop().await;
}

#[tokio::test]
async fn a_bridged_guest_leases_the_namespaces_own_address() {
    if !runnable("a_bridged_guest_leases_the_namespaces_own_address") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let running = Running::new(Binding::Bridge).await;
    let printed = running.client(directory.path(), DHCLIENT).await;
    let (guest4, host4) = (running.started.uplink.guest4, running.started.uplink.host4);
    assert!(printed.contains(&format!("new_ip_address={}\n", guest4.addr())), "{printed}");
    assert!(printed.contains(&format!("new_routers={}\n", host4.addr())), "{printed}");
    assert!(running.started.interface.guest.ipv6.is_none());
    running
        .on(move |lab| {
            serve_peer_address(&lab.world, "0.0.0.0:80");
            serve_peer_address(&lab.guest, "0.0.0.0:22");
            assert_eq!(ask(&lab.guest, &format!("{WORLD}:80")).as_deref(), Some(HOST));
            let from_host = ask(&lab.host, &format!("{}:22", guest4.addr()));
            assert_eq!(from_host, Some(host4.addr().to_string()), "no translation in between");
        })
        .await;
    running.started.stop().await;
}

/// A QEMU without privilege that has nothing but the tap's descriptor boots from the network.
fn boot_from_network(tap: &std::os::fd::OwnedFd) -> std::process::Child {
    let mut qemu = std::process::Command::new("qemu-system-x86_64");
    let netdev = format!("tap,id=n,fd={}", tap.as_raw_fd());
    qemu.args(["-accel", "tcg", "-m", "64", "-nodefaults", "-nographic", "-serial", "stdio", "-boot", "n"]);
    qemu.args(["-netdev", &netdev, "-device", &format!("virtio-net-pci,netdev=n,mac={MAC}")]);
    qemu.uid(107).gid(107).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    crate::sys::process::keep(&mut qemu, tap);
    qemu.spawn().unwrap()
}

/// Reads until all of `expected` was printed; panics with the output if it ends first.
fn expect(mut output: impl Read, expected: &[&str]) {
    let (mut printed, mut chunk) = (String::new(), [0; 4096]);
    while !expected.iter().all(|text| printed.contains(text)) {
        let length = output.read(&mut chunk).unwrap();
        assert!(length > 0, "{expected:?} not in {printed}");
        printed.push_str(&String::from_utf8_lossy(&chunk[..length]));
    }
}

#[tokio::test]
async fn a_firmware_in_qemu_leases_and_learns_what_to_boot() {
    let test = "a_firmware_in_qemu_leases_and_learns_what_to_boot";
    let rom = "../lib/ipxe/qemu/efi-virtio.rom";
    if !runnable(test) || !programs_or_skip(test, &["qemu-system-x86_64", rom]) {
        return;
    }
    let lab = Lab::new();
    let boot = DhcpOptions {
        tftp_server_name: Some("10.0.2.1".to_owned()),
        boot_file_name: Some("garboard.pxe".to_owned()),
        ..options()
    };
    let mut started = lab.plumb(Binding::Masquerade(Masquerade::default()), boot).await;
    let mut qemu = boot_from_network(&started.interface.taps.pop().unwrap());
    let output = qemu.stdout.take().unwrap();
    let printed = beside(move || expect(output, &["10.0.2.2/255.255.255.0 gw 10.0.2.1", "garboard.pxe"]));
    let outcome = tokio::time::timeout(Duration::from_secs(300), printed).await;
    qemu.kill().unwrap();
    qemu.wait().unwrap();
    outcome.unwrap();
    started.stop().await;
}

#[tokio::test]
async fn after_a_vm_the_host_is_as_before() {
    if !runnable("after_a_vm_the_host_is_as_before") {
        return;
    }
    let lab = Lab::new();
    let everything = "ip link; ip addr; ip route; ip -6 route; nft list ruleset";
    // The kernel goes on with its own addresses for some seconds.
    shell(&lab.host, UNTIL_LINK_LOCAL);
    let before = shell(&lab.host, everything);
    let host = Kernel::enter(&lab.host, Paths::default()).unwrap();
    let seen = snapshot(&host, &[]).await;
    let started = lab.start(Binding::Masquerade(Masquerade::default()), options()).await;
    assert_ne!(shell(&lab.host, "nft list ruleset"), "");
    started.stop().await;
    let id = lab.request().id;
    assert_eq!(remove_in(&host, &id).await.unwrap(), Removed::Removed);
    assert_eq!(remove_in(&host, &id).await.unwrap(), Removed::AlreadyAbsent);
    assert_eq!(shell(&lab.host, everything), before);
    assert_eq!(snapshot(&host, &[]).await, seen);
}
