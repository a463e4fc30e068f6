"""Sets of instances as tests write them and look at them."""

import functools
import json

from .names import NAMESPACE, Object
from .objects import machine
from .replicated import Replicated

PLURAL = "virtualmachineinstancereplicasets"
API = f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/{PLURAL}"


def replica_set(name: str, replicas: int | None, **more: object) -> Object:
    """Instances of the hello guest with the label `app: NAME`; `more` goes into the set's specification."""
    spec: Object = {"selector": {"matchLabels": {"app": name}}, "template": machine(name)["spec"]["template"]}
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec | more,
    }


class Replicas(Replicated):
    """One set on a cluster."""

    resource, kind = "vmirs", "VirtualMachineInstanceReplicaSet"

    def all(self) -> list[Object]:
        """Every instance with its label, also one that leaves."""
        return self.kube.items("vmi", "-l", f"app={self.name}")

    def staying(self) -> dict[str, str]:
        """Names of those that are not being deleted, and their UIDs."""
        stay = [each["metadata"] for each in self.all() if "deletionTimestamp" not in each["metadata"]]
        return {each["name"]: each["uid"] for each in stay}

    def owned(self) -> list[str]:
        """Names of those that a set controls."""
        return [each["metadata"]["name"] for each in self.all() if each["metadata"].get("ownerReferences")]

    def _has(self, count: int, ready: bool) -> bool:
        status = self.status()
        counts = status.get("replicas") == count and (not ready or status.get("readyReplicas") == count)
        return counts and len(self.staying()) == count

    def comes_to(self, count: int, ready: bool = True) -> dict[str, str]:
        """Waits for so many instances; their UIDs by their names."""
        self.kube.ask_until(f"{count} instances of {self.name}", functools.partial(self._has, count, ready))
        return self.staying()

    def scale(self, count: int) -> None:
        self.kube.kubectl("scale", f"vmirs/{self.name}", f"--replicas={count}")

    def read_scale(self) -> Object:
        found: Object = json.loads(self.kube.kubectl("get", "--raw", f"{API}/{self.name}/scale", namespace=None))
        return found

    def delete(self, *options: str) -> None:
        self.kube.kubectl("delete", f"vmirs/{self.name}", "--ignore-not-found", *options)
