"""What goes down to a running machine through subresources.kubevirt.io: virtctl pauses and resets it, opens its console
and its screen, and forwards its ports."""

import contextlib
import http.client
import json
import pathlib
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.person import Tool
from garboard_e2e.cluster.virtctl import connected, is_paused
from garboard_e2e.cluster.virtctl import virtctl as client
from garboard_e2e.patience import PATIENCE
from garboard_e2e.processes import free_port
from garboard_e2e.rfb import Viewer
from garboard_e2e.terminal import DETACH

# Longer than any limit of a minute on the way, in seconds.
IDLE = 90


@pytest.fixture(scope="module")
def virtctl(kube: Kube) -> Tool:
    return client(kube)


@pytest.fixture(scope="module")
def running(kube: Kube) -> str:
    """A machine for the tests below."""
    kube.apply(machine("watched", "Always", tests="httpd,nc-echo,udp-echo"))
    kube.runs("watched")
    kube.has_shell("watched")
    return "watched"


def test_virtctl_pauses_and_unpauses_a_guest(kube: Kube, virtctl: Tool, running: str) -> None:
    virtctl.run("pause", "vmi", running)
    # Answered when QEMU has done it; the condition follows.
    kube.becomes("vmi", running, "Paused")
    kube.shows(running, "Paused")
    again = virtctl.call("pause", "vmi", running)
    assert again.returncode != 0 and "VMI is already paused" in again.stderr, again.stderr
    virtctl.run("unpause", "vmi", running)
    kube.ask_until("the guest runs on", lambda: not is_paused(kube, running))
    again = virtctl.call("unpause", "vmi", running)
    assert again.returncode != 0 and "VMI is not paused" in again.stderr, again.stderr
    assert kube.shell(running, "echo $((6*7))").strip() == "42"


def test_virtctl_resets_a_guest(kube: Kube, virtctl: Tool, running: str) -> None:
    uid = kube.runs(running)
    boots = kube.serial(running).count("garboard-hello: userspace")
    virtctl.run("reset", running)
    kube.prints(running, "garboard-hello: userspace", times=boots + 1)
    kube.has_shell(running)
    assert kube.runs(running) == uid


def test_virtctl_soft_reboots_a_guest_by_its_power_button(kube: Kube, virtctl: Tool, running: str) -> None:
    uid = kube.runs(running)
    boots = kube.serial(running).count("garboard-hello: userspace")
    virtctl.run("soft-reboot", running)
    kube.prints(running, "garboard-hello: userspace", times=boots + 1)
    kube.has_shell(running)
    assert kube.runs(running) == uid, "a soft reboot should keep its instance"
    assert "power button" in kube.serial(running)


def test_virtctl_takes_a_screenshot(virtctl: Tool, running: str, tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "screen.png"
    virtctl.run("vnc", "screenshot", running, "--file", str(picture))
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82"), content[:16]


def test_virtctl_asks_a_guest_without_an_agent(virtctl: Tool, running: str) -> None:
    for question in ("guestosinfo", "userlist", "fslist"):
        refused = virtctl.call(question, running)
        assert refused.returncode != 0 and "VMI does not have guest agent connected" in refused.stderr, refused.stderr


@pytest.fixture(scope="module")
def with_agent(kube: Kube) -> str:
    """A machine whose guest has an agent."""
    kube.apply(machine("asked-inside", "Always", tests="agent"))
    kube.runs("asked-inside")
    kube.becomes("vmi", "asked-inside", "AgentConnected")
    # It has few commands.
    kube.becomes("vmi", "asked-inside", "AgentVersionNotSupported")
    return "asked-inside"


def test_virtctl_asks_the_guest_agent(virtctl: Tool, with_agent: str) -> None:
    info = json.loads(virtctl.run("guestosinfo", with_agent))
    assert info["guestAgentVersion"] == "hello" and info["fsFreezeStatus"] == "thawed", info
    assert info["supportedCommands"] == [{"name": "guest-ping", "enabled": True}], info
    users = json.loads(virtctl.run("userlist", with_agent))["items"]
    assert [user["userName"] for user in users] == ["root"], users
    disks = json.loads(virtctl.run("fslist", with_agent))["items"]
    assert [(disk["mountPoint"], disk["fileSystemType"]) for disk in disks] == [("/", "ext4")], disks


def test_file_systems_are_frozen_and_thawed(kube: Kube, virtctl: Tool, with_agent: str) -> None:
    def put(what: str, body: str) -> None:
        path = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances/{with_agent}/{what}"
        kube.kubectl("replace", "--raw", path, "-f", "-", text=body, namespace=None)

    def is_frozen() -> bool:
        return bool(kube.get("vmi", with_agent).get("status", {}).get("fsFreezeStatus") == "frozen")

    put("freeze", '{"unfreezeTimeout": "5m0s"}')
    kube.ask_until("the status", is_frozen)
    # It answers few commands now, and is connected all the same.
    kube.becomes("vmi", with_agent, "AgentConnected")
    put("unfreeze", "{}")
    kube.ask_until("the status", lambda: not is_frozen())
    put("freeze", '{"unfreezeTimeout": "2s"}')
    kube.prints(with_agent, "agent thaw", times=2)
    virtctl.run("soft-reboot", with_agent)
    kube.prints(with_agent, "agent reboot")


def test_virtctl_opens_the_console(kube: Kube, virtctl: Tool, running: str) -> None:
    terminal = virtctl.terminal("console", running)
    terminal.expect("Successfully connected", PATIENCE)
    terminal.type(b"\r")
    terminal.type(b"echo product-$((6*7))\r")
    terminal.expect("product-42", PATIENCE)
    terminal.type(DETACH)
    terminal.expect_end(PATIENCE)


def test_the_next_console_ends_the_one_before_which_reads_why(kube: Kube, virtctl: Tool, running: str) -> None:
    first = virtctl.terminal("console", running)
    first.expect("Successfully connected", PATIENCE)
    second = virtctl.terminal("console", running)
    second.expect("Successfully connected", PATIENCE)
    first.expect("another client has opened this console", PATIENCE)
    assert first.end(PATIENCE) != 0
    second.type(b"\r")
    second.type(b"echo product-$((6*9))\r")
    second.expect("product-54", PATIENCE)
    second.type(DETACH)
    second.expect_end(PATIENCE)


@pytest.mark.long
def test_what_is_idle_stays_open(kube: Kube, virtctl: Tool, running: str) -> None:
    """A console and a connection to the guest, without a byte for longer than clients and proxies wait."""
    kube.prints(running, "garboard-hello: nc-echo")
    console = virtctl.terminal("console", running)
    console.expect("Successfully connected", PATIENCE)
    with forwarded(virtctl, f"vmi/{running}", "7") as port:
        connection = kube.ask_until("an answer of the guest", lambda: echoing(port))
        # What the console shows of its first connection.
        while console.read(time.monotonic() + 1):
            pass
        began = time.monotonic()
        shows = console.read(began + IDLE)
        # What has ended shows nothing either, at once.
        assert not shows and time.monotonic() >= began + IDLE - 1, console.screen()
        connection.sendall(b"still there?")
        assert connection.recv(64) == b"still there?"
        connection.close()
    console.type(b"\recho product-$((6*11))\r")
    console.expect("product-66", PATIENCE)
    console.type(DETACH)
    console.expect_end(PATIENCE)


def echoing(port: int) -> socket.socket | None:
    """A connection to a port of this host, once what is sent there comes back."""
    with contextlib.suppress(OSError):
        connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
        connection.sendall(b"anyone?")
        if connection.recv(64) == b"anyone?":
            return connection
        connection.close()
    return None


@contextlib.contextmanager
def screen(kube: Kube, virtctl: Tool, name: str) -> Iterator[Viewer]:
    """A viewer at the screen of a machine, through virtctl."""
    port = free_port()
    proxy = virtctl.begin("vnc", name, "--proxy-only", "--port", str(port))
    try:
        viewer = Viewer(kube.ask_until("virtctl listens", lambda: connected(port)), PATIENCE)
        yield viewer
        viewer.close()
    finally:
        proxy.terminate()
        proxy.wait()


def test_virtctl_shows_the_screen(kube: Kube, virtctl: Tool, running: str) -> None:
    with screen(kube, virtctl, running) as viewer:
        assert viewer.picture() >= viewer.width * viewer.height


def has_ended(viewer: Viewer) -> bool:
    """Whether nothing more comes, though nobody has left; it is waited for."""
    with contextlib.suppress(ConnectionError):
        return viewer.stream.read(1) == b""
    return True


def test_the_next_screen_ends_the_one_before(kube: Kube, virtctl: Tool, running: str) -> None:
    with screen(kube, virtctl, running) as first:
        assert first.picture() >= first.width * first.height
        with screen(kube, virtctl, running) as second:
            assert has_ended(first)
            assert second.picture() >= second.width * second.height


def test_a_screen_that_is_to_be_preserved_is_not_taken(kube: Kube, virtctl: Tool, running: str) -> None:
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances/{running}/vnc"

    def answer() -> str:
        """Of a request for a websocket, through the API server."""
        proxy_port = free_port()
        proxy = subprocess.Popen([kube.tool, "proxy", f"--port={proxy_port}"], env=kube.environment)
        try:
            kube.ask_until("kubectl proxy listens", lambda: connected(proxy_port)).close()
            headers = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
            headers.append("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
            options = [option for header in headers for option in ("-H", header)]
            url = f"http://127.0.0.1:{proxy_port}{path}?preserveSession=true"
            command = ["curl", "-s", "--http1.1", "-m", "5", "-w", "\n%{http_code}", *options, url]
            return subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
        finally:
            proxy.terminate()
            proxy.wait()

    with screen(kube, virtctl, running) as viewer:
        refused = answer()
        assert refused.endswith("\n503") and "Active VNC connection" in refused and "bad handshake" in refused, refused
        assert viewer.picture() >= viewer.width * viewer.height


# ---- ports of the guest


@contextlib.contextmanager
def forwarded(virtctl: Tool, target: str, port: str, **options: Any) -> Iterator[int]:
    """A port of this host that leads to a port of a guest."""
    local = free_port()
    protocol, _, remote = port.rpartition("/")
    mapping = f"{local}:{remote}" if not protocol else f"{protocol}/{local}:{remote}"
    forwarder = virtctl.begin("port-forward", target, mapping, **options)
    try:
        yield local
    finally:
        forwarder.terminate()
        forwarder.wait()


def page(port: int) -> str:
    """What is served at a port of this host; nothing while it is not."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    return ""


@pytest.mark.parametrize("kind", ["vmi", "vm"])
def test_virtctl_forwards_a_port_of_the_guest(kube: Kube, virtctl: Tool, running: str, kind: str) -> None:
    kube.prints(running, "garboard-hello: httpd")
    with forwarded(virtctl, f"{kind}/{running}", "80") as port:
        for _ in range(3):
            served = kube.ask_until("the guest's page", lambda: page(port))
            assert "garboard-hello" in served, served


def is_echoed(sender: socket.socket, datagram: bytes) -> bool:
    """Sends it, and waits a moment until it comes back."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        sender.send(datagram)
        while sender.recv(65536) != datagram:
            pass
        return True
    return False


def test_a_guest_answers_datagrams(kube: Kube, virtctl: Tool, running: str) -> None:
    """Each comes back as one, whatever its size. virtctl sends none that is longer than 1500 bytes."""
    kube.prints(running, "garboard-hello: udp-echo")
    with (
        forwarded(virtctl, f"vmi/{running}", "udp/7") as port,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.connect(("127.0.0.1", port))
        sender.settimeout(1)
        kube.ask_until("an answer of the guest", lambda: is_echoed(sender, b"anyone?"))
        sent = [b"x", bytes(range(256)) * 5, b"\0" * 7]
        for datagram in sent:
            sender.send(datagram)
        sender.settimeout(PATIENCE)
        # Answers to questions that were repeated may come late.
        received = [next_but(sender, b"anyone?") for _ in sent]
        assert received == sent, received


def next_but(sender: socket.socket, other: bytes) -> bytes:
    """The next datagram that is another one."""
    while (datagram := sender.recv(65536)) == other:
        pass
    return datagram


def test_a_datagram_reaches_the_guest_and_its_refusal_comes_back(
    virtctl: Tool, kube: Kube, running: str, tmp_path: pathlib.Path
) -> None:
    """Nothing in the guest listens at the port: its kernel says so, which ends the stream."""
    printed = tmp_path / "printed"
    with (
        printed.open("w") as file,
        forwarded(virtctl, f"vmi/{running}", "udp/9", stdout=file, stderr=file) as port,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):

        def is_refused() -> bool:
            with contextlib.suppress(OSError):
                sender.sendto(b"anyone?", ("127.0.0.1", port))
            return "refused" in printed.read_text()

        kube.ask_until("the refusal of the guest", is_refused)


def test_a_port_that_nothing_listens_at_is_reported(kube: Kube, virtctl: Tool, running: str) -> None:
    done = virtctl.call("port-forward", "--stdio=true", f"vmi/{running}", "81")
    assert done.returncode != 0 and "dialing VM" in done.stderr and "refused" in done.stderr, done.stderr


def test_a_port_of_a_paused_guest_is_not_forwarded(kube: Kube, virtctl: Tool, running: str) -> None:
    virtctl.run("pause", "vmi", running)
    kube.becomes("vmi", running, "Paused")
    done = virtctl.call("port-forward", "--stdio=true", f"vmi/{running}", "80")
    assert done.returncode != 0 and "VMI is paused" in done.stderr, done.stderr
    virtctl.run("unpause", "vmi", running)
    kube.ask_until("the guest runs on", lambda: not is_paused(kube, running))


def test_a_console_that_cannot_be_opened_is_a_status(kube: Kube, virtctl: Tool) -> None:
    kube.apply(machine("stopped", "Halted"))
    missing = virtctl.call("console", "stopped")
    assert missing.returncode != 0 and "not found" in missing.stderr, missing.stderr
    idle = virtctl.call("port-forward", "--stdio=true", "vm/stopped", "80")
    assert idle.returncode != 0 and "VMI is not started" in idle.stderr, idle.stderr


def test_a_machine_is_reached_again_when_its_agent_and_its_supervisor_were_replaced(
    kube: Kube, virtctl: Tool, running: str
) -> None:
    kube.kill(running, "garboard-launcher")
    virtctl.run("pause", "vmi", running)
    node = kube.pod(running)["spec"]["nodeName"]
    own = ["-l", "app.kubernetes.io/component=node", f"--field-selector=spec.nodeName={node}"]
    kube.kubectl("delete", "pod", *own, namespace=INSTALLED_IN)
    kube.ask_until("the guest runs on", lambda: virtctl.call("unpause", "vmi", running).returncode == 0)
    kube.ask_until("the guest runs on", lambda: not is_paused(kube, running))


# ---- who may be an agent


def upgraded(pod: Object, token: str | None) -> tuple[int, str]:
    """The answer of a controller to one who claims to be a node's agent."""
    headers = ["-H", "Connection: Upgrade", "-H", "Upgrade: garboard-tunnel/1"]
    headers += ["-H", f"Authorization: Bearer {token}"] if token else []
    url = f"https://{pod['status']['podIP']}:8445/v1/node"
    command = ["curl", "-sk", "--http1.1", "-m", "20", "-w", "\n%{http_code}", *headers, url]
    body, code = subprocess.run(command, capture_output=True, text=True).stdout.rsplit("\n", 1)
    return int(code), body


def test_only_an_agent_with_its_pods_token_is_connected(kube: Kube) -> None:
    def token(account: str, namespace: str, audience: str) -> str:
        return kube.kubectl("create", "token", account, f"--audience={audience}", namespace=namespace).strip()

    pod = kube.controllers()[0]
    ours, api = "garboard-controller", "https://kubernetes.default.svc"
    false = {
        "no token": (None, "a token is required"),
        "no token at all": ("x", "not valid"),
        "another account's": (token("default", NAMESPACE, ours), "not to the node agents' account"),
        "the agents' account, for the API server": (token("garboard-node", INSTALLED_IN, api), "not valid"),
        "the agents' account, of no pod": (token("garboard-node", INSTALLED_IN, ours), "not bound to a pod"),
    }
    for whose, (shown, reason) in false.items():
        code, body = upgraded(pod, shown)
        assert code == 401 and reason in body, f"{whose} is answered {code}: {body}"
