"""Pools of machines as tests write them and look at them."""

import functools
import json

from .kube import Kube
from .names import NAMESPACE, Object
from .objects import machine
from .replicated import Replicated

GROUP = "pool.kubevirt.io"
VERSION = f"{GROUP}/v1beta1"
API = f"/apis/{VERSION}/namespaces/{NAMESPACE}/virtualmachinepools"
# More machines than any pool of a test has had, one after the other.
MOST = 6


def pool(name: str, replicas: int | None, strategy: str = "Halted", **more: object) -> Object:
    """Machines of the hello guest with the label `app: NAME`, as their instances have it; `more` goes into the pool's
    specification. Without a strategy of their own no guest runs."""
    template = {"metadata": {"labels": {"app": name}}, "spec": machine(name, strategy)["spec"]}
    spec: Object = {"selector": {"matchLabels": {"app": name}}, "virtualMachineTemplate": template}
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": VERSION,
        "kind": "VirtualMachinePool",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec | more,
    }


def newest_go(**more: object) -> Object:
    """A strategy by which machines with the highest numbers go first."""
    return {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}} | more}


def guest(memory: str) -> Object:
    """A patch of a pool: guests with this much memory."""
    domain = {"domain": {"memory": {"guest": memory}}}
    return {"spec": {"virtualMachineTemplate": {"spec": {"template": {"spec": domain}}}}}


class Pool(Replicated):
    """One pool on a cluster."""

    resource, kind = "vmpool", "VirtualMachinePool"

    def __init__(self, kube: Kube, name: str) -> None:
        super().__init__(kube, name)
        # For the model: all machines that it makes are removed on purpose.
        kube.will_go(*(self.named(number) for number in range(MOST)))

    def named(self, number: int) -> str:
        return f"{self.name}-{number}"

    def records(self) -> list[str]:
        """Names of the records of what its machines are made of."""
        uid = self.object()["metadata"]["uid"]
        found = self.kube.items("controllerrevisions", "-l", f"garboard.dev/revision-of={uid}")
        return [each["metadata"]["name"] for each in found]

    def machines(self) -> dict[str, str]:
        """Names of the machines with its label that are not being deleted, and their UIDs."""
        found = [each["metadata"] for each in self.kube.items("vm", "-l", f"app={self.name}")]
        return {each["name"]: each["uid"] for each in found if "deletionTimestamp" not in each}

    def _has(self, count: int, ready: int) -> bool:
        status = self.status()
        is_so = (status.get("replicas"), status.get("readyReplicas")) == (count, ready)
        return is_so and len(self.machines()) == count

    def comes_to(self, count: int, ready: int = 0) -> dict[str, str]:
        """Waits for so many machines; their UIDs by their names."""
        self.kube.ask_until(f"{count} machines of {self.name}", functools.partial(self._has, count, ready))
        return self.machines()

    def scale(self, count: int) -> None:
        self.kube.kubectl("scale", f"vmpool/{self.name}", f"--replicas={count}")

    def read_scale(self) -> Object:
        found: Object = json.loads(self.kube.kubectl("get", "--raw", f"{API}/{self.name}/scale", namespace=None))
        return found

    def patch(self, change: Object) -> None:
        self.kube.patch(f"vmpool/{self.name}", change)

    def delete(self, *options: str) -> None:
        self.kube.kubectl("delete", f"vmpool/{self.name}", "--ignore-not-found", *options)
