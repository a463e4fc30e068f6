"""A test cluster without Garboard, with a pod on each node that serves its own name over HTTP."""

import contextlib
import pathlib
import socket
import subprocess
import tarfile
from collections.abc import Sequence

from ..places import SCRIPTS
from .names import Object
from .program import Argument, Cluster

PROBE, NEWER_PROBE = "registry.garboard.dev/cluster-probe:1", "registry.garboard.dev/cluster-probe:2"
DATA, GREETING = "registry.garboard.dev/cluster-data:1", "hello from an image"
QUESTION = "GET /hostname HTTP/1.0\r\n\r\n"
PORT = 8080


def make_images(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """The archives by their references: a busybox under two tags, and one file to mount."""
    greeting = directory / "greeting"
    greeting.write_text(f"{GREETING}\n")
    shell = ["--entrypoint", "/bin/busybox", "/bin/busybox=/bin/busybox"]
    recipes = {PROBE: shell, NEWER_PROBE: shell, DATA: [f"{greeting}=/greeting"]}
    return {
        reference: packed(directory / str(number), reference, arguments)
        for number, (reference, arguments) in enumerate(recipes.items())
    }


def packed(layout: pathlib.Path, reference: str, arguments: list[str]) -> pathlib.Path:
    subprocess.run([str(SCRIPTS / "oci-pack"), str(layout), reference, *arguments], check=True)
    archive = layout.with_suffix(".tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(layout, ".")
    return archive


def pod(name: str, *arguments: str, mounts: Sequence[Object] = (), **spec: object) -> Object:
    """One that runs busybox."""
    container = {"name": "main", "image": PROBE, "imagePullPolicy": "Never", "args": arguments, "volumeMounts": mounts}
    made = {"containers": [container], "terminationGracePeriodSeconds": 0} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": made}


def probe(node: str) -> Object:
    made = pod(f"probe-{node}", "httpd", "-f", "-p", str(PORT), "-h", "/etc")
    made["metadata"]["labels"] = {"app": "probe"}
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


class Probed(Cluster):
    """What is asked of such a cluster. Everything is in the namespace `default`."""

    def call(self, *arguments: Argument) -> subprocess.CompletedProcess[str]:
        """The program, however it ends."""
        command = [str(self.program), "--name", self.name, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True)

    def put(self, *objects: Object) -> None:
        self.apply(*objects, namespace="default")

    def ready(self, what: str, *more: str) -> None:
        """Waits for pods."""
        self.kubectl("wait", "--for=condition=Ready", what, *more, "--timeout=180s", namespace="default")

    def object(self, kind: str, name: str) -> Object:
        return self.get(kind, name, namespace="default")

    def state_of(self, target: str) -> str:
        """What the program reports of a node or a component."""
        status = self.status() or {"nodes": [], "servers": []}
        agents = [agent for node in status["nodes"] for agent in node["agents"]]
        found = [each["state"] for each in [*status["nodes"], *agents, *status["servers"]] if each["name"] == target]
        return str(found[0]) if found else "unknown"

    def numbers(self) -> list[int | None]:
        """The process IDs of all parts."""
        status = self.status() or {"nodes": [], "servers": []}
        agents = [agent for node in status["nodes"] for agent in node["agents"]]
        return [each.get("pid") for each in [*status["servers"], *status["nodes"], *agents]]

    def node_is(self, node: str, wanted: str) -> bool:
        """The status of its condition Ready."""
        conditions = self.get("node", node, namespace=None)["status"]["conditions"]
        return any((each["type"], each["status"]) == ("Ready", wanted) for each in conditions)

    def wait_for_node(self, node: str, wanted: str) -> None:
        self.ask_until(f"the condition Ready of {node} as {wanted}", lambda: self.node_is(node, wanted))

    def address_of(self, pod: str) -> str:
        return str(self.object("pod", pod)["status"]["podIP"])

    def restarts_of(self, pod: str) -> int:
        return int(self.object("pod", pod)["status"]["containerStatuses"][0]["restartCount"])

    def containers_of_probes(self) -> list[str]:
        pods = self.items("pods", "-l", "app=probe", namespace="default")
        return [pod["status"]["containerStatuses"][0]["containerID"] for pod in pods]

    def answer(self, asker: str, address: str, port: int = PORT) -> str:
        """The name that a probe at an address answers, asked from a pod; nothing if it does not answer. Not by wget:
        Debian's busybox crashes in it."""
        asks = ["exec", "-i", asker, "--", "/bin/busybox", "nc", "-w", "3", address, str(port)]
        answer = self.kubectl(*asks, text=QUESTION, code=None, namespace="default").split()
        return answer[-1] if answer else ""

    def wait_for_answer(self, asker: str, asked: str) -> None:
        """A pod is Ready a moment before its program listens."""
        address = self.address_of(asked)
        self.ask_until(f"an answer of {asked} to {asker}", lambda: self.answer(asker, address) == asked)

    def answer_to_host(self, pod: str, seconds: float) -> str:
        """The same asked from this host, as the API server does with webhooks."""
        received = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((self.address_of(pod), PORT), seconds) as connection,
        ):
            connection.sendall(QUESTION.encode())
            while more := connection.recv(4096):
                received += more
        answer = received.decode().split()
        return answer[-1] if answer else ""

    def is_answered(self, timeout: str = "30s") -> bool:
        """Whether the API server reports that it is ready."""
        return "ok" in self.tried("get", "--raw", "/readyz", f"--request-timeout={timeout}", namespace=None)
