"""strace on a process of a node, from the host."""

import contextlib
import pathlib
import re
import signal
import subprocess
from collections.abc import Iterator

from ..patience import PATIENCE, wait_until
from .agent import is_there

STRACE = ["strace", "-f", "-y", "-qq", "-s", "400"]


def is_traced(process: int) -> bool:
    """Each of its threads."""
    tracers = []
    for task in pathlib.Path(f"/proc/{process}/task").glob("*/status"):
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            tracers += re.findall(r"^TracerPid:\s*(\d+)$", task.read_text(), re.M)
    return bool(tracers) and "0" not in tracers


@contextlib.contextmanager
def traced(process: int, calls: str, out: pathlib.Path) -> Iterator[None]:
    """Such calls of the process and its children are written to a file meanwhile."""
    with subprocess.Popen([*STRACE, "-e", f"trace={calls}", "-p", str(process), "-o", out]) as tracer:
        try:
            wait_until("strace", lambda: is_traced(process))
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(PATIENCE)


class Death:
    """strace that kills a process, and what it starts, at the first call of a kind."""

    def __init__(self, process: int, calls: str, path: str | None, out: pathlib.Path) -> None:
        self.process, self.out = process, out
        only = ["-P", path] if path else []
        kill = ["-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when=1"]
        self.tracer = subprocess.Popen([*STRACE, *only, *kill, "-p", str(process), "-o", out])
        wait_until("strace", lambda: is_traced(process) or self.has_come)

    @property
    def has_come(self) -> bool:
        return not is_there(self.process)

    def last_calls(self) -> str:
        """What was traced last, when strace has ended with its process."""
        self.tracer.wait(PATIENCE)
        calls = [line for line in self.out.read_text(errors="replace").splitlines() if "(" in line]
        return " | ".join(calls[-2:])[:200]

    def end(self) -> None:
        """strace lets go of a process that lives on."""
        if self.tracer.poll() is None:
            self.tracer.send_signal(signal.SIGINT)
        self.tracer.wait(PATIENCE)
