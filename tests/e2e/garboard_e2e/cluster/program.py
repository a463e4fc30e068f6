"""A test cluster as its program and kubectl show it."""

import contextlib
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from ..outcome import Failure
from ..patience import PATIENCE
from . import build
from .names import INSTALLED_IN, NAMESPACE, Object

Argument = str | os.PathLike[str] | int
Found = TypeVar("Found")


class Cluster:
    """One cluster, whatever is on it."""

    def __init__(self, program: pathlib.Path, name: str) -> None:
        self.program, self.name, self.tool = program, name, str(build.tools() / "kubectl")
        self.state = pathlib.Path("/run/garboard-cluster", name)
        self.environment = dict(os.environ) | {"KUBECONFIG": str(self.state / "kubeconfig")}

    # ---- the program

    def cluster(self, *arguments: Argument, check: bool = True) -> str:
        """What the program of tests/cluster prints."""
        command = [str(each) for each in arguments]
        done = subprocess.run([self.program, "--name", self.name, *command], capture_output=True, text=True)
        if check and done.returncode:
            raise Failure(f"`cluster {' '.join(command)}` ended with {done.returncode}: {done.stderr[-600:]}")
        return done.stdout

    def status(self) -> Object | None:
        """What the program reports of its parts, or None where there is no such cluster."""
        with contextlib.suppress(json.JSONDecodeError):
            status: Object = json.loads(self.cluster("status", "-o", "json", check=False))
            return status
        return None

    def inside(self, node: str, *command: Argument, check: bool = True) -> str:
        """What a program on a node prints."""
        return self.cluster("exec", node, "--", *command, check=check)

    def root(self, node: str) -> pathlib.Path:
        """The node's files, as the host sees them."""
        nodes = (self.status() or {"nodes": []})["nodes"]
        return pathlib.Path(f"/proc/{next(each['pid'] for each in nodes if each['name'] == node)}/root")

    def load(self, layout: pathlib.Path) -> None:
        """Gives the nodes an image: an archive, or a directory that is an OCI layout."""
        if layout.is_file():
            self.cluster("load", layout)
            return
        archive = pathlib.Path(f"{self.state}-{os.getpid()}.tar")
        try:
            subprocess.run(["tar", "-C", layout, "-cf", archive, "."], check=True)
            self.cluster("load", archive)
        finally:
            archive.unlink(missing_ok=True)

    @property
    def audit_log(self) -> pathlib.Path:
        return self.state / "logs/audit.log"

    # ---- kubectl

    def kubectl(
        self, *arguments: Argument, text: str | None = None, code: int | None = 0, namespace: str | None = NAMESPACE
    ) -> str:
        """What kubectl prints. It must end with `code`, and where that is another one than 0, standard error comes with
        it; with None it may end as it likes."""
        command = [*(["-n", namespace] if namespace else []), *map(str, arguments)]
        done = subprocess.run([self.tool, *command], env=self.environment, input=text, capture_output=True, text=True)
        if code is not None and done.returncode != code:
            end = f"`kubectl {' '.join(command)[:300]}` ended with {done.returncode}, not {code}"
            raise Failure(f"{end}: {done.stdout[-300:]}{done.stderr[-600:]}")
        return done.stdout + (done.stderr if code else "")

    def tried(self, *arguments: Argument, **options: Any) -> str:
        """What kubectl prints, or nothing if it fails."""
        try:
            return self.kubectl(*arguments, **options)
        except Failure:
            return ""

    def get(self, *arguments: Argument, namespace: str | None = NAMESPACE) -> Object:
        """An object, or a list of them, asked of the API server."""
        found: Object = json.loads(self.kubectl("get", *arguments, "-o", "json", namespace=namespace))
        return found

    def items(self, *arguments: Argument, namespace: str | None = NAMESPACE) -> list[Object]:
        found: list[Object] = self.get(*arguments, namespace=namespace)["items"]
        return found

    def apply(self, *objects: Object, **options: Any) -> str:
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.kubectl("apply", "-f", "-", text=json.dumps(whole), **options)

    def patch(
        self,
        what: str,
        change: Object | list[Object],
        kind: Literal["merge", "json"] = "merge",
        subresource: str | None = None,
        namespace: str = NAMESPACE,
    ) -> str:
        more = [f"--subresource={subresource}"] if subresource else []
        return self.kubectl("patch", what, "--type", kind, "-p", json.dumps(change), *more, namespace=namespace)

    def ask_until(
        self, what: str, holds: Callable[[], Found | Literal[False] | None], seconds: float = PATIENCE
    ) -> Found:
        """Until `holds` answers something true, which is returned. For questions that cost a process each: nothing
        signals when to ask again."""
        end = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > end:
                raise Failure(f"{what}: not within {seconds:.0f} s")
            time.sleep(0.5)
        return found

    # ---- Garboard

    def roll_out(self, manifest: str, seconds: float = 2 * PATIENCE) -> None:
        """Applies what installs a version, and waits until its controllers and agents are those that run."""
        self.kubectl("apply", "-f", "-", text=manifest, namespace=None)
        for part in ("deployment/garboard-controller", "daemonset/garboard-node"):
            self.kubectl("rollout", "status", part, f"--timeout={seconds:.0f}s", namespace=INSTALLED_IN)

    def controllers(self) -> list[Object]:
        """Their pods, those that leave too."""
        return self.items("pods", "-l", "app.kubernetes.io/component=controller", namespace=INSTALLED_IN)

    def agents(self) -> list[Object]:
        """The pods of the node agents, those that leave too."""
        return self.items("pods", "-l", "app.kubernetes.io/component=node", namespace=INSTALLED_IN)

    def agent_of(self, node: str) -> Object:
        """The pod of the node's agent; none that leaves."""
        for pod in self.agents():
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]:
                return pod
        raise Failure(f"{node} has no pod of an agent")

    def offers_devices(self, nodes: int = 2) -> bool:
        """Whether so many nodes take machines."""
        found = self.items("nodes", "-l", "kubevirt.io/schedulable=true", namespace=None)
        offers = [node["status"]["allocatable"].get("devices.kubevirt.io/tun", "0") != "0" for node in found]
        return offers.count(True) == nodes

    @contextlib.contextmanager
    def launchers_stay(self) -> Iterator[None]:
        """The controller replaces no supervisor meanwhile."""

        def annotate(annotation: str) -> None:
            self.kubectl("annotate", "kubevirt/kubevirt", annotation, "--overwrite", namespace=INSTALLED_IN)

        annotate("garboard.dev/launcher-update=Disabled")
        try:
            yield
        finally:
            annotate("garboard.dev/launcher-update-")

    # ---- processes

    @staticmethod
    def processes_of(pod: str, program: str) -> list[int]:
        """Numbers, as the host counts, of a program's processes in the pod of this UID."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_it = (entry / "comm").read_text().startswith(program[:15])
                if is_it and pod in (entry / "cgroup").read_text():
                    found.append(int(entry.name))
        return found
