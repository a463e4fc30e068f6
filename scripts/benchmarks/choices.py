"""What QEMU's choices cost that a plan makes for every machine: private or shared memory, who does a disk's I/O, how it is
submitted. QEMU alone, without garboard; prints markdown for docs/benchmarks.md.

  python3 -B scripts/benchmarks/choices.py HELLO-LAYOUT [--qemu PROGRAM] [--rounds N] [--accel tcg|kvm] [SECTION…]

Needs root, musl-gcc and 6 GiB in the directory for temporary files. Sections:
  prefault   QEMU takes 2 GiB of memory at its start; how long, and how much of it is in large pages
  guest      the hello guest: until its shell, then its disk (O_DIRECT, one request at a time), and how long the monitor takes to
             answer meanwhile
  bench      `qemu-img bench` of the same file: ways to submit, with 1 and with 32 requests under way
Rounds are interleaved: each does every way once, and the first one is not counted.
"""

import argparse
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

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts" / "benchmarks"))

import figures  # noqa: E402
from host import Failure, output, wait_for  # noqa: E402

PREFAULT_MIB = 2048
GUEST_MIB = 512
DISK_MIB = 512
SECONDS = 3
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
MEMORY = {
    "private": "memory-backend-ram,id=ram0,size={mib}M",
    "QEMU's memfd": "memory-backend-memfd,id=ram0,size={mib}M,share=on",
    "aligned memfd": "memory-backend-file,id=ram0,size={mib}M,share=on,align=2M,mem-path=/proc/self/fd/{fd}",
}


def chosen(path):
    return re.search(r"\[(\S+)\]", path.read_text()).group(1)


def memory_ways():
    """Ways to have memory: shared memory with each setting of this host that matters, which is put back afterwards."""
    yield "private", "private", None
    for memory in ("QEMU's memfd", "aligned memfd"):
        for setting in ("never", "advise"):
            yield f"{memory}; shmem_enabled={setting}", memory, setting


def guest_memory(mib):
    """A memfd of that size, as the supervisor makes it."""
    memory = os.memfd_create("guest-memory")
    os.ftruncate(memory, mib << 20)
    return memory


class Qmp:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        wait_for("QEMU's monitor", lambda: self.connect(path))
        self.lines = self.socket.makefile("rb")
        self.lines.readline()
        self.ask("qmp_capabilities")

    def connect(self, path):
        try:
            self.socket.connect(str(path))
            return True
        except OSError:
            return False

    def ask(self, command):
        self.socket.sendall(json.dumps({"execute": command}).encode() + b"\n")
        while True:
            answer = json.loads(self.lines.readline())
            if "return" in answer:
                return answer["return"]


def smaps(process):
    """MiB of large pages: of private memory, of shared memory."""
    text = pathlib.Path(f"/proc/{process}/smaps").read_text()
    total = lambda word: sum(int(kib) for kib in re.findall(rf"{word}:\s*(\d+)", text)) / 1024
    return total("AnonHugePages") + total("ShmemPmdMapped")


def prefault(arguments, directory):
    found = {}
    before = chosen(THP)
    try:
        for _ in range(arguments.rounds + 1):
            for way, memory, setting in memory_ways():
                if setting:
                    THP.write_text(setting)
                monitor = directory / "monitor"
                monitor.unlink(missing_ok=True)
                began, memfd = time.monotonic(), guest_memory(PREFAULT_MIB)
                with subprocess.Popen(
                    [arguments.qemu, "-machine", "q35,memory-backend=ram0", "-accel", arguments.accel, "-nodefaults", "-S",
                     "-display", "none", "-m", f"{PREFAULT_MIB}M", "-object",
                     MEMORY[memory].format(mib=PREFAULT_MIB, fd=memfd) + ",prealloc=on",
                     "-qmp", f"unix:{monitor},server=on,wait=off"], pass_fds=[memfd]
                ) as qemu:
                    os.close(memfd)
                    try:
                        qmp = Qmp(monitor)
                        found.setdefault(way, []).append((time.monotonic() - began, smaps(qemu.pid)))
                        qmp.ask("quit")
                    finally:
                        qemu.wait(60)
    finally:
        THP.write_text(before)
    rows = [(way, figures.summary([one[0] for one in seen[1:]]), figures.summary([one[1] for one in seen[1:]]))
            for way, seen in found.items()]
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
LOADS = [("write", f"write /dev/vda {DISK_MIB // 2}"), ("read", f"read /dev/vda {DISK_MIB // 2}"),
         ("random-write", f"random-write /dev/vda {SECONDS}"), ("random-read", f"random-read /dev/vda {SECONDS}")]
NAMES = ["s to its shell", "write, MiB/s", "read, MiB/s", "4 KiB writes, 1/s", "4 KiB reads, 1/s", "monitor, ms (99 of 100)"]


class Console:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.seen = b""
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self):
        try:
            while more := self.socket.recv(65536):
                self.seen += more
        except OSError:
            return

    def find(self, pattern):
        return wait_for(pattern, lambda: re.search(pattern.encode(), self.seen))

    def ask(self, command, pattern):
        self.socket.sendall(command.encode() + b"\n")
        return self.find(pattern)


def blob(layout, name, directory):
    """A file of the image, which has one layer."""
    manifest = layout / "index.json"
    read = lambda digest: (layout / "blobs" / digest.replace(":", "/"))
    index = json.loads(manifest.read_text())
    layers = json.loads(read(index["manifests"][0]["digest"]).read_text())["layers"]
    for layer in layers:
        with tarfile.open(read(layer["digest"])) as archive:
            for member in archive:
                if member.name.lstrip("./") == name:
                    out = directory / pathlib.Path(name).name
                    out.write_bytes(archive.extractfile(member).read())
                    return out
    raise Failure(f"{layout} has no {name}")


def listen_latencies(qmp, stop, latencies):
    while not stop.is_set():
        began = time.monotonic()
        qmp.ask("query-status")
        latencies.append((time.monotonic() - began) * 1000)
        stop.wait(0.01)


def run_guest(arguments, directory, way):
    memory, thread, aio = GUEST_WAYS[way]
    monitor, serial = directory / "monitor", directory / "serial"
    for path in (monitor, serial):
        path.unlink(missing_ok=True)
    memfd = guest_memory(GUEST_MIB)
    argv = [arguments.qemu, "-machine", "q35,memory-backend=ram0", "-accel", arguments.accel, "-cpu", "max", "-nodefaults", "-S",
            "-display", "none", "-m", f"{GUEST_MIB}M", "-smp", "1", "-object", MEMORY[memory].format(mib=GUEST_MIB, fd=memfd),
            "-qmp", f"unix:{monitor},server=on,wait=off", "-serial", f"unix:{serial},server=on,wait=off",
            "-kernel", str(directory / "vmlinuz"), "-initrd", str(directory / "initrd"), "-append", "console=ttyS0 quiet",
            "-object", "iothread,id=io0",
            "-blockdev", f"file,node-name=f0,filename={directory / 'disk'},cache.direct=on,aio={aio}",
            "-blockdev", "raw,node-name=d0,file=f0", "-device", f"virtio-blk-pci,drive=d0{thread}",
            "-blockdev", f"file,node-name=f1,filename={directory / 'load.tar'},read-only=on",
            "-blockdev", "raw,node-name=d1,file=f1,read-only=on", "-device", "virtio-blk-pci,drive=d1"]
    with subprocess.Popen(argv, pass_fds=[memfd]) as qemu:
        os.close(memfd)
        try:
            qmp = Qmp(monitor)
            console = Console(serial)
            began = time.monotonic()
            qmp.ask("cont")
            console.find("# ")
            result = [time.monotonic() - began]
            console.ask("until [ -b /dev/vdb ]; do sleep 0.1; done; tar -x -f /dev/vdb -C /tmp; echo un''packed", "unpacked")
            stop, latencies = threading.Event(), []
            asker = threading.Thread(target=listen_latencies, args=(qmp, stop, latencies))
            asker.start()
            for what, load in LOADS:
                result.append(float(console.ask(f"/tmp/load {load}", rf"bench: {what} ([\d.]+) ").group(1)))
            stop.set()
            asker.join()
            result.append(statistics.quantiles(latencies, n=100)[98])
            qmp.ask("quit")
            return result
        finally:
            if qemu.poll() is None:
                qemu.kill()


def guest(arguments, directory):
    for name in ("boot/vmlinuz", "boot/initrd"):
        blob(arguments.layout, name, directory)
    output(["musl-gcc", "-O2", "-static", "-o", str(directory / "load"), str(REPOSITORY / "tests/guests/bench/load.c")])
    with tarfile.open(directory / "load.tar", "w") as archive:
        archive.add(directory / "load", "load")
    found = {way: [] for way in GUEST_WAYS}
    for _ in range(arguments.rounds + 1):
        for way, seen in found.items():
            seen.append(run_guest(arguments, directory, way))
    rows = [(way, *(figures.summary([one[at] for one in seen[1:]]) for at in range(len(NAMES))))
            for way, seen in found.items()]
    print(f"\nthe hello guest, {arguments.accel}, one vCPU, a preallocated raw file, n={arguments.rounds}\n")
    print(figures.table(["way", *NAMES], rows))


def bench(arguments, directory):
    found = {}
    for _ in range(arguments.rounds + 1):
        for depth in (1, 32):
            for aio in ("threads", "native", "io_uring"):
                for write in (False, True):
                    command = ["qemu-img", "bench", "-f", "raw", "-t", "none", "-i", aio, "-d", str(depth), "-s", "4096", "-S",
                               "65536", "-c", str(4000 * (1 if depth == 1 else 8)), *(["-w"] if write else []),
                               str(directory / "disk")]
                    seconds = float(re.search(r"completed in ([\d.]+) seconds", output(command)).group(1))
                    key = (depth, "writes" if write else "reads", aio)
                    found.setdefault(key, []).append(int(command[command.index("-c") + 1]) / seconds / 1000)
    rows = [(f"{depth} under way, {what}", *(figures.summary(found[depth, what, aio][1:])
                                            for aio in ("threads", "native", "io_uring")))
            for depth in (1, 32) for what in ("reads", "writes")]
    print(f"\n`qemu-img bench`, 4 KiB, thousand requests a second, n={arguments.rounds}\n")
    print(figures.table(["", "threads", "native", "io_uring"], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", type=pathlib.Path)
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
