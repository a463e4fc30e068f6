"""What tests of faults have: three machines that stay, and what has to be true of them meanwhile."""

import contextlib
import random
from collections.abc import Iterator

from ..outcome import Failure
from ..processes import kill
from .kube import Kube
from .names import AGENT, CONTROLLER, INSTALLED_IN, NODE_1, NODE_2, Object
from .objects import machine
from .qemus import Qemu

# One on each node, and one with a claim.
ROCK, WAVE, DISK = "rock", "wave", "disk"
NODES = {ROCK: NODE_1, WAVE: NODE_2}


class Storm:
    """A cluster, how often things break, and where."""

    def __init__(self, kube: Kube, times: int, seed: int) -> None:
        self.kube, self.times, self.random = kube, times, random.Random(seed)

    def again(self, each: int = 1) -> range:
        """Numbers, to do something so often."""
        return range(each * self.times)

    def rarely(self) -> range:
        """For what takes minutes: once for ten."""
        return range((self.times + 9) // 10)

    def start(self) -> None:
        """The three machines, as they were made."""
        kept = {"name": "kept", "persistentVolumeClaim": {"claimName": DISK}}
        pair = (machine(name, tests="httpd,nc-echo", node=node) for name, node in NODES.items())
        self.kube.start(*pair, machine(DISK, volumes=[kept]))

    @contextlib.contextmanager
    def undisturbed(self, *names: str) -> Iterator[None]:
        """The same QEMU, the same instance, and the guest answers afterwards."""
        before = {name: (self.kube.runs(name), ids(self.kube.qemus(name))) for name in names}
        yield
        for name in names:
            now = self.kube.runs(name), ids(self.kube.qemus(name))
            if now != before[name]:
                raise Failure(f"{name} was {before[name]} and is {now}")
            self.kube.page(self.kube.address(name), NODES[name])

    # ---- controllers

    def replicas(self) -> list[Object]:
        """Pods of controllers that stay."""
        return [pod for pod in self.kube.controllers() if "deletionTimestamp" not in pod["metadata"]]

    def leader(self) -> Object | None:
        """The pod that leads, if there is one."""
        leases = self.kube.items("leases", namespace=INSTALLED_IN)
        holders = [lease["spec"].get("holderIdentity", "") for lease in leases]
        names = {pod["metadata"]["name"]: pod for pod in self.replicas()}
        return next((pod for name, pod in names.items() for holder in holders if holder.startswith(name)), None)

    def kill_leader(self) -> None:
        """The one that leads, or one of both."""
        self.kill_controllers(self.leader() or self.random.choice(self.replicas()))

    def kill_controllers(self, *pods: Object) -> None:
        """By force, and pods that come at once: the kubelet would let containers wait."""
        names = [pod["metadata"]["name"] for pod in pods]
        self.kube.kubectl("delete", "pod", *names, "--force", "--grace-period=0", namespace=INSTALLED_IN)

    def kill_process(self, pod: Object) -> None:
        """The program of a controller, which can say nothing more. Its pod goes, too: the kubelet would let containers
        wait."""
        kill(self.kube.processes_of(str(pod["metadata"]["uid"]), CONTROLLER))
        self.kill_controllers(pod)

    def stop_controller(self, pod: Object) -> None:
        """As an upgrade does, and a drain."""
        self.kube.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false", namespace=INSTALLED_IN)

    def controller_on(self, node: str) -> Object:
        """One on this node. Where both are on the other node, one goes, and is spread."""
        self.has_two_controllers()
        if not self.there(node):
            self.kill_controllers(self.replicas()[0])
            self.has_two_controllers()
        return self.kube.ask_until(f"a controller on {node}", lambda: self.there(node))

    def there(self, node: str) -> Object | None:
        """A controller's pod on this node."""
        return next((pod for pod in self.replicas() if pod["spec"].get("nodeName") == node), None)

    def has_two_controllers(self) -> None:
        """Waits for them."""
        ready = ["get", f"deployment/{CONTROLLER}", "-o", "jsonpath={.status.readyReplicas}"]
        self.kube.ask_until("two controllers", lambda: self.kube.tried(*ready, namespace=INSTALLED_IN) == "2")

    # ---- nodes

    def kill_agent(self, node: str) -> None:
        """The program of its agent; the kubelet starts it again."""
        kill(self.kube.processes_of(str(self.kube.agent_of(node)["metadata"]["uid"]), AGENT))

    def is_on_its_node(self, name: str) -> bool:
        """Its supervisor runs; a phase between Pending and Running is not reported of a quick start."""
        pod = self.kube.current_pod(name)
        statuses = pod["status"].get("initContainerStatuses", []) if pod else []
        return any("running" in each["state"] for each in statuses)

    def delete_pod_by_force(self, name: str) -> None:
        """The object goes at once, and its QEMU only when the kubelet observes it."""
        self.kube.kubectl("delete", "pod", self.kube.pod_name(name), "--force", "--grace-period=0")


def ids(qemus: list[Qemu]) -> list[str]:
    """Which processes; what they write is found out later than that they are there."""
    return [each["id"] for each in qemus]
