"""What a QEMU has in memory beside its guest's."""

import pathlib
import re


def anonymous(process, guest_mib):
    """(MiB of memory without a file, MiB of page tables), without guest memory, which is the one mapping of just its size,
    and without translated code, which alone can be written and executed and has a term of its own."""
    total, size, is_code = 0, 0, False
    for line in pathlib.Path(f"/proc/{process}/smaps").read_text().splitlines():
        if mapping := re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+)", line):
            is_code = mapping.group(1) == "rwxp"
        word, _, rest = line.partition(":")
        if word == "Size":
            size = int(rest.split()[0])
        elif word == "Anonymous" and size != guest_mib << 10 and not is_code:
            total += int(rest.split()[0])
    tables = re.search(r"VmPTE:\s*(\d+)", pathlib.Path(f"/proc/{process}/status").read_text())
    return total / 1024, int(tables.group(1)) / 1024


def kernel(process):
    """MiB that the kernel keeps for the process's control group; 0 where it does not count them apart (version 1 does)."""
    for line in pathlib.Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        usage = pathlib.Path(f"/sys/fs/cgroup/memory{path}/memory.kmem.usage_in_bytes")
        if controllers == "memory" and usage.exists():
            return int(usage.read_text()) / (1 << 20)
    return 0.0


def beside_guest(process, guest_mib):
    """(own, page tables, kernel), MiB."""
    return (*anonymous(process, guest_mib), kernel(process))
