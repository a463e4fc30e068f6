"""Everything on this host that a machine could leave behind, and what others may see of what it keeps."""

import os
import pathlib
import re
import stat
import subprocess
import time
from collections.abc import Iterator

from .outcome import Failure

# User IDs of machines, where they are all mapped (cli/src/identity.rs); the group has the same number.
MACHINE_IDS = range(2_000_000_000, 2_000_065_536)
LISTED_BY = {
    "network namespace": ["ip", "netns", "list"],
    "link": ["ip", "-o", "link", "show"],
    "nft table": ["nft", "list", "tables"],
}


# A test cluster may come and go meanwhile (tests/cluster): its links, cgroups and mounts.
OF_CLUSTERS = re.compile(r"^(link|cgroup|network namespace) (/\S*/)?gbk|^mount /(run|var/lib)/garboard-cluster/")


def leftovers(directory: str) -> set[str]:
    """By kind and name, those of test clusters left out. Of processes those that have to do with the directory."""
    found = set(processes_of(directory))
    for kind, command in LISTED_BY.items():
        for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
            found.add(f"{kind} {re.sub(r'^[0-9]+: | (state|mtu|qlen|qdisc|group|link/).*', '', line)}")
    for mount in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        found.add(f"mount {mount.split()[1]}")
    # os.walk passes over what goes while it looks.
    for group, _, _ in os.walk("/sys/fs/cgroup"):
        if "garboard" in group:
            found.add(f"cgroup {group}")
    for path, directories, files in os.walk(f"{directory}/run"):
        found.update(f"file {path}/{name}" for name in directories + files)
    return {thing for thing in found if not OF_CLUSTERS.search(thing)}


def processes_of(directory: str) -> list[str]:
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if int(process.name) != os.getpid() and (directory in line or directory.encode() in environment):
            found.append(f"process {process.name}: {line[:150]}")
    return found


def wait_until_clean(directory: str, before: set[str], seconds: float = 10) -> None:
    """Until nothing is there that was not there before; what ends last ends shortly after the command that asked."""
    end = time.monotonic() + seconds
    while left := leftovers(directory) - before:
        if time.monotonic() > end:
            raise Failure("left behind:\n" + "\n".join(f"  {thing}" for thing in sorted(left)))
        time.sleep(0.1)


def within(top: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory and everything below it. What goes meanwhile is left out."""
    for directory, _, files in os.walk(top):
        yield pathlib.Path(directory)
        yield from (pathlib.Path(directory, file) for file in files)


def fault_of(path: pathlib.Path) -> str | None:
    """What others may do with a file or directory of ours that they should not."""
    try:
        found = path.lstat()
    except FileNotFoundError:  # it went meanwhile
        return None
    # A network namespace is the kernel's, under a name of the tests, and shows nothing from outside.
    if stat.S_ISLNK(found.st_mode) or path.name == "netns":
        return None
    # A machine's own group, which no other user is in, may look at what it was started with.
    own_group = found.st_gid in MACHINE_IDS
    others = found.st_mode & (0o066 if stat.S_ISDIR(found.st_mode) else 0o077) & ~(0o070 if own_group else 0)
    return stat.filemode(found.st_mode) if others else None


def link_of(uid: str) -> str:
    """The host's link of a machine: FNV-1a of 64 bits, as net/src/names.rs has it."""
    fingerprint = 0xCBF29CE484222325
    for byte in uid.encode():
        fingerprint = ((fingerprint ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"gb{fingerprint >> 12:013x}"
