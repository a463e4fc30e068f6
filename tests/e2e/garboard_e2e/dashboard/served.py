"""The program that is tested: `kubectl-garboard dashboard`, with a kubectl that is given."""

import http.client
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from ..outcome import Failure
from ..patience import PATIENCE, wait_until

ADDRESS = re.compile(r"^http://127\.0\.0\.1:(\d+)/#key=[0-9a-f]{64}$")


def children(process: int) -> list[int]:
    """Processes that it started."""
    tasks = pathlib.Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for each in tasks for child in each.read_text().split()]


class Served:
    """A dashboard that runs."""

    def __init__(
        self, argv: list[str], environment: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL
    ) -> None:
        self.process = subprocess.Popen(
            argv, env=None if environment is None else {**os.environ, **environment}, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not (found := ADDRESS.match(self.address)):
            raise Failure(f"it printed no address: {self.address!r} {self.process.communicate()}")
        self.port = int(found[1])
        self.origin = f"http://127.0.0.1:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGTERM)

    def end(self, number: signal.Signals) -> int:
        """How it ends after a signal."""
        self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()

    def kubectl(self) -> int:
        """The process of `kubectl proxy`, which a shell keeps."""
        (keeper,) = children(self.process.pid)
        (proxy,) = children(keeper)
        return proxy

    def await_gone(self, process: int) -> None:
        wait_until(f"the end of process {process}", lambda: not pathlib.Path(f"/proc/{process}").exists())
