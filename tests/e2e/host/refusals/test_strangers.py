"""A guest and hosts beside it that send garbage to a running machine."""

import dataclasses
import json
import pathlib
import random
import socket
import time
from typing import Any

import pytest

from garboard_e2e.outcome import Failure
from garboard_e2e.places import EXAMPLES
from garboard_e2e.processes import status_of
from garboard_e2e.refusals import Bench

SOCKETS = [
    *("supervisor/control.sock", "init/launch.sock", "order/agent.sock", "supervisor/qmp.sock"),
    *("supervisor/vnc.sock", "supervisor/serial0.sock"),
]


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was seen of the machine after all the garbage, and of its end."""

    console: bytes
    supervisors: tuple[int, int]
    peak_mib: int
    row: dict[str, Any]
    qmp_status: str
    cause: str


@pytest.fixture(scope="module")
def seen(bench: Bench) -> Seen:
    arguments = "garboard.test=agent-flood,dhcp-garbage"
    text = (EXAMPLES / "vm-hello.yaml").read_text().replace("name: hello", "name: refused", 1)
    manifest = bench.file(text.replace("cryptomgr.notests", f"cryptomgr.notests {arguments}"))
    bench.run("run", "--detach", "--image", bench.image, manifest, seconds=180)
    machine = bench.home("default/refused")
    serial = machine / "supervisor/serial0.log"
    wait_for(serial, b"garboard-hello: agent-flood")
    supervisor = supervisor_of(bench)
    for name in SOCKETS:
        pour_garbage(machine / name)
    console = wait_for(serial, b"garboard-hello: dhcp-garbage ")
    supervisors, peak = (supervisor, supervisor_of(bench)), peak_mib(supervisor)
    row, status = bench.machines()[0], bench.json("qmp", "refused", "query-status")["status"]
    bench.run("stop", "refused", seconds=120)
    record = bench.recorded_runs("default/refused")[-1]
    cause = json.loads((record / "journal.json").read_text())["ended"]["cause"]["cause"]
    return Seen(console, supervisors, peak, row, status, cause)


def wait_for(serial: pathlib.Path, text: bytes, seconds: float = 180) -> bytes:
    end = time.monotonic() + seconds
    while True:
        shown = serial.read_bytes() if serial.exists() else b""
        if text in shown:
            return shown
        if time.monotonic() > end:
            raise Failure(f"the guest did not print {text!r}: {shown[-2000:].decode(errors='replace')}")
        time.sleep(0.1)


def supervisor_of(bench: Bench) -> int:
    process: int = bench.machines()[0]["status"]["supervisorPid"]
    return process


def peak_mib(process: int) -> int:
    return int(status_of(process)["VmHWM"].split()[0]) // 1024


def pour_garbage(path: pathlib.Path) -> None:
    """Lines, half lines and endless ones; a client that connects and sends nothing; many at once."""
    if not path.exists():
        return
    loads = [
        b"\n" * 1000,
        b'{"execute": "quit"',
        b"[" * 100000 + b"\n",
        b'{"hello": {"version": 99, "state": null}}\n',
        random.Random(1).randbytes(1 << 16),
        b"x" * (4 << 20),
    ]
    for load in loads:
        send(path, load)
    idle = [socket.socket(socket.AF_UNIX) for _ in range(50)]
    for stranger in idle:
        stranger.settimeout(1)
        try:
            stranger.connect(str(path))
        except OSError:
            break
    for stranger in idle:
        stranger.close()


def send(path: pathlib.Path, load: bytes) -> None:
    """What becomes of it does not matter."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(5)
        try:
            stranger.connect(str(path))
            stranger.sendall(load)
            stranger.shutdown(socket.SHUT_WR)
            stranger.recv(4096)
        except OSError:
            pass


def test_an_address_after_dhcp_garbage(seen: Seen) -> None:
    assert b"dhcp-garbage 10.0.2.2" in seen.console, seen.console[-2000:].decode(errors="replace")


def test_the_supervisor_lives(seen: Seen) -> None:
    before, after = seen.supervisors
    assert before == after, "it was started again"


def test_the_supervisor_stays_small(seen: Seen) -> None:
    assert seen.peak_mib < 48, f"{seen.peak_mib} MiB"


def test_the_machine_runs(seen: Seen) -> None:
    assert seen.row["state"] == "Running", seen.row


def test_qmp_is_there(seen: Seen) -> None:
    assert seen.qmp_status == "running"


def test_the_machine_stops_as_asked(seen: Seen) -> None:
    assert seen.cause == "stoppedGracefully"
