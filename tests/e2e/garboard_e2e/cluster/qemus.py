"""The QEMU processes of a test cluster's nodes and the locks they hold, as the host sees them."""

import contextlib
import os
import pathlib
import re
import stat
import time
from collections.abc import Iterator
from typing import TypedDict

from .. import names as programs

# Byte of an image that QEMU locks while it may write (RAW_LOCK_PERM_BASE + the bit of BLK_PERM_WRITE).
WRITER = 101
POD_CGROUP = re.compile(r"/gbk-(?P<cluster>[a-z0-9]+)/(?P<node>node-\d+)/kubepods/(?:\w+/)?pod(?P<pod>[0-9a-f-]{36})")
LOCK = re.compile(r"lock:\s+\d+: OFDLCK\s+ADVISORY\s+\w+ +-?\d+ [0-9a-f]+:[0-9a-f]+:\d+ (\d+) (\d+|EOF)")


class Qemu(TypedDict):
    """One process: `machine` is NAMESPACE/NAME, `pod` the UID of its pod, `writes` what it has locked for writing."""

    id: str
    node: str
    pid: int
    pod: str
    machine: str
    writes: list[str]


class Qemus:
    """Looks at every process of this host again and again, and as little as possible at each."""

    def __init__(self, cluster: str) -> None:
        self.cluster, self.locked = cluster, 0.0
        self.others: set[str] = set()
        self.known: dict[str, Qemu] = {}

    def running(self) -> list[Qemu]:
        """Every QEMU of the cluster's pods, in the order of their names."""
        there = {entry for entry in os.listdir("/proc") if entry.isdigit()}
        self.others &= there
        found: dict[str, Qemu] = {}
        for entry in there - self.others:
            with contextlib.suppress(OSError):  # it went while it was looked at
                if process := self.look(pathlib.Path("/proc", entry)):
                    found[process["id"]] = process
        # Locks are many files to read: once a second, and whenever a QEMU has come or gone.
        if found.keys() != self.known.keys() or time.monotonic() > self.locked + 1:
            self.locked = time.monotonic()
            for process in found.values():
                with contextlib.suppress(OSError):
                    process["writes"] = sorted(set(disks(pathlib.Path("/proc", str(process["pid"])))))
        self.known = found
        return [found[name].copy() for name in sorted(found)]

    def look(self, process: pathlib.Path) -> Qemu | None:
        name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
        if not name.startswith(programs.QEMU):
            # PID 1 of a machine becomes QEMU in a child of the same name.
            if not name.startswith("garboard-"):
                self.others.add(process.name)
            return None
        fields = rest.split()
        if fields[0] in "ZX":
            return None
        for known in self.known.values():
            if known["id"].endswith(f":{process.name}:{fields[19]}"):
                return known
        place = POD_CGROUP.search((process / "cgroup").read_text())
        arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        guest = next((argument for argument in arguments if argument.startswith("guest=")), "")
        if not place or place["cluster"] != self.cluster or not guest:
            return None
        return {
            "id": f"{place['node']}:{process.name}:{fields[19]}",
            "node": place["node"],
            "pid": int(process.name),
            "pod": place["pod"],
            "machine": guest.removeprefix("guest=").split(",")[0].replace("_", "/", 1),
            "writes": [],
        }


def disks(process: pathlib.Path) -> Iterator[str]:
    """What it may write, by its locks: a file by device and inode, a block device by its number, because each container
    has a node of its own for it."""
    for info in (process / "fdinfo").iterdir():
        locks = LOCK.findall(info.read_text())
        if any(int(first) <= WRITER and (last == "EOF" or int(last) >= WRITER) for first, last in locks):
            about = (process / "fd" / info.name).stat()
            is_block = stat.S_ISBLK(about.st_mode)
            device = f"block {os.major(about.st_rdev)}:{os.minor(about.st_rdev)}"
            yield device if is_block else f"{about.st_dev}:{about.st_ino}"
