"""Processes and ports of this host."""

import contextlib
import os
import pathlib
import random
import re
import signal
import socket
from collections.abc import Iterable, Iterator

from .outcome import Failure


def command_lines() -> Iterator[tuple[pathlib.Path, list[str]]]:
    """Each process of this host, as its directory in /proc, and the arguments it was started with."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            yield process, [argument.decode(errors="replace") for argument in arguments]


def process_with(mark: str) -> int | None:
    """The process that was started with an argument that begins with `mark`, or None."""
    for process, arguments in command_lines():
        if any(argument.startswith(mark) for argument in arguments):
            return int(process.name)
    return None


def status_of(process: int) -> dict[str, str]:
    """The fields of /proc/PID/status."""
    return dict(re.findall(r"^(\w+):[ \t]*(.*)$", pathlib.Path(f"/proc/{process}/status").read_text(), re.M))


def kill(processes: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Those that have gone meanwhile are fine."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def free_port() -> int:
    """A port that nothing else takes before it is used, and while its machine is between two runs: below those that the
    kernel gives to connections and to programs that ask for any port, and another one each time."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(first // 2, first - 3000), 1000):
        with contextlib.suppress(OSError), socket.socket() as sock:
            if port not in given_ports:
                sock.bind(("127.0.0.1", port))
                given_ports.add(port)
                return port
    raise Failure("no port is free")


given_ports: set[int] = set()
