"""What a test cluster may leave on this host: everything that must be the same after `down` as it was before `up`."""

import difflib
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator

from ..outcome import Failure
from ..places import CACHE, PREFIX
from . import build

# As the kernel or a tool lists them.
LISTED_BY = (
    ("ip", "route"),
    ("nft", "list", "ruleset"),
    ("ss", "-Hltn", "sport = :6443 or sport = :12379 or sport = :10257 or sport = :10259"),
)
DIRECTORIES = (
    "/run/garboard-cluster",
    "/var/lib/garboard-cluster",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/etc/cni",
)
# Which a kubelet changes.
SETTINGS = (
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/keys/root_maxkeys",
    "/proc/sys/net/ipv4/ip_forward",
)
# What machines on this host have, which other tests start and stop meanwhile: mounts below a directory of theirs,
# links, rules.
OF_MACHINES = re.compile(rf"{re.escape(tempfile.gettempdir())}/{PREFIX}|(.* dev )?gb[0-9a-f]{{13}}\b")
TABLE_OF_A_MACHINE = re.compile(r"^table inet garboard_[^{]*\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
# What pods run, by the name in their own root.
OF_PODS = ("/pause", "/bin/busybox")


def state(program: pathlib.Path) -> list[str]:
    """A line for each thing."""
    found = [f"link {link}" for link in links() if not OF_MACHINES.match(link)]
    found += [f"mount {mount}" for mount in mounts() if not OF_MACHINES.match(mount)]
    found += [f"control group {group}" for group in control_groups("gbk")]
    found += [f"directory {directory}" for directory in DIRECTORIES if os.path.isdir(directory)]
    found += [f"process {process}" for process in processes(program)]
    found += [f"{path} is {pathlib.Path(path).read_text().strip()}" for path in SETTINGS if os.path.exists(path)]
    for command in LISTED_BY:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = TABLE_OF_A_MACHINE.sub("", listed).splitlines()
        found += [f"{command[0]}: {line}" for line in lines if not OF_MACHINES.match(line)]
    return found


def links() -> list[str]:
    lines = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(re.sub(r"^[0-9]+: (\S*) .*", r"\1", line) for line in lines)


def mounts() -> list[str]:
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(line.split(" ", 4)[4] for line in lines)


def control_groups(prefix: str) -> list[str]:
    """Of every hierarchy."""
    found = []
    for directory, below, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{directory}/{name}" for name in below if name.startswith(prefix)]
    return sorted(found)


def processes(program: pathlib.Path) -> Iterator[str]:
    """Those of the cluster's programs and pods. Others may use these programs, too: those of a cluster have them
    first on their search path."""
    path = f"PATH={build.tools()}:".encode()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            target = os.readlink(process / "exe")
            is_ours = target in (str(program.resolve()), *OF_PODS)
            if target.startswith(f"{CACHE}/cluster/"):
                environment = (process / "environ").read_bytes().split(b"\0")
                is_ours = any(variable.startswith(path) for variable in environment)
        except OSError:  # it went meanwhile
            continue
        if is_ours:
            yield target


def expect_as_before(program: pathlib.Path, before: list[str]) -> None:
    """Nothing is there that was not there, and nothing is missing."""
    now = state(program)
    if now != before:
        lines = difflib.unified_diff(before, now, "before", "now", lineterm="", n=0)
        raise Failure("this host is not as it was:\n" + "\n".join(lines))


def processes_of_cluster(name: str) -> set[int]:
    """Every process of the control groups of a cluster."""
    found: set[int] = set()
    for group in control_groups(f"gbk-{name}"):
        for directory, _, _ in os.walk(group):
            try:
                found |= {int(line) for line in pathlib.Path(directory, "cgroup.procs").read_text().split()}
            except OSError:  # a group that went meanwhile, or is of threads
                continue
    return found
