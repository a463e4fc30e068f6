"""What the benchmarks do on the host: directories, waiting, garboard's command, a tap."""

import ctypes
import fcntl
import json
import os
import pathlib
import shutil
import struct
import subprocess
import threading
import time

MACHINE = "gbbench"
NAMESPACE = "bench"
# Reserved for documentation (RFC 5737), so it is nobody's: the address of the host's end for guests.
OUTSIDE = "198.51.100.9"
OUTSIDE_LINK = "gb_bench"
PATIENCE = 180

TUNSETIFF = 0x400454CA
TAP_FLAGS = 0x0002 | 0x1000 | 0x4000  # IFF_TAP, IFF_NO_PI, IFF_VNET_HDR: as garboard opens its own
CLONE_NEWNET = 0x40000000


class Failure(Exception):
    """What makes the figures worthless."""


def wait_for(what, look, seconds=PATIENCE, pause=0.002):
    """The first true answer of `look`. Two milliseconds are a thousandth of what is measured with it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(pause)
    raise Failure(f"{what}: not within {seconds} s")


def contains(path, needle):
    """Whether a file is there and holds the bytes."""
    try:
        return needle in path.read_bytes()
    except FileNotFoundError:
        return False


def output(command, **options):
    """What a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **options)
    if done.returncode != 0:
        raise Failure(f"`{' '.join(map(str, command))}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def executed(log):
    """When exec-clock ran, from the log that QEMU's standard error leads to: monotonic and real time, seconds."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("exec-clock: "):
            monotonic, real = line.split()[1:3]
            return float(monotonic), float(real)
    raise Failure(f"{log} has no line of exec-clock")


class Garboard:
    """The command, with directories of its own."""

    def __init__(self, program, image, directory, qemu):
        self.program, self.image, self.directory, self.qemu = program, image, pathlib.Path(directory), qemu
        self.environment = os.environ | {f"GARBOARD_{name}_DIR": f"{directory}/{name.lower()}"
                                         for name in ["RUNTIME", "STATE", "CACHE"]}
        self.machine = self.directory / "runtime" / NAMESPACE / MACHINE
        self.supervisor, self.init = self.machine / "supervisor", self.machine / "init"

    def call(self, *arguments):
        return output([self.program, *arguments], env=self.environment)

    def begin(self, manifest):
        """`garboard run --detach`, under way."""
        command = [self.program, "run", "--detach", "--accel", "tcg", "--qemu", self.qemu, "--image", self.image, manifest]
        log = open(self.directory / "run.log", "wb")
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, manifest):
        """`garboard run --detach` until the guest runs."""
        if (code := self.begin(manifest).wait(PATIENCE)) != 0:
            raise Failure(f"garboard run ended with {code}: {(self.directory / 'run.log').read_text()}")

    def stop(self):
        # Its exit code is not the benchmark's business, the end is.
        subprocess.run([self.program, "stop", "--force", f"{NAMESPACE}/{MACHINE}"], env=self.environment, capture_output=True)
        wait_for("the machine's end", lambda: not self.machine.exists(), pause=0.02)

    def order(self):
        return json.loads((self.machine / "launch-request.json").read_text())

    def plan(self):
        return json.loads((self.supervisor / "plan.json").read_text())

    def processes(self):
        """The process IDs of supervisor, PID 1, shim and QEMU, by program."""
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            line = b" ".join(words).decode(errors="replace")
            program = words[0].decode(errors="replace").rsplit("/", 1)[-1]
            if str(self.directory) in line and program.startswith("garboard"):
                found["shim" if program == "garboard-shim" else program] = int(process.name)
            elif f"guest={NAMESPACE}_{MACHINE}" in line and program.startswith("qemu"):
                found["qemu"] = int(process.name)
        return found


def open_tap(name, namespace):
    """A queue of the tap `name` in a network namespace given as a path; made if it is not there."""
    opened = []

    def enter_and_open():
        # setns(2) acts on this thread only, and the thread ends here.
        place = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        if ctypes.CDLL(None, use_errno=True).setns(place, CLONE_NEWNET) != 0:
            return
        os.close(place)
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP_FLAGS))
        opened.append(tap)

    thread = threading.Thread(target=enter_and_open)
    thread.start()
    thread.join()
    if not opened:
        raise Failure(f"could not open the tap {name} in {namespace}")
    return opened[0]


class Namespace:
    """An empty network namespace for taps that lead nowhere, pinned at a file."""

    def __init__(self, directory):
        self.path = f"{directory}/netns"
        pathlib.Path(self.path).touch()
        output(["unshare", f"--net={self.path}", "true"])

    def remove(self):
        output(["umount", self.path])


def empty_overlay(directory, virtual_bytes):
    """A fresh qcow2 without a name, as garboard makes it."""
    path = f"{directory}/overlay.qcow2"
    output(["qemu-img", "create", "-q", "-f", "qcow2", path, str(virtual_bytes)])
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    os.unlink(path)
    return descriptor


def cpu_shares(process):
    """The cgroup v1 or v2 share of a process, as (its cgroup's parent, file, value); None where it has none of its own."""
    for line in pathlib.Path(f"/proc/{process}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if path == "/" or not (number == "0" or "cpu" in controllers.split(",")):
            continue
        for root, name in [("/sys/fs/cgroup", "cpu.weight"), ("/sys/fs/cgroup/cpu", "cpu.shares")]:
            file = pathlib.Path(root + path) / name
            if file.exists():
                return file.parent.parent, name, file.read_text().strip()
    return None


def remove_tree(path):
    shutil.rmtree(path, ignore_errors=True)
