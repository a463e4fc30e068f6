"""What a QEMU has in memory beside its guest's."""

import pathlib
import re
from typing import NamedTuple

from .names import MIB


class Beside(NamedTuple):
    """MiB of memory without a file, of page tables, and of what the kernel keeps for the process's control group."""

    own: float
    tables: float
    kernel: float


def anonymous(process: int, guest_mib: int) -> float:
    """MiB of memory without a file, without guest memory, which is the one mapping of just its size, and without
    translated code, which alone can be written and executed and has a term of its own."""
    total, size, is_code = 0, 0, False
    for line in pathlib.Path(f"/proc/{process}/smaps").read_text().splitlines():
        if mapping := re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+)", line):
            is_code = mapping.group(1) == "rwxp"
        key, _, rest = line.partition(":")
        if key == "Size":
            size = int(rest.split()[0])
        elif key == "Anonymous" and size != guest_mib << 10 and not is_code:
            total += int(rest.split()[0])
    return total / 1024


def tables(process: int) -> float:
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmPTE:\s*(\d+)", status)
    return int(found.group(1)) / 1024 if found else 0.0


def kernel(process: int) -> float:
    """MiB that the kernel keeps for the process's control group; 0 where it does not count them apart (version 1
    does)."""
    for line in pathlib.Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        usage = pathlib.Path(f"/sys/fs/cgroup/memory{path}/memory.kmem.usage_in_bytes")
        if controllers == "memory" and usage.exists():
            return int(usage.read_text()) / MIB
    return 0.0


def beside_guest(process: int, guest_mib: int) -> Beside:
    return Beside(anonymous(process, guest_mib), tables(process), kernel(process))
