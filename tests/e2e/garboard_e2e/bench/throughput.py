"""Disk and network throughput inside the guest: garboard, then QEMU alone with the same argv in the same network.

Both run in the very same network namespace, over the same bridge and the same nftables rules: garboard's shim, which
would clear them away when its QEMU ends, is stopped (SIGSTOP) while QEMU runs alone, and goes on afterwards.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..other_host import OtherHost
from ..outcome import Failure
from ..terminal import Terminal
from . import figures
from .host import OUTSIDE, OUTSIDE_LINK, OUTSIDE_OURS, Garboard, Show, Tap, contains, output, wait_for
from .raw import Raw

DISK_MIB = 192
SECONDS = 2
# Typed into the guest's shell. The third disk is a tar archive with the program that measures.
# The guest's shell is there before its disks.
UNPACK = "until [ -b /dev/vdc ]; do sleep 0.1; done; tar -x -f /dev/vdc -C /tmp"
ADDRESS = "ip addr replace {guest}/24 dev eth0; ip link set eth0 up; ip route replace default via {gateway}"
PARTS = {
    "disk": [
        ("write", f"/tmp/load write /dev/vdb {DISK_MIB}"),
        ("read", f"/tmp/load read /dev/vdb {DISK_MIB}"),
        ("random-write", f"/tmp/load random-write /dev/vdb {SECONDS}"),
        ("random-read", f"/tmp/load random-read /dev/vdb {SECONDS}"),
    ],
    "net": [
        ("send", f"/tmp/load send {OUTSIDE} {{port}} {SECONDS}"),
        ("receive", f"/tmp/load receive {OUTSIDE} {{port}} {SECONDS}"),
    ],
}
NAMES = {
    "write": "sequential write, MiB/s",
    "read": "sequential read, MiB/s",
    "random-write": "4 KiB random writes, 1/s",
    "random-read": "4 KiB random reads, 1/s",
    "send": "guest → host, MiB/s",
    "receive": "host → guest, MiB/s",
}
# What was measured, by its name in the guest's output.
Figures = dict[str, float]


class Console(Protocol):
    """Where a person types."""

    def type(self, keys: bytes) -> None: ...


class Outside:
    """Another host with a server that takes and gives bytes, each on its own port."""

    def __init__(self, host: OtherHost) -> None:
        self.host = host
        self.ports = {"send": self.serve(take), "receive": self.serve(give)}

    def serve(self, exchange: Callable[[socket.socket], None]) -> int:
        listener = self.host.made(lambda: socket.create_server((OUTSIDE, 0)))

        def run() -> None:
            while True:
                connection, _ = listener.accept()
                # It fails when the guest has measured enough.
                with connection, contextlib.suppress(OSError):
                    exchange(connection)

        threading.Thread(target=run, daemon=True).start()
        port: int = listener.getsockname()[1]
        return port


def take(connection: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    while connection.recv_into(buffer):
        continue


def give(connection: socket.socket) -> None:
    block = bytes(1 << 20)
    while True:
        connection.sendall(block)


class RawConsole:
    """The serial port of a QEMU without another client; what the guest prints is in its log."""

    def __init__(self, path: pathlib.Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self) -> None:
        try:
            while self.socket.recv(65536):
                continue
        except OSError:
            return

    def type(self, keys: bytes) -> None:
        self.socket.sendall(keys)


class GarboardConsole:
    """`garboard console`, as a person would have it."""

    def __init__(self, garboard: Garboard) -> None:
        command = [garboard.program, "console", "bench/gbbench"]
        self.terminal = Terminal(command, garboard.environment | {"TERM": "dumb"})
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self) -> None:
        while self.terminal.read(time.monotonic() + 3600):
            continue

    def type(self, keys: bytes) -> None:
        self.terminal.type(keys)


def run_parts(console: Console, log: pathlib.Path, parts: Sequence[str], ports: Mapping[str, int]) -> Figures:
    """Types each command and reads its figure from the guest's console log."""
    found = {}
    wait_for("the guest's shell", lambda: contains(log, b"# "), pause=0.02)
    ask(console, log, UNPACK, rb"unpacked \d", "echo un''packed $?")
    for part in parts:
        for what, command in PARTS[part]:
            command = command.format(port=ports.get(what))
            line = ask(console, log, command, rf"bench: {what} ([\d.]+) ".encode())
            found[what] = float(line.group(1))
    return found


def ask(console: Console, log: pathlib.Path, command: str, pattern: bytes, then: str = "") -> re.Match[bytes]:
    before = len(log.read_bytes())
    console.type(f"{command}; {then}\n".encode() if then else f"{command}\n".encode())
    return wait_for(f"`{command}` in the guest", lambda: re.search(pattern, log.read_bytes()[before:]), pause=0.02)


def with_garboard(garboard: Garboard, manifest: str, parts: Sequence[str], outside: Outside) -> Figures:
    garboard.run(manifest)
    log = garboard.supervisor / "serial0.log"
    wait_for("the guest's address", lambda: contains(log, b"garboard-hello: address"), pause=0.02)
    return run_parts(GarboardConsole(garboard), log, parts, outside.ports)


def links(namespace: str, kind: str) -> list[str]:
    """The names of the links of one kind in a network namespace."""
    lines = output(["nsenter", f"--net={namespace}", "ip", "-o", "link", "show", "type", kind]).splitlines()
    return [line.split(":")[1].strip().split("@")[0] for line in lines]


def alone_in_its_place(garboard: Garboard, parts: Sequence[str], outside: Outside) -> Figures:
    """Ends garboard's QEMU, keeps its network, and runs QEMU alone in it."""
    raw, processes, namespace = Raw(garboard), garboard.processes(), str(garboard.machine / "netns")
    printed = (garboard.supervisor / "serial0.log").read_text(errors="replace")
    if not (found := re.search(r"garboard-hello: address ([\d.]+)", printed)):
        raise Failure(f"the guest has printed no address: {printed[-400:]}")
    guest = found.group(1)
    address = ADDRESS.format(guest=guest, gateway=guest.rsplit(".", 1)[0] + ".1")
    (bridge,), (tap,) = links(namespace, "bridge"), links(namespace, "tun")
    os.kill(processes["shim"], signal.SIGSTOP)
    try:
        os.kill(processes["qemu"], signal.SIGKILL)
        # Its tap goes first, the locks of its disks may last a moment longer.
        wait_for(
            "the end of garboard's QEMU", lambda: not pathlib.Path(f"/proc/{processes['qemu']}").exists(), pause=0.02
        )
        raw.start(Tap(tap, namespace))
        output(["nsenter", f"--net={namespace}", "ip", "link", "set", tap, "master", bridge, "up"])
        console, log = RawConsole(raw.directory / "serial0.sock"), raw.directory / "serial0.log"
        wait_for("the guest's shell", lambda: contains(log, b"# "), pause=0.02)
        ask(console, log, address, rb"addressed \d", "echo add''ressed $?")
        return run_parts(console, log, parts, outside.ports)
    finally:
        raw.stop()
        os.kill(processes["shim"], signal.SIGCONT)
        wait_for("the machine's end", lambda: not garboard.machine.exists(), pause=0.02)


def make_disks(garboard: Garboard, load: str) -> None:
    """What stands in for the claims of the manifest: a disk that is written already, and the program in an archive."""
    claims = garboard.directory / "state/claims/bench"
    for name in ["disk", "tools"]:
        (claims / name).mkdir(parents=True, exist_ok=True)
    with open(claims / "disk/disk.img", "wb") as disk:
        for _ in range(256):
            disk.write(os.urandom(1 << 20))
        os.fsync(disk.fileno())
    tools = claims / "tools/disk.img"
    output(["tar", "-c", "-f", tools, "-C", os.path.dirname(load), os.path.basename(load)])
    os.truncate(tools, -(-os.path.getsize(tools) // (1 << 20)) << 20)


@dataclasses.dataclass(frozen=True)
class Rounds:
    """What is measured, and how often; `load` is the program that measures in the guest."""

    manifest: str
    parts: Sequence[str]
    number: int
    load: str


def measure(garboard: Garboard, rounds: Rounds, show: Show) -> dict[str, list[Figures]]:
    """For each way a list of figures by name."""
    seen: dict[str, list[Figures]] = {"garboard run": [], "QEMU alone": []}
    make_disks(garboard, rounds.load)
    with OtherHost(OUTSIDE_LINK, OUTSIDE, OUTSIDE_OURS) as host:
        outside = Outside(host)
        for number in range(rounds.number):
            show(f"{' and '.join(rounds.parts)}: round {number + 1} of {rounds.number}")
            seen["garboard run"].append(with_garboard(garboard, rounds.manifest, rounds.parts, outside))
            seen["QEMU alone"].append(alone_in_its_place(garboard, rounds.parts, outside))
    return seen


def report(seen: dict[str, list[Figures]]) -> str:
    ours, alone = seen["garboard run"], seen["QEMU alone"]
    rows = []
    for what in ours[0]:
        values = [figures_of[what] for figures_of in ours]
        base = [figures_of[what] for figures_of in alone]
        rows.append([NAMES[what], figures.summary(base), figures.summary(values), figures.ratio(values, base)])
    return figures.table(["", "QEMU alone", "garboard", "garboard times QEMU alone"], rows)
