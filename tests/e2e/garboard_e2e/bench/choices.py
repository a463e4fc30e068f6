"""What QEMU's choices cost that a plan makes for every machine: private or shared memory, who does a disk's I/O, how it
is submitted. QEMU alone, without garboard; prints markdown for docs/benchmarks.md.

  PYTHONPATH=tests/e2e python3 -B -m garboard_e2e.bench.choices [--qemu PROGRAM] [--rounds N] [--accel tcg|kvm]
  [SECTION…]

Needs root, musl-gcc and 6 GiB in the directory for temporary files. Sections:
  prefault   QEMU takes 2 GiB of memory at its start; how long, and how much of it is in large pages
  guest      the hello guest: until its shell, then its disk (O_DIRECT, one request at a time), and how long the monitor
  takes to answer meanwhile bench      `qemu-img bench` of the same file: ways to submit, with 1 and with 32 requests
  under way Rounds are interleaved: each does every way once, and the first one is not counted.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from ..guests import HELLO, layout
from ..outcome import Failure
from ..places import REPOSITORY
from . import figures
from .host import output, wait_for

PREFAULT_MIB = 2048
GUEST_MIB = 512
DISK_MIB = 512
SECONDS = 3
SUBMITTED = ("threads", "native", "io_uring")
# Typed into the guest's shell. The second disk is a tar archive with the program that measures.
UNPACK = "until [ -b /dev/vdb ]; do sleep 0.1; done; tar -x -f /dev/vdb -C /tmp; echo un''packed"
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
MEMORY = {
    "private": "memory-backend-ram,id=ram0,size={mib}M",
    "QEMU's memfd": "memory-backend-memfd,id=ram0,size={mib}M,share=on",
    "aligned memfd": "memory-backend-file,id=ram0,size={mib}M,share=on,align=2M,mem-path=/proc/self/fd/{fd}",
}


class Way(NamedTuple):
    """To have memory: the setting of this host that matters for it, which is put back afterwards."""

    name: str
    memory: str
    setting: str | None


def chosen(path: pathlib.Path) -> str:
    return found(r"\[(\S+)\]", path.read_text())


def found(pattern: str, text: str) -> str:
    """The first group."""
    if not (match := re.search(pattern, text)):
        raise Failure(f"{pattern} is not in {text!r}")
    return match.group(1)


def memory_ways() -> Iterator[Way]:
    """Shared memory with each setting."""
    yield Way("private", "private", None)
    for memory in ("QEMU's memfd", "aligned memfd"):
        for setting in ("never", "advise"):
            yield Way(f"{memory}; shmem_enabled={setting}", memory, setting)


def guest_memory(mib: int) -> int:
    """A memfd of that size, as the supervisor makes it."""
    memory = os.memfd_create("guest-memory")
    os.ftruncate(memory, mib << 20)
    return memory


class Qmp:
    def __init__(self, path: pathlib.Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        wait_for("QEMU's monitor", lambda: self.connect(path))
        self.lines = self.socket.makefile("rb")
        self.lines.readline()
        self.ask("qmp_capabilities")

    def connect(self, path: pathlib.Path) -> bool:
        try:
            self.socket.connect(str(path))
            return True
        except OSError:
            return False

    def ask(self, command: str) -> object:
        self.socket.sendall(json.dumps({"execute": command}).encode() + b"\n")
        while True:
            answer = json.loads(self.lines.readline())
            if "return" in answer:
                answered: object = answer["return"]
                return answered


def smaps(process: int) -> float:
    """MiB of large pages: of private memory, of shared memory."""
    text = pathlib.Path(f"/proc/{process}/smaps").read_text()

    def total(field: str) -> float:
        return sum(int(kib) for kib in re.findall(rf"{field}:\s*(\d+)", text)) / 1024

    return total("AnonHugePages") + total("ShmemPmdMapped")


def taken(arguments: argparse.Namespace, directory: pathlib.Path, way: Way) -> tuple[float, float]:
    """Seconds until QEMU answers, and MiB in large pages."""
    if way.setting:
        THP.write_text(way.setting)
    monitor = directory / "monitor"
    monitor.unlink(missing_ok=True)
    began, memfd = time.monotonic(), guest_memory(PREFAULT_MIB)
    memory = MEMORY[way.memory].format(mib=PREFAULT_MIB, fd=memfd) + ",prealloc=on"
    argv = [*qemu(arguments, PREFAULT_MIB, memory), "-qmp", f"unix:{monitor},server=on,wait=off"]
    with subprocess.Popen(argv, pass_fds=[memfd]) as process:
        os.close(memfd)
        try:
            qmp = Qmp(monitor)
            result = time.monotonic() - began, smaps(process.pid)
            qmp.ask("quit")
            return result
        finally:
            process.wait(60)


def qemu(arguments: argparse.Namespace, mib: int, memory: str) -> list[str]:
    """A QEMU that waits, with so much memory of a kind."""
    machine = [
        "-machine",
        "q35,memory-backend=ram0",
        "-accel",
        arguments.accel,
        "-nodefaults",
        "-S",
        "-display",
        "none",
    ]
    return [arguments.qemu, *machine, "-m", f"{mib}M", "-object", memory]


def prefault(arguments: argparse.Namespace, directory: pathlib.Path) -> None:
    seen: dict[str, list[tuple[float, float]]] = {}
    before = chosen(THP)
    try:
        for _ in range(arguments.rounds + 1):
            for way in memory_ways():
                seen.setdefault(way.name, []).append(taken(arguments, directory, way))
    finally:
        THP.write_text(before)
    rows = [
        (way, figures.summary([seconds for seconds, _ in each[1:]]), figures.summary([mib for _, mib in each[1:]]))
        for way, each in seen.items()
    ]
    print(f"\n{PREFAULT_MIB} MiB taken at the start, {arguments.accel}, n={arguments.rounds}\n")
    print(figures.table(["memory", "s until QMP answers", "MiB in large pages"], rows))


GUEST_WAYS = {
    "private; main loop; threads": ("private", "", "threads"),
    "memfd; main loop; threads": ("aligned memfd", "", "threads"),
    "memfd; main loop; native": ("aligned memfd", "", "native"),
    "memfd; iothread; threads": ("aligned memfd", ",iothread=io0", "threads"),
    "memfd; iothread; native": ("aligned memfd", ",iothread=io0", "native"),
    "memfd; iothread; io_uring": ("aligned memfd", ",iothread=io0", "io_uring"),
}
LOADS = {
    "write": f"write /dev/vda {DISK_MIB // 2}",
    "read": f"read /dev/vda {DISK_MIB // 2}",
    "random-write": f"random-write /dev/vda {SECONDS}",
    "random-read": f"random-read /dev/vda {SECONDS}",
}
NAMES = [
    "s to its shell",
    "write, MiB/s",
    "read, MiB/s",
    "4 KiB writes, 1/s",
    "4 KiB reads, 1/s",
    "monitor, ms (99 of 100)",
]


class Console:
    def __init__(self, path: pathlib.Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.seen = b""
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self) -> None:
        try:
            while more := self.socket.recv(65536):
                self.seen += more
        except OSError:
            return

    def find(self, pattern: str) -> re.Match[bytes]:
        return wait_for(pattern, lambda: re.search(pattern.encode(), self.seen))

    def ask(self, command: str, pattern: str) -> re.Match[bytes]:
        self.socket.sendall(command.encode() + b"\n")
        return self.find(pattern)


def file_of(image: pathlib.Path, name: str, directory: pathlib.Path) -> pathlib.Path:
    """A file of the image, which has one layer."""

    def blob(digest: str) -> pathlib.Path:
        return image / "blobs" / digest.replace(":", "/")

    index = json.loads((image / "index.json").read_text())
    for layer in json.loads(blob(index["manifests"][0]["digest"]).read_text())["layers"]:
        with tarfile.open(blob(layer["digest"])) as archive:
            for member in archive:
                if member.name.lstrip("./") == name and (content := archive.extractfile(member)):
                    out = directory / pathlib.Path(name).name
                    out.write_bytes(content.read())
                    return out
    raise Failure(f"{image} has no {name}")


def listen_latencies(qmp: Qmp, stop: threading.Event, latencies: list[float]) -> None:
    while not stop.is_set():
        began = time.monotonic()
        qmp.ask("query-status")
        latencies.append((time.monotonic() - began) * 1000)
        stop.wait(0.01)


def guest_argv(arguments: argparse.Namespace, directory: pathlib.Path, way: str, memfd: int) -> list[str]:
    memory, thread, aio = GUEST_WAYS[way]
    disk = f"file,node-name=f0,filename={directory / 'disk'},cache.direct=on,aio={aio}"
    tools = f"file,node-name=f1,filename={directory / 'load.tar'},read-only=on"
    return [
        *qemu(arguments, GUEST_MIB, MEMORY[memory].format(mib=GUEST_MIB, fd=memfd)),
        *("-cpu", "max", "-smp", "1"),
        *("-qmp", f"unix:{directory / 'monitor'},server=on,wait=off"),
        *("-serial", f"unix:{directory / 'serial'},server=on,wait=off"),
        *("-kernel", str(directory / "vmlinuz"), "-initrd", str(directory / "initrd")),
        *("-append", "console=ttyS0 quiet", "-object", "iothread,id=io0"),
        *("-blockdev", disk, "-blockdev", "raw,node-name=d0,file=f0", "-device", f"virtio-blk-pci,drive=d0{thread}"),
        *("-blockdev", tools, "-blockdev", "raw,node-name=d1,file=f1,read-only=on"),
        *("-device", "virtio-blk-pci,drive=d1"),
    ]


def run_guest(arguments: argparse.Namespace, directory: pathlib.Path, way: str) -> list[float]:
    monitor, serial = directory / "monitor", directory / "serial"
    for path in (monitor, serial):
        path.unlink(missing_ok=True)
    memfd = guest_memory(GUEST_MIB)
    with subprocess.Popen(guest_argv(arguments, directory, way, memfd), pass_fds=[memfd]) as process:
        os.close(memfd)
        try:
            qmp = Qmp(monitor)
            result = measured(qmp, Console(serial))
            qmp.ask("quit")
            return result
        finally:
            if process.poll() is None:
                process.kill()


def measured(qmp: Qmp, console: Console) -> list[float]:
    """The options of NAMES, of a guest that waits."""
    began = time.monotonic()
    qmp.ask("cont")
    console.find("# ")
    result = [time.monotonic() - began]
    console.ask(UNPACK, "unpacked")
    latencies: list[float] = []
    stop = threading.Event()
    asker = threading.Thread(target=listen_latencies, args=(qmp, stop, latencies))
    asker.start()
    for what, load in LOADS.items():
        result.append(float(console.ask(f"/tmp/load {load}", rf"bench: {what} ([\d.]+) ").group(1)))
    stop.set()
    asker.join()
    return [*result, statistics.quantiles(latencies, n=100)[98]]


def guest(arguments: argparse.Namespace, directory: pathlib.Path) -> None:
    image = layout(HELLO)
    for name in ("boot/vmlinuz", "boot/initrd"):
        file_of(image, name, directory)
    source = REPOSITORY / "tests/guests/bench/load.c"
    output(["musl-gcc", "-O2", "-static", "-o", directory / "load", source])
    with tarfile.open(directory / "load.tar", "w") as archive:
        archive.add(directory / "load", "load")
    seen: dict[str, list[list[float]]] = {way: [] for way in GUEST_WAYS}
    for _ in range(arguments.rounds + 1):
        for way, results in seen.items():
            results.append(run_guest(arguments, directory, way))
    rows = [
        (way, *(figures.summary([one[at] for one in results[1:]]) for at in range(len(NAMES))))
        for way, results in seen.items()
    ]
    print(f"\nthe hello guest, {arguments.accel}, one vCPU, a preallocated raw file, n={arguments.rounds}\n")
    print(figures.table(["way", *NAMES], rows))


class Requests(NamedTuple):
    """How many are under way, what they are, and how they are submitted."""

    depth: int
    what: str
    aio: str

    def thousands(self, disk: pathlib.Path) -> float:
        """Thousand requests a second."""
        number = 4000 * (1 if self.depth == 1 else 8)
        how = ["-f", "raw", "-t", "none", "-i", self.aio, "-d", str(self.depth), "-s", "4096", "-S", "65536"]
        write = ["-w"] if self.what == "writes" else []
        printed = output(["qemu-img", "bench", *how, "-c", str(number), *write, disk])
        return number / float(found(r"completed in ([\d.]+) seconds", printed)) / 1000


def bench(arguments: argparse.Namespace, directory: pathlib.Path) -> None:
    ways = itertools.product((1, 32), ("reads", "writes"), SUBMITTED)
    seen: dict[Requests, list[float]] = {Requests(*way): [] for way in ways}
    for _ in range(arguments.rounds + 1):
        for requests, results in seen.items():
            results.append(requests.thousands(directory / "disk"))
    rows = []
    for depth, what in itertools.product((1, 32), ("reads", "writes")):
        cells = (figures.summary(seen[Requests(depth, what, aio)][1:]) for aio in SUBMITTED)
        rows.append((f"{depth} under way, {what}", *cells))
    print(f"\n`qemu-img bench`, 4 KiB, thousand requests a second, n={arguments.rounds}\n")
    print(figures.table(["", *SUBMITTED], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qemu", default="/usr/bin/qemu-system-x86_64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--accel", default="tcg")
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    arguments = parser.parse_intermixed_args()
    sections = {"prefault": prefault, "guest": guest, "bench": bench}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        directory = pathlib.Path(made)
        output(["dd", "if=/dev/zero", f"of={directory / 'disk'}", "bs=1M", f"count={DISK_MIB}", "conv=fsync"])
        for name in arguments.sections or sections:
            sections[name](arguments, directory)


if __name__ == "__main__":
    try:
        main()
    except (Failure, subprocess.TimeoutExpired) as error:
        sys.exit(f"choices: {error}")
