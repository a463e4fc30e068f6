"""`kubectl port-forward`, kept up: kubectl ends it when one of its connections is reset."""

import socket
import subprocess
import threading
from types import TracebackType
from typing import Self

from ..patience import PATIENCE, wait_until
from ..processes import free_port
from .program import Cluster

PAUSE = 0.2


class Forwarded:
    """A port of this computer that leads to a Service, or to what is written as KIND/NAME."""

    def __init__(self, cluster: Cluster, namespace: str, service: str, port: int) -> None:
        self.port, self.over = free_port(), threading.Event()
        target = service if "/" in service else f"service/{service}"
        self.command = [str(cluster.tool), "-n", namespace, "port-forward", target, f"{self.port}:{port}"]
        self.environment = cluster.environment
        self.process: subprocess.Popen[bytes] | None = None
        self.thread = threading.Thread(target=self.keep, daemon=True)

    def keep(self) -> None:
        while not self.over.is_set():
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            self.process.wait()
            self.over.wait(PAUSE)

    def is_there(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        self.thread.start()
        wait_until(f"a forwarded port {self.port}", self.is_there)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        if self.process:
            self.process.terminate()
        self.thread.join(PATIENCE)
