"""The node agent of node-1, as its node and the API server see it."""

import contextlib
import dataclasses
import os
import pathlib
import signal
from collections.abc import Iterator

from ..cluster.kube import Kube
from ..cluster.names import AGENT, INSTALLED_IN, NODE_1, Object
from ..outcome import Failure
from ..processes import status_of

NODE_LOG_READY = '"message":"the agent is ready"'


@dataclasses.dataclass
class Measured:
    """What the agent takes."""

    kib: int
    threads: int
    descriptors: int

    def __str__(self) -> str:
        return f"{self.kib} KiB, {self.threads} threads, {self.descriptors} descriptors"


class NodeAgent:
    """The agent: its pod, which may be replaced, and its process."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    def pod(self) -> Object:
        of_agents = ["pods", "-l", "app.kubernetes.io/component=node", f"--field-selector=spec.nodeName={NODE_1}"]
        if not (found := self.kube.items(*of_agents, namespace=INSTALLED_IN)):
            raise Failure(f"{NODE_1} has no pod of an agent")
        return found[0]

    def pod_name(self) -> str:
        return str(self.pod()["metadata"]["name"])

    def container(self) -> Object:
        found: Object = next(each for each in self.pod()["spec"]["containers"] if each["name"] == "node")
        return found

    def restarts(self) -> int:
        statuses = self.pod()["status"]["containerStatuses"]
        return next(int(each["restartCount"]) for each in statuses if each["name"] == "node")

    def limit_kib(self) -> int:
        """The memory limit of its container."""
        limit = str(self.container()["resources"]["limits"]["memory"])
        if not limit.endswith("Mi"):
            raise Failure(f"its memory limit is {limit}")
        return int(limit.removesuffix("Mi")) * 1024

    def process(self) -> int:
        """As the host counts."""
        if not (found := self.found()):
            raise Failure("the agent does not run")
        return found

    def found(self) -> int | None:
        """Its process; not its child that is about to become nft."""
        found = self.kube.processes_of(self.pod()["metadata"]["uid"], AGENT)
        return min(found, key=began, default=None)

    def log(self, since: str | None = None) -> str:
        """Of the pod that is there now, or the part since a moment (RFC 3339)."""
        options = [f"--since-time={since}"] if since else []
        return self.kube.kubectl("logs", self.pod_name(), "-c", "node", *options, namespace=INSTALLED_IN)

    def measured(self) -> Measured:
        process = self.process()
        status = status_of(process)
        descriptors = len(os.listdir(f"/proc/{process}/fd"))
        return Measured(int(status["VmRSS"].split()[0]), int(status["Threads"]), descriptors)

    # ---- its ends

    def delete(self) -> str:
        """Its pod goes, and another one comes; the name of the one that goes."""
        name = self.pod_name()
        self.kube.kubectl("delete", f"pod/{name}", "--wait=false", "--grace-period=1", namespace=INSTALLED_IN)
        return name

    def renew(self) -> None:
        """Another pod, so that the kubelet does not wait longer from death to death."""
        before = self.delete()
        self.kube.ask_until("another agent", lambda: self.is_another(before))

    def is_another(self, before: str) -> bool:
        with contextlib.suppress(Failure):
            return self.pod_name() != before and self.is_ready() and self.found() is not None
        return False

    def is_ready(self) -> bool:
        """Its pod is Ready, and it has reported so itself: it may end and be started again before that."""
        conditions = self.pod()["status"].get("conditions", [])
        pod_is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return pod_is_ready and NODE_LOG_READY in self.log()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It gets no processor meanwhile."""
        process = self.process()
        os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process, signal.SIGCONT)


def began(process: int) -> int:
    """When a process was started, in ticks since the host's start."""
    return int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[19])


def is_there(process: int) -> bool:
    """Whether it runs or may run."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
