"""Which paths the node agent and its children touched, by a trace of strace; none may be in a pod. Pure."""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Iterator

# What strace has to be asked for.
CALLS = "%file,connect,bind"
OWN = re.compile(
    "|".join(
        [
            # Who calls: the process's directory, its control groups, its network.
            r"/proc/\d+(/cgroup|/net/dev)?",
            # The agent's own namespaces and limits, and the network's settings wherever it has entered.
            r"/proc/(thread-)?self/(ns/(net|user)|net/dev|status|cgroup|mountinfo|maps)",
            r"/proc/\d+/task/\d+/comm",
            r"/proc/sys/net/ipv[46]/(ip_forward|conf/[\w.-]+/\w+)",
            r"/proc/sys/(vm/overcommit_memory|kernel/cap_last_cap)",
            r"/dev/(kvm|net/tun|vhost-net|null|urandom)",
            r"/sys/kernel/mm/ksm/run",
            r"/sys/fs/cgroup(/.*)?",
            r"/sys/class/misc/[\w-]+",
            # Its directories on the node, and what the API server gave it.
            r"/run/garboard-agent/pod(/((agent\.sock|node\.json)(\.new)?|agent\.new-\d+))?",
            r"/var/lib/kubelet/device-plugins(/(kubelet|garboard-[a-z-]+)\.sock)?",
            r"/var/run/secrets/kubernetes\.io/serviceaccount/.*",
            r"/run/garboard-facts/node\.json",
            # Its image: nft, libraries, tables of names.
            r"/(usr/)?(local/)?s?bin/nft",
            r"/(usr/)?lib(64)?(/.*)?",
            r"/usr/share/(zoneinfo|iproute2|nftables)(/.*)?",
            r"/etc/(ld\.so\.(cache|preload)|resolv\.conf|hosts|nsswitch\.conf|host\.conf|gai\.conf|localtime|protocols"
            r"|services|networks|passwd|group|iproute2/.*|nftables/.*|libnl/.*|xtables\.conf|connlabel\.conf)",
            r"/etc/iproute2",
            r"/",
            r"",
        ]
    )
)
# Without this nothing was traced; and a start shows at least these.
CALLER = r"/proc/\d+/cgroup"
START = [CALLER, r"/proc/\d+/net/dev", r"/dev/net/tun", r"/(usr/)?sbin/nft", r"/proc/sys/net/.*k6t-eth0.*"]
CALL = re.compile(r"^(?:\[pid +)?(\d+)\]? +(?:<\.\.\. )?(\w+)[( ](.*)$")
PATH = re.compile(r'(?:(AT_FDCWD|\d+)(?:<([^>]*)>(?:\(deleted\))?)?, )?"((?:[^"\\]|\\.)*)"')
SOCKET = re.compile(r'sun_path="([^"]*)"')


def paths(line: str) -> Iterator[str]:
    """The paths of one call."""
    found = CALL.match(line)
    if not found or "resumed>" in line:
        return
    call, arguments = found.group(2), found.group(3)
    if call in ("connect", "bind"):
        yield from SOCKET.findall(arguments)
        return
    if call == "execve":
        arguments = arguments.split(", [", 1)[0]
    for number, place, name in PATH.findall(arguments.split(") = ", 1)[0]):
        # Without a name it is about the descriptor itself.
        if name:
            yield str(pathlib.PurePosixPath(directory_of(number, place, name), name))


def directory_of(number: str, place: str, name: str) -> str:
    """The directory that a name is relative to, where it is."""
    if not number:
        return "/"
    if number.isdigit() and not place.startswith("/"):
        # strace does not show which directory it was when the process it belongs to has ended; the agent opens nothing
        # else below one.
        return "/proc/0" if name in ("cgroup", "net/dev") else f"/descriptor/{number}"
    return place


@dataclasses.dataclass
class Seen:
    """How often each path was touched."""

    counted: collections.Counter[str]

    @classmethod
    def in_trace(cls, trace: str) -> "Seen":
        return cls(collections.Counter(path for line in trace.splitlines() for path in paths(line)))

    def foreign(self) -> list[str]:
        """Paths that are in no place of the agent's own."""
        return [f"{path} ({self.counted[path]} times)" for path in sorted(self.counted) if not OWN.fullmatch(path)]

    def missing(self, wanted: list[str]) -> list[str]:
        """What a trace of such a scene must have in it, and has not."""
        return [pattern for pattern in wanted if not any(re.fullmatch(pattern, path) for path in self.counted)]

    def sums(self) -> str:
        return f"{self.counted.total()} calls with {len(self.counted)} paths"
