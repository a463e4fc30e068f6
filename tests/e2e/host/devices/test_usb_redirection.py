"""USB redirection (`clientPassthrough`): clients come to usbredir.sock. The USB device is played; QEMU, and the guest
that drives it, are real."""

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.guests import HELLO, HELLO_PC, image
from garboard_e2e.namespace import Namespace
from garboard_e2e.patience import PATIENCE
from garboard_e2e.processes import kill
from garboard_e2e.terminal import shell
from garboard_e2e.usbredir import Device, Socket, greeted, plugged

NAMESPACE = "usbredir"
SLOTS = 4


@pytest.fixture(scope="module")
def machine(namespace: Namespace, guest: Callable[[str], object]) -> Iterator[str]:
    guest(HELLO_PC)
    name = namespace.id("hello")
    slots = ("          rng: {}", "          rng: {}\n          clientPassthrough: {}")
    namespace.run("run", "--detach", namespace.example("vm-hello", (HELLO, HELLO_PC), slots), image(HELLO_PC))
    namespace.wait_for_serial("hello", "hello:/# ")
    yield name
    namespace.run("stop", name)


def client(namespace: Namespace) -> Socket:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(str(namespace.supervisor("hello") / "usbredir.sock"))
    return Socket(connected)


def next_client(namespace: Namespace) -> Socket:
    """A client that has got a slot; it may take the supervisor a moment to see that one is free."""

    def attempt() -> Socket | None:
        with contextlib.suppress(OSError):
            line = client(namespace)
            if not line.has_ended():
                return line
            line.close()
        return None

    return namespace.wait("a free slot", attempt)


def test_each_client_has_a_slot_and_one_more_is_refused(namespace: Namespace, machine: str) -> None:
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(contextlib.closing(client(namespace))) for _ in range(SLOTS)]
        for line in lines:
            greeted(line)
        with contextlib.closing(client(namespace)) as fifth:
            assert fifth.has_ended(), "there are four slots"
        lines[1].close()
        greeted(stack.enter_context(contextlib.closing(next_client(namespace))))
        with contextlib.closing(client(namespace)) as fifth:
            assert fifth.has_ended(), "all slots have their clients again"


def test_a_guest_sees_a_device_for_as_long_as_its_client_is_there(namespace: Namespace, machine: str) -> None:
    device = Device(0x1209, 0x0001, "played by garboard")
    terminal = namespace.terminal("console", machine)
    try:
        with plugged(device, next_client(namespace)):
            shell(terminal, f"until grep -qs '{device.name}' {device.seen_in}; do usleep 20000; done", PATIENCE)
            shell(terminal, "test $(cat /sys/bus/usb/devices/*/idVendor | grep -c 1209) = 1", PATIENCE)
        shell(terminal, f"while grep -qs '{device.name}' {device.seen_in}; do usleep 20000; done", PATIENCE)
    finally:
        if terminal.code is None:
            terminal.detach(PATIENCE)


def test_a_program_that_speaks_another_protocol_is_refused_and_the_guest_runs_on(
    namespace: Namespace, machine: str
) -> None:
    """QEMU itself would abort."""
    for _ in range(SLOTS + 1):
        with contextlib.closing(next_client(namespace)) as line:
            line.send(b"GET / HTTP/1.1\r\nHost: nowhere\r\n\r\n")
            while not line.has_ended():
                line.read(1)
    status = namespace.status("hello")
    assert status is not None and status["phase"] == "Running", status


def test_a_client_of_a_paused_guest_is_greeted_when_it_runs(namespace: Namespace, machine: str) -> None:
    namespace.run("pause", machine)
    with contextlib.closing(client(namespace)) as line:
        namespace.run("unpause", machine)
        greeted(line)


def test_a_machine_keeps_its_slots_under_the_next_supervisor(namespace: Namespace, machine: str) -> None:
    status = namespace.status("hello")
    assert status is not None
    before, uid = status["supervisorPid"], status["uid"]
    with contextlib.closing(client(namespace)) as line:
        greeted(line)
        kill([before])
        assert line.has_ended(), "a session ends with its supervisor"
    namespace.wait("the next supervisor", lambda: is_another(namespace, before))
    with contextlib.closing(next_client(namespace)) as line:
        greeted(line)
    assert (namespace.status("hello") or {})["uid"] == uid


def is_another(namespace: Namespace, before: int) -> bool:
    status = namespace.status("hello")
    return status is not None and status["supervisorPid"] != before
