"""QEMU alone: the argv of a plan that garboard executed, with equal descriptors opened by this script, nobody beside it.

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

from host import Failure, contains, cpu_shares, empty_overlay, executed, open_tap, wait_for

# Descriptors wait above the plan's numbers until QEMU is executed.
PARKING = 1000
SOCKETS = {"monitorListener": "monitor.sock", "lastResortMonitorListener": "monitor-init.sock",
           "agentListener": "guest-agent.sock", "serialListener": "serial0.sock"}


class Raw:
    """One machine, many times: what a running garboard machine was made of."""

    def __init__(self, garboard, directory):
        self.plan, self.order = garboard.plan(), garboard.order()
        self.directory = pathlib.Path(directory)
        self.shares = cpu_shares(garboard.processes()["qemu"])
        self.pid, self.monitor, self.group = None, None, None

    def open(self, purpose, tap):
        """The descriptor for one purpose of the plan."""
        kind = purpose["kind"]
        if kind in SOCKETS:
            return self.listen(SOCKETS[kind])
        if kind == "serialLog":
            return os.open(self.directory / "serial0.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if kind == "diskLayer":
            return self.layer(purpose)
        if kind == "tap":
            return open_tap(*tap)
        if kind == "vhostNet":
            return os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC)
        if kind in ("kernel", "initrd"):
            inside = self.plan["firmware"]["kernelBoot"][kind]
            return os.open(self.order["kernelFiles"][inside], os.O_RDONLY | os.O_CLOEXEC)
        raise Failure(f"the benchmark does not know how to open {purpose}")

    def layer(self, purpose):
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

    def listen(self, name):
        path = self.directory / name
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(4)
            return os.dup(listener.fileno())

    def start(self, tap):
        """Executes QEMU, greets it, lets it run. `tap` is a link's name and the namespace it is in."""
        (self.directory / "serial0.log").unlink(missing_ok=True)
        actions, parked = [], []
        for descriptor in self.plan["descriptors"]:
            opened = self.open(descriptor["purpose"], tap)
            parked.append(fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, PARKING))
            os.close(opened)
            actions.append((os.POSIX_SPAWN_DUP2, parked[-1], descriptor["number"]))
        if memory := self.plan.get("guestMemory"):
            opened = os.memfd_create("guest-memory")
            os.ftruncate(opened, memory["bytes"])
            parked.append(fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, PARKING))
            os.close(opened)
            actions.append((os.POSIX_SPAWN_DUP2, parked[-1], memory["descriptor"]))
        opened = os.open(self.directory / "qemu.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        log = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, PARKING)
        os.close(opened)
        actions += [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        environment = dict(self.plan["environment"])
        began = time.monotonic()
        self.pid = os.posix_spawn(self.plan["argv"][0], self.plan["argv"], environment, file_actions=actions)
        self.share_cpu()
        for descriptor in [*parked, log]:
            os.close(descriptor)
        ready, running = self.let_run()
        return {"command": began, "exec": executed(self.directory / "qemu.log")[0], "ready": ready, "cont": running}

    def let_run(self):
        """When QEMU answers its first command, and when it has done `cont`; the monitor stays connected."""
        self.monitor = socket.socket(socket.AF_UNIX)
        try:
            self.monitor.connect(str(self.directory / "monitor.sock"))
        except ConnectionRefusedError as error:
            raise Failure(f"QEMU alone ended: {(self.directory / 'qemu.log').read_text()}") from error
        self.lines = self.monitor.makefile("rb")
        if "QMP" not in json.loads(self.lines.readline()):
            raise Failure("QEMU did not greet")
        answered = []
        for command in ["qmp_capabilities", "cont"]:
            self.monitor.sendall(json.dumps({"execute": command}).encode() + b"\n")
            while "return" not in (reply := json.loads(self.lines.readline())):
                if "error" in reply:
                    raise Failure(f"QEMU refused {command}: {reply}")
            answered.append(time.monotonic())
        return answered

    def wait_for_marker(self, marker):
        wait_for(f"{marker} of raw QEMU", lambda: contains(self.directory / "serial0.log", marker))
        return time.monotonic()

    def stop(self):
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

    def share_cpu(self):
        """Puts QEMU beside garboard's cgroup, with the same share: a busy host slows both down alike."""
        if self.shares is None:
            return
        parent, name, value = self.shares
        self.group = parent / "bench_alone"
        # Garboard takes the parent away with its last machine.
        self.group.mkdir(parents=True, exist_ok=True)
        (self.group / name).write_text(value)
        (self.group / "cgroup.procs").write_text(str(self.pid))
