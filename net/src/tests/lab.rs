//! A world, a host, a VM's namespace and a guest, all throw-away namespaces. The guest is a namespace whose
//! only NIC is a tap of its own; a thread carries frames between that and the VM's tap, as QEMU would.
//!
//! ```text
//!   world 198.51.100.1 ── host 198.51.100.2 ──(ours)── VM's namespace ──(ours: tap) frames ── guest eth0
//! ```

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::dhcp::{DhcpOptions, GuestService, serve};
use crate::kernel::{Kernel, Paths};
use crate::netns::NetNs;
use crate::plan::{Binding, NetPlan};
use crate::plumb::{PlumbedInterface, plumb_in};
use crate::sys;
use crate::uplink::{HostUplink, UplinkRequest, ensure_in};

pub(super) const MAC: &str = "02:00:00:aa:bb:01";
/// The world's address, as the host's neighbour.
pub(super) const WORLD: &str = "198.51.100.1";
/// The host's address in the world.
pub(super) const HOST: &str = "198.51.100.2";
pub(super) const WORLD6: &str = "2001:db8:1::1";
pub(super) const HOST6: &str = "2001:db8:1::2";

/// Until the kernel has given eth0 an address of its own and is sure that no other host has it.
pub(super) const UNTIL_LINK_LOCAL: &str = "for i in $(seq 3000); do case $(ip -6 addr show dev eth0 scope link) in \
    *tentative*) ;; *fe80*) exit 0 ;; esac; busybox usleep 20000; done; exit 1";

/// The parties before anything of ours exists.
pub(super) struct Lab {
    pub(super) world: NetNs,
    pub(super) host: NetNs,
    pub(super) vm: NetNs,
    pub(super) guest: NetNs,
}

/// A shell in a namespace; its output. Panics with its output if it fails.
pub(super) fn shell(namespace: &NetNs, script: &str) -> String {
    try_shell(namespace, script).unwrap_or_else(|output| panic!("`{script}`: {output}"))
}

/// The same, for what may fail.
pub(super) fn try_shell(namespace: &NetNs, script: &str) -> Result<String, String> {
    let run = || Command::new("sh").args(["-ec", script]).output().unwrap();
    let output = namespace.run(run).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr) + &text(&output.stdout)) }
}

impl Lab {
    pub(super) fn new() -> Self {
        let [world, host, vm, guest] = std::array::from_fn(|_| NetNs::create().unwrap());
        let pid = std::process::id();
        let far = world.as_fd().as_raw_fd();
        let pin = format!("/proc/{pid}/fd/{far}");
        shell(&host, &format!("ip link set lo up; ip link add eth0 type veth peer name host0 netns {pin}"));
        shell(
            &world,
            &format!(
                "ip link set lo up; ip addr add {WORLD}/24 dev host0; ip addr add {WORLD6}/64 dev host0 nodad; ip link set host0 up"
            ),
        );
        shell(
            &host,
            &format!(
                "ip addr add {HOST}/24 dev eth0; ip addr add {HOST6}/64 dev eth0 nodad; ip link set eth0 up; ip route add default via {WORLD}; ip route add default via {WORLD6}"
            ),
        );
        shell(
            &host,
            "for i in $(seq 3000); do ip -6 addr show dev eth0 scope link | grep -q fe80 && exit 0; busybox usleep 20000; done; exit 1",
        );
        Self { world, host, vm, guest }
    }

    pub(super) fn request(&self) -> UplinkRequest {
        UplinkRequest { id: "lab-vm".parse().unwrap(), uplink: "eth0".parse().unwrap(), avoid: Vec::new() }
    }

    /// The same, and gives the guest its NIC.
    pub(super) async fn start(&self, binding: Binding, options: DhcpOptions) -> Started {
        let mut started = self.plumb(binding, options).await;
        started.cable = started.interface.taps.pop().map(|tap| Cable::plug(&self.guest, tap));
        started
    }

    /// Joins the VM's namespace to the host, plumbs it and serves the holder of the tap.
    pub(super) async fn plumb(&self, binding: Binding, options: DhcpOptions) -> Started {
        let host = Kernel::enter(&self.host, Paths::default()).unwrap();
        let vm = Kernel::enter(&self.vm, Paths::default()).unwrap();
        let uplink = ensure_in(&host, &vm, &self.request()).await.unwrap();
        let plan = NetPlan {
            interface: "default".to_owned(),
            uplink: "eth0".parse().unwrap(),
            bridge: "k6t-eth0".parse().unwrap(),
            tap: "tap0".parse().unwrap(),
            mac: MAC.parse().unwrap(),
            mtu: None,
            queues: 1,
            binding,
        };
        let mut plumbed = plumb_in(&vm, &[plan]).await.unwrap();
        let mut interface = plumbed.interfaces.pop().unwrap();
        let service = GuestService { mac: MAC.parse().unwrap(), addresses: interface.guest.clone(), options };
        let sockets = std::mem::take(&mut interface.sockets);
        let served = tokio::spawn(async move {
            let ended = serve(sockets, &service).await;
            panic!("serving ended: {ended:?}");
        });
        Started { uplink, interface, served, cable: None }
    }
}

/// What runs.
pub(super) struct Started {
    pub(super) uplink: HostUplink,
    pub(super) interface: PlumbedInterface,
    pub(super) served: tokio::task::JoinHandle<()>,
    cable: Option<Cable>,
}

impl Started {
    pub(super) async fn stop(self) {
        self.served.abort();
        let _ = self.served.await;
        self.cable.into_iter().for_each(Cable::unplug);
    }
}

/// Carries frames between the VM's tap and the guest's NIC.
pub(super) struct Cable {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Cable {
    fn plug(guest: &NetNs, tap: OwnedFd) -> Self {
        sys::tap::offload_checksums(&tap).unwrap();
        let open = || sys::tap::open_queue("/dev/net/tun".as_ref(), &"eth0".parse().unwrap(), sys::tap::Queues::One);
        let nic = guest.run(open).unwrap().unwrap();
        shell(guest, &format!("ip link set lo up; ip link set eth0 address {MAC}; ip link set eth0 up"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut polled =
                    [PollFd::new(tap.as_fd(), PollFlags::POLLIN), PollFd::new(nic.as_fd(), PollFlags::POLLIN)];
                poll(&mut polled, PollTimeout::from(50u16)).unwrap();
                carry(&tap, &nic);
                carry(&nic, &tap);
            }
        });
        Self { stop, thread }
    }

    fn unplug(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Header and frame pass as they are: both taps have the same header.
fn carry(from: &OwnedFd, to: &OwnedFd) {
    let mut frame = [0; 70_000];
    while let Ok(length) = nix::unistd::read(from, &mut frame) {
        // A link that is down refuses frames; so does a full queue.
        let _ = nix::unistd::write(to, &frame[..length]);
    }
}

/// Runs a DHCP client in the guest. Its script notes everything the server sent and configures the NIC.
pub(super) fn dhcp_client(guest: &NetNs, directory: &Path, command: &str) -> String {
    let script = directory.join("script");
    let notes = directory.join("notes");
    let configure = format!(
        r#"#!/bin/sh
env | sort >> {notes}
[ -n "$new_ip_address" ] && ip addr replace $new_ip_address/$new_subnet_mask dev eth0
[ -n "$new_routers" ] && ip route replace default via $new_routers dev eth0
[ -n "$new_ip6_address" ] && ip addr replace $new_ip6_address/128 dev eth0 nodad
[ "$1" = bound ] && ip addr replace $ip/$mask dev eth0 && ip route replace default via $router dev eth0
exit 0
"#,
        notes = notes.display()
    );
    // Not with this process's own hands: while it is open for writing another test may fork, and as long as its child has not
    // executed anything the script cannot be executed (`ETXTBSY`).
    let script_text = configure.replace('\'', "'\\''");
    shell(guest, &format!("printf %s '{script_text}' > {0}; chmod +x {0}; : > {1}", script.display(), notes.display()));
    let command =
        command.replace("SCRIPT", &script.display().to_string()).replace("DIR", &directory.display().to_string());
    shell(guest, &command);
    let mut text = String::new();
    std::fs::File::open(notes).unwrap().read_to_string(&mut text).unwrap();
    text
}
