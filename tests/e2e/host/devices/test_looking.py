"""One machine and who looks at it: its screen, console and monitor."""

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from garboard_e2e.namespace import Namespace
from garboard_e2e.outcome import Failure, Skipped
from garboard_e2e.patience import PATIENCE
from garboard_e2e.processes import free_port
from garboard_e2e.rfb import Viewer
from garboard_e2e.terminal import DETACH, Terminal

NAMESPACE = "screen"
ADDRESS = r"garboard-hello: address \S+"


@pytest.fixture(scope="module")
def machine(namespace: Namespace, hello_image: str) -> Iterator[str]:
    name = namespace.id("hello")
    namespace.run("run", "--detach", namespace.example("vm-hello"), hello_image)
    namespace.wait_for_serial("hello", ADDRESS)
    yield name
    namespace.run("stop", name)


def look(sock: socket.socket) -> None:
    viewer = Viewer(sock, PATIENCE)
    pixels, size = viewer.picture(), f"{viewer.width}x{viewer.height}"
    assert viewer.width >= 320, f"the screen has {size}"
    assert pixels == viewer.width * viewer.height, f"{pixels} pixels of a screen of {size} came"
    assert "hello" in viewer.name, f"the screen should have the machine's name: {viewer.name!r}"
    viewer.close()


def screen_socket(namespace: Namespace) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(namespace.supervisor("hello") / "vnc.sock"))
    return sock


def test_two_viewers_one_after_the_other_see_the_screen_through_the_unix_socket(
    namespace: Namespace, machine: str
) -> None:
    path = namespace.supervisor("hello") / "vnc.sock"
    assert str(path) in namespace.run("vnc", machine), "garboard vnc should print where the socket is"
    for _ in range(2):
        look(screen_socket(namespace))


@contextlib.contextmanager
def background(namespace: Namespace, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs until Ctrl-C."""
    process = subprocess.Popen(
        namespace.argv(*arguments),
        env=namespace.environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell's background jobs, and so these tests among them, may be deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


def connect(namespace: Namespace, port: int) -> socket.socket:
    def attempt() -> socket.socket | None:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), PATIENCE)
        return None

    return namespace.wait(f"a server at port {port}", attempt)


def test_and_through_garboard_vnc_listen(namespace: Namespace, machine: str) -> None:
    port = free_port()
    with background(namespace, "vnc", machine, "--listen", f"127.0.0.1:{port}") as proxy:
        for _ in range(2):
            look(connect(namespace, port))
        # And one that hangs up at once: the proxy is for the next one.
        connect(namespace, port).close()
        look(connect(namespace, port))
        assert proxy.poll() is None, f"the proxy ended with {proxy.returncode}"


Consoles = tuple[Terminal, Terminal]


@pytest.fixture(scope="module")
def consoles(namespace: Namespace, machine: str) -> Iterator[Consoles]:
    """A console that types and one that looks on."""
    both = namespace.terminal("console", machine), namespace.terminal("console", "--view", machine)
    yield both
    for terminal in both:
        if terminal.code is None:
            terminal.detach(PATIENCE)


def test_a_console_begins_with_what_was_printed_before(consoles: Consoles) -> None:
    for terminal in consoles:
        terminal.expect(ADDRESS, PATIENCE)


def test_several_viewers_see_everything_one_types_another_takes_over(
    namespace: Namespace, machine: str, consoles: Consoles
) -> None:
    writer, viewer = consoles
    # Each text is typed in two pieces, so that what is typed is not taken for what is printed.
    writer.type(b"\necho the'' first\n")
    for terminal in (writer, viewer):
        terminal.expect("the first\r", PATIENCE)
    output = namespace.run("console", machine, code=4)
    assert "--take-over" in output, "a second writer should read of --take-over"
    third = namespace.terminal("console", "--take-over", machine)
    viewer.type(b"echo from'' a viewer\n")
    third.type(b"echo the'' third\n")
    for terminal in (writer, viewer, third):
        terminal.expect("the third\r", PATIENCE)
    writer.type(b"echo from'' the past\n")
    third.type(b"echo the'' last\n")
    for terminal in (writer, viewer, third):
        terminal.expect("the last\r", PATIENCE)
        assert b"from'' " not in terminal.shown, f"input of one that may not type arrived:\n{terminal.screen()}"
        terminal.detach(PATIENCE)


def test_when_the_writer_has_left_the_next_one_may_type(namespace: Namespace, machine: str) -> None:
    again = namespace.wait("the keyboard for the next one", lambda: next_writer(namespace, machine))
    again.type(DETACH)
    again.end(PATIENCE)


def next_writer(namespace: Namespace, machine: str) -> Terminal | None:
    """A console that types; None as long as the supervisor has not noticed that the writer before it has left."""
    console = namespace.terminal("console", machine)
    try:
        console.type(b"echo the'' next\n")
        console.expect("the next\r", PATIENCE)
    except (Failure, OSError):
        if b"--take-over" not in console.shown:
            raise
        console.end(PATIENCE)
        return None
    return console


def exactly(sock: socket.socket, count: int) -> bytes:
    content = sock.recv(count, socket.MSG_WAITALL)
    assert len(content) == count, f"the console was closed after {content!r}"
    return content


def looking_on(namespace: Namespace, place: str) -> tuple[dict[str, Any], socket.socket]:
    """A viewer that begins behind a place (protocol/src/position.rs), and what it begins with."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE)
    sock.connect(str(namespace.supervisor("hello") / "control.sock"))
    sock.sendall(json.dumps({"ask": "console", "access": "view", "resume": place}).encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        answer += exactly(sock, 1)
    return json.loads(answer), sock


def test_a_viewer_that_comes_again_loses_nothing_that_the_log_has(namespace: Namespace, machine: str) -> None:
    begun, sock = looking_on(namespace, "new")
    sock.close()
    writer = namespace.wait("the keyboard", lambda: next_writer(namespace, machine))
    # More than a supervisor keeps in memory. The guest is to expand it.
    loop = b"n=10000; while [ $n -lt 16000 ]; do n=$((n+1)); echo line-$n-of-what-memory-does-not-keep; done"
    writer.type(loop + b"; echo lines-$((6*9))\n")
    writer.expect("lines-54\r", 3 * PATIENCE)
    writer.type(DETACH)
    writer.end(PATIENCE)
    again, sock = looking_on(namespace, begun["position"])
    assert (again["position"], again["resumed"], again["missed"]) == (begun["position"], True, 0), again
    shown = b""
    while b"lines-54\r" not in shown:
        shown += exactly(sock, int.from_bytes(exactly(sock, 2), "big"))
    sock.close()
    lines = [int(line) for line in re.findall(rb"line-(\d+)-of-what-memory-does-not-keep\r", shown)]
    assert lines == list(range(10001, 16001)), f"{len(lines)} lines of {len(shown)} bytes: {shown[-200:]!r}"


def test_a_qmp_session_has_documentation_completion_history_and_is_read_only(
    namespace: Namespace, machine: str
) -> None:
    session = namespace.terminal("qmp", machine)
    session.expect(f"{machine}> ", PATIENCE)
    session.type(b"help query-block-jobs\r")
    session.expect(r"(?s)query-block-jobs.*?> ", PATIENCE)
    session.type(b"help nonsense\r")
    session.expect("QEMU has no `nonsense`", PATIENCE)
    session.type(b"query-kv\t\r")
    session.expect('"present": true', PATIENCE)
    session.type(b'device_del {"id": "x"}\r')
    session.expect("--allow-dangerous", PATIENCE)
    session.type(b"quit\r")
    session.expect_end(PATIENCE)
    session = namespace.terminal("qmp", machine)
    session.expect(f"{machine}> ", PATIENCE)
    # Up: quit, device_del, query-kvm.
    session.type(b"\x1b[A\x1b[A\x1b[A\r")
    # An end of input that is typed before there is a prompt is the terminal's, and lost.
    session.expect(rf'(?s)"present": true.*{machine}> ', PATIENCE)
    session.type(b"\x04")
    session.expect_end(PATIENCE)
    status = namespace.status("hello")
    assert status is not None and not status["taints"], "reading and being refused should not taint"


class QmpClient:
    """A client of the public socket, by socat."""

    def __init__(self, path: str) -> None:
        pipe = subprocess.PIPE
        command = ["socat", "-", f"UNIX-CONNECT:{path}"]
        self.process = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe)
        assert self.process.stdin and self.process.stdout
        self.requests, self.replies = self.process.stdin, self.process.stdout

    def read(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self.replies.readline())
        return line

    def ask(self, command: str) -> dict[str, Any]:
        self.requests.write(json.dumps({"execute": command, "id": command}) + "\n")
        self.requests.flush()
        while (reply := self.read()).get("id") != command:
            pass
        return reply


def test_qmp_sock_speaks_standard_qmp_with_socat_read_only(namespace: Namespace, machine: str) -> None:
    if not shutil.which("socat"):
        raise Skipped("there is no socat")
    client = QmpClient(f"{namespace.supervisor('hello')}/qmp.sock")
    assert "version" in client.read()["QMP"], "there was no QMP greeting"
    client.ask("qmp_capabilities")
    assert client.ask("query-status")["return"]["status"] == "running", "the guest should run"
    assert "error" in client.ask("system_reset"), "the public QMP socket should be read-only"
    client.requests.close()
    client.process.wait(PATIENCE)


def test_reset_starts_the_guest_again_screen_and_console_stay(namespace: Namespace, machine: str) -> None:
    before = len(re.findall(ADDRESS.encode(), namespace.console(machine)))
    assert before == 1, f"the guest has started {before} times"
    namespace.run("reset", machine)
    namespace.wait_for_serial("hello", ADDRESS, times=2)
    assert namespace.resets("hello") >= 1, "ps should count the reset"
    look(screen_socket(namespace))
