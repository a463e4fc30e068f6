"""What the benchmarks do on the host: directories, waiting, garboard's command, a tap."""

import ctypes
import fcntl
import json
import os
import pathlib
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from ..outcome import Failure
from ..processes import command_lines

MACHINE = "gbbench"
NAMESPACE = "bench"
# The host that guests connect to, and this host towards it.
OUTSIDE, OUTSIDE_OURS = "198.51.100.9", "198.51.100.10"
OUTSIDE_LINK = "gb_bench"
PATIENCE = 180

TUNSETIFF = 0x400454CA
TAP_FLAGS = 0x0002 | 0x1000 | 0x4000  # IFF_TAP, IFF_NO_PI, IFF_VNET_HDR: as garboard opens its own
CLONE_NEWNET = 0x40000000

Found = TypeVar("Found")
Argument = str | os.PathLike[str]
# What garboard writes for itself and others, as JSON.
Document = dict[str, Any]
# When something was, seconds of the monotonic clock.
Instants = dict[str, float]
Show = Callable[[str], None]


def wait_for(
    what: str, look: Callable[[], Found | Literal[False] | None], seconds: float = PATIENCE, pause: float = 0.002
) -> Found:
    """The first true answer of `look`. Two milliseconds are a thousandth of what is measured with it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(pause)
    raise Failure(f"{what}: not within {seconds} s")


def contains(path: pathlib.Path, needle: bytes) -> bool:
    """Whether a file is there and holds the bytes."""
    try:
        return needle in path.read_bytes()
    except FileNotFoundError:
        return False


def output(command: Sequence[Argument], env: Mapping[str, str] | None = None) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env)
    if done.returncode != 0:
        shown = " ".join(map(str, command))
        raise Failure(f"`{shown}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Executed(NamedTuple):
    """When exec-clock ran: monotonic and real time, seconds."""

    monotonic: float
    real: float

    @classmethod
    def of(cls, log: pathlib.Path) -> "Executed":
        """From the log that QEMU's standard error leads to."""
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("exec-clock: "):
                monotonic, real = line.split()[1:3]
                return cls(float(monotonic), float(real))
        raise Failure(f"{log} has no line of exec-clock")


class Garboard:
    """The command, with directories of its own."""

    def __init__(self, program: str, image: str, directory: pathlib.Path, qemu: str) -> None:
        self.program, self.image, self.directory, self.qemu = program, image, directory, qemu
        places = {f"GARBOARD_{name}_DIR": f"{directory}/{name.lower()}" for name in ["RUNTIME", "STATE", "CACHE"]}
        self.environment = dict(os.environ) | places
        self.machine = self.directory / "runtime" / NAMESPACE / MACHINE
        self.supervisor, self.init = self.machine / "supervisor", self.machine / "init"

    def call(self, *arguments: str) -> str:
        return output([self.program, *arguments], env=self.environment)

    def begin(self, manifest: str) -> subprocess.Popen[bytes]:
        """`garboard run --detach`, under way."""
        options = ["--detach", "--accel", "tcg", "--qemu", self.qemu, "--image", self.image]
        command = [self.program, "run", *options, manifest]
        log = open(self.directory / "run.log", "wb")
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, manifest: str) -> None:
        """`garboard run --detach` until the guest runs."""
        if (code := self.begin(manifest).wait(PATIENCE)) != 0:
            raise Failure(f"garboard run ended with {code}: {(self.directory / 'run.log').read_text()}")

    def stop(self) -> None:
        # Its exit code is not the benchmark's business, the end is.
        self.stop_by_force()
        wait_for("the machine's end", lambda: not self.machine.exists(), pause=0.02)

    def stop_by_force(self) -> None:
        command = [self.program, "stop", "--force", f"{NAMESPACE}/{MACHINE}"]
        subprocess.run(command, env=self.environment, capture_output=True)

    def order(self) -> Document:
        order: Document = json.loads((self.machine / "launch-request.json").read_text())
        return order

    def plan(self) -> Document:
        plan: Document = json.loads((self.supervisor / "plan.json").read_text())
        return plan

    def processes(self) -> dict[str, int]:
        """The process IDs of supervisor, PID 1, shim and QEMU, by program."""
        found = {}
        for process, arguments in command_lines():
            line, program = " ".join(arguments), arguments[0].rsplit("/", 1)[-1]
            if str(self.directory) in line and program.startswith("garboard"):
                found["shim" if program == "garboard-shim" else program] = int(process.name)
            elif f"guest={NAMESPACE}_{MACHINE}" in line and program.startswith("qemu"):
                found["qemu"] = int(process.name)
        return found


class Tap(NamedTuple):
    """A link's name, and the network namespace it is in, as a path."""

    name: str
    namespace: str

    def opened(self) -> int:
        """A queue of it; made if it is not there."""
        opened: list[int] = []

        def enter_and_open() -> None:
            # setns(2) acts on this thread only, and the thread ends here.
            place = os.open(self.namespace, os.O_RDONLY | os.O_CLOEXEC)
            if ctypes.CDLL(None, use_errno=True).setns(place, CLONE_NEWNET) != 0:
                return
            os.close(place)
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", self.name.encode(), TAP_FLAGS))
            opened.append(tap)

        thread = threading.Thread(target=enter_and_open)
        thread.start()
        thread.join()
        if not opened:
            raise Failure(f"could not open the tap {self.name} in {self.namespace}")
        return opened[0]


class Namespace:
    """An empty network namespace for taps that lead nowhere, pinned at a file."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = f"{directory}/netns"
        pathlib.Path(self.path).touch()
        output(["unshare", f"--net={self.path}", "true"])

    def remove(self) -> None:
        output(["umount", self.path])


def empty_overlay(directory: pathlib.Path, virtual_bytes: int) -> int:
    """A fresh qcow2 without a name, as garboard makes it."""
    path = f"{directory}/overlay.qcow2"
    output(["qemu-img", "create", "-q", "-f", "qcow2", path, str(virtual_bytes)])
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    os.unlink(path)
    return descriptor


class Shares(NamedTuple):
    """The share of the CPU of a control group, of version 1 or 2: the group's parent, the file, the value."""

    parent: pathlib.Path
    file: str
    value: str

    @classmethod
    def of(cls, process: int) -> "Shares | None":
        """None where the process has none of its own."""
        for line in pathlib.Path(f"/proc/{process}/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if path == "/" or not (number == "0" or "cpu" in controllers.split(",")):
                continue
            for root, name in [("/sys/fs/cgroup", "cpu.weight"), ("/sys/fs/cgroup/cpu", "cpu.shares")]:
                file = pathlib.Path(root + path) / name
                if file.exists():
                    return cls(file.parent.parent, name, file.read_text().strip())
        return None
