#!/usr/bin/env python3
"""Which paths the node agent and its children touched, by the word of strace; none may be in a pod.

  paths.py TRACE [starts_and_stops]

TRACE is what `strace -f -y -e trace=%file,connect,bind` wrote. Prints every path that is in no place of the agent's own, and
ends with 1 if there is one, or, with the second word, if the trace
does not hold what a start must have left in it.
"""

import collections
import pathlib
import re
import sys

OWN = re.compile("|".join([
    # Who calls: the process's directory, its control groups, its network.
    r"/proc/\d+(/cgroup|/net/dev)?",
    # The agent's own namespaces and limits, and the network's settings wherever it has entered.
    r"/proc/(thread-)?self/(ns/(net|user)|net/dev|status|cgroup|mountinfo|maps)", r"/proc/\d+/task/\d+/comm",
    r"/proc/sys/net/ipv[46]/(ip_forward|conf/[\w.-]+/\w+)", r"/proc/sys/(vm/overcommit_memory|kernel/cap_last_cap)",
    r"/dev/(kvm|net/tun|vhost-net|null|urandom)",
    r"/sys/kernel/mm/ksm/run", r"/sys/fs/cgroup(/.*)?", r"/sys/class/misc/[\w-]+",
    # Its directories on the node, and what the API server gave it.
    r"/run/garboard-agent/pod(/((agent\.sock|node\.json)(\.new)?|agent\.new-\d+))?",
    r"/var/lib/kubelet/device-plugins(/(kubelet|garboard-[a-z-]+)\.sock)?",
    r"/var/run/secrets/kubernetes\.io/serviceaccount/.*",
    r"/run/garboard-facts/node\.json",
    # Its image: nft, libraries, tables of names.
    r"/(usr/)?(local/)?s?bin/nft", r"/(usr/)?lib(64)?(/.*)?", r"/usr/share/(zoneinfo|iproute2|nftables)(/.*)?",
    r"/etc/(ld\.so\.(cache|preload)|resolv\.conf|hosts|nsswitch\.conf|host\.conf|gai\.conf|localtime|protocols|services|"
    r"networks|passwd|group|iproute2/.*|nftables/.*|libnl/.*|xtables\.conf|connlabel\.conf)", r"/etc/iproute2", r"/", r"",
]))
# A start shows at least these, or nothing was traced.
SHOWN = [r"/proc/\d+/cgroup", r"/proc/\d+/net/dev", r"/dev/net/tun", r"/(usr/)?sbin/nft", r"/proc/sys/net/.*k6t-eth0.*"]
CALL = re.compile(r"^(?:\[pid +)?(\d+)\]? +(?:<\.\.\. )?(\w+)[( ](.*)$")
WORD = re.compile(r'(?:(AT_FDCWD|\d+)(?:<([^>]*)>(?:\(deleted\))?)?, )?"((?:[^"\\]|\\.)*)"')
SOCKET = re.compile(r'sun_path="([^"]*)"')


def paths(line):
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
    for number, directory, name in WORD.findall(arguments.split(") = ", 1)[0]):
        if not name:
            # The descriptor itself.
            continue
        if number.isdigit() and not directory.startswith("/"):
            # strace cannot say which directory it was when the process it belongs to has ended; the agent opens nothing
            # else below one.
            directory = "/proc/0" if name in ("cgroup", "net/dev") else f"/descriptor/{number}"
        elif not number:
            directory = "/"
        yield str(pathlib.PurePosixPath(directory, name))


def main():
    seen = collections.Counter()
    for line in pathlib.Path(sys.argv[1]).read_text(errors="replace").splitlines():
        seen.update(paths(line))
    foreign = sorted(path for path in seen if not OWN.fullmatch(path))
    shown = SHOWN if sys.argv[2:] == ["starts_and_stops"] else SHOWN[:1]
    missing = [wanted for wanted in shown if not any(re.fullmatch(wanted, path) for path in seen)]
    for path in foreign:
        print(f"not the agent's own: {path} ({seen[path]} times)")
    for wanted in missing:
        print(f"the trace shows no {wanted}")
    print(f"{sum(seen.values())} calls with {len(seen)} paths")
    return 1 if foreign or missing else 0


sys.exit(main())
