"""QEMU alone: the argv of a plan that garboard executed, with equal descriptors opened by this program, and no other
process beside it.

What garboard opens, this opens in the same way: listening sockets, the log, a fresh overlay over the same base, the
same kernel files, a tap. What is missing is garboard: supervisor, PID 1, confinement.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import socket
import time
from typing import IO

from ..outcome import Failure
from .host import Document, Executed, Garboard, Instants, Shares, Tap, contains, empty_overlay, wait_for

# Descriptors wait above the plan's numbers until QEMU is executed.
PARKING = 1000
SOCKETS = {
    "monitorListener": "monitor.sock",
    "lastResortMonitorListener": "monitor-init.sock",
    "agentListener": "guest-agent.sock",
    "serialListener": "serial0.sock",
}


class Parked:
    """Descriptors that QEMU gets at its own numbers."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.actions: list[tuple[int, int, int]] = []

    def add(self, opened: int, *numbers: int) -> None:
        parked = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, PARKING)
        os.close(opened)
        self.descriptors.append(parked)
        self.actions += [(os.POSIX_SPAWN_DUP2, parked, number) for number in numbers]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class Raw:
    """One machine, many times: what a running garboard machine was made of."""

    def __init__(self, garboard: Garboard) -> None:
        self.plan, self.order, self.directory = garboard.plan(), garboard.order(), garboard.directory
        self.shares = Shares.of(garboard.processes()["qemu"])
        self.pid: int | None = None
        self.monitor: socket.socket | None = None
        self.group: pathlib.Path | None = None

    def open(self, purpose: Document, tap: Tap) -> int:
        """The descriptor for one purpose of the plan."""
        kind = purpose["kind"]
        if kind in SOCKETS:
            return self.listen(SOCKETS[kind])
        if kind == "serialLog":
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            return os.open(self.directory / "serial0.log", flags, 0o600)
        if kind == "diskLayer":
            return self.layer(purpose)
        if kind == "tap":
            return tap.opened()
        if kind == "vhostNet":
            return os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC)
        if kind in ("kernel", "initrd"):
            inside = self.plan["firmware"]["kernelBoot"][kind]
            return os.open(self.order["kernelFiles"][inside], os.O_RDONLY | os.O_CLOEXEC)
        raise Failure(f"the benchmark cannot open {purpose}")

    def layer(self, purpose: Document) -> int:
        volume = purpose["volume"]
        (disk,) = [disk for disk in self.plan["disks"] if disk["volume"] == volume]
        path = self.order["volumes"][volume]["path"]
        if disk["overlay"] and purpose["layer"] == "top":
            layer = empty_overlay(self.directory, os.path.getsize(path))
        else:
            mode = os.O_RDONLY if purpose["access"] == "readOnly" else os.O_RDWR
            layer = os.open(path, mode | os.O_CLOEXEC)
        if purpose["direct"]:
            fcntl.fcntl(layer, fcntl.F_SETFL, fcntl.fcntl(layer, fcntl.F_GETFL) | os.O_DIRECT)
        return layer

    def listen(self, name: str) -> int:
        path = self.directory / name
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(4)
            return os.dup(listener.fileno())

    def start(self, tap: Tap) -> Instants:
        """Executes QEMU, greets it, lets it run."""
        (self.directory / "serial0.log").unlink(missing_ok=True)
        parked = Parked()
        for descriptor in self.plan["descriptors"]:
            parked.add(self.open(descriptor["purpose"], tap), descriptor["number"])
        if memory := self.plan.get("guestMemory"):
            opened = os.memfd_create("guest-memory")
            os.ftruncate(opened, memory["bytes"])
            parked.add(opened, memory["descriptor"])
        log = self.directory / "qemu.log"
        parked.add(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), 1, 2)
        environment = dict(self.plan["environment"])
        began = time.monotonic()
        argv = self.plan["argv"]
        self.pid = os.posix_spawn(argv[0], argv, environment, file_actions=parked.actions)
        self.share_cpu(self.pid)
        parked.close()
        ready, running = self.let_run()
        return {"command": began, "exec": Executed.of(log).monotonic, "ready": ready, "cont": running}

    def let_run(self) -> tuple[float, float]:
        """When QEMU answers its first command, and when it has done `cont`; the monitor stays connected."""
        self.monitor = socket.socket(socket.AF_UNIX)
        try:
            self.monitor.connect(str(self.directory / "monitor.sock"))
        except ConnectionRefusedError as error:
            raise Failure(f"QEMU alone ended: {(self.directory / 'qemu.log').read_text()}") from error
        lines = self.monitor.makefile("rb")
        if "QMP" not in json.loads(lines.readline()):
            raise Failure("QEMU did not greet")
        return execute(self.monitor, lines, "qmp_capabilities"), execute(self.monitor, lines, "cont")

    def wait_for_marker(self, marker: bytes) -> float:
        wait_for(f"{marker!r} of raw QEMU", lambda: contains(self.directory / "serial0.log", marker))
        return time.monotonic()

    def stop(self) -> None:
        """Ends QEMU if it runs."""
        if self.pid is None:
            return
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = None
        if self.monitor:
            self.monitor.close()
            self.monitor = None
        if self.group:
            self.group.rmdir()
            with contextlib.suppress(OSError):  # a machine of garboard is in it
                self.group.parent.rmdir()
            self.group = None

    def share_cpu(self, process: int) -> None:
        """Puts QEMU beside garboard's cgroup, with the same share: a busy host slows both down alike."""
        if self.shares is None:
            return
        self.group = self.shares.parent / "bench_alone"
        # Garboard takes the parent away with its last machine.
        self.group.mkdir(parents=True, exist_ok=True)
        (self.group / self.shares.file).write_text(self.shares.value)
        (self.group / "cgroup.procs").write_text(str(process))


def execute(monitor: socket.socket, lines: IO[bytes], command: str) -> float:
    """When QEMU has answered."""
    monitor.sendall(json.dumps({"execute": command}).encode() + b"\n")
    while "return" not in (reply := json.loads(lines.readline())):
        if "error" in reply:
            raise Failure(f"QEMU refused {command}: {reply}")
    return time.monotonic()
