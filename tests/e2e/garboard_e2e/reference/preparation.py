"""What the functional tests expect around what they test: definitions of all kinds that they list, a Deployment of the
operator's name, storage classes, and guests by the names of KubeVirt's images.

None of it pretends that something works: a kind without a controller stays as it was written.
"""

import json
import pathlib
import subprocess

from ..cluster.kube import Kube
from ..cluster.names import INSTALLED_IN, Object
from ..guests import ALPINE, layout

PREFIX, TAG = "registry.garboard.dev/reference", "1"
# Which guest of ours stands for which image.
GUESTS = {
    "alpine-container-disk-demo": ALPINE,
    "alpine-with-test-tooling-container-disk": ALPINE,
    "cirros-container-disk-demo": ALPINE,
}
OPERATOR = "virt-operator"
STORAGE = "local"


def operator(image: str) -> Object:
    """A Deployment with a ready replica, which the tests wait for before the first one; it does nothing."""
    labels = {"kubevirt.io": OPERATOR}
    container = {"name": OPERATOR, "image": image, "imagePullPolicy": "Never", "command": ["sleep", "infinity"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": OPERATOR, "namespace": INSTALLED_IN, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def storage_class(name: str) -> Object:
    """A class that nothing makes volumes for."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
    }


def definitions(program: pathlib.Path, kube: Kube) -> list[Object]:
    """Those of KubeVirt's kinds that Garboard does not define."""
    listed = json.loads(subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout)
    present = {each["metadata"]["name"] for each in kube.items("crd", namespace=None)}
    found = [each for each in listed["items"] if each["metadata"]["name"] not in present]
    for each in found:
        each.pop("status", None)
    return found


def prepare(kube: Kube, programs: pathlib.Path) -> None:
    """Everything, on a cluster where Garboard is installed."""
    missing = {"apiVersion": "v1", "kind": "List", "items": definitions(programs / "definitions", kube)}
    kube.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(missing), namespace=None)
    image = kube.images.launcher
    kube.apply(operator(image), *(storage_class(name) for name in (STORAGE, "rhel", "windows")), namespace=None)
    nodes = [node["metadata"]["name"] for node in kube.items("nodes", namespace=None)]
    for guest in sorted(set(GUESTS.values())):
        kube.load(layout(guest))
    for name, guest in GUESTS.items():
        for node in nodes:
            theirs = f"{PREFIX}/{name}:{TAG}"
            kube.inside(node, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", guest, theirs)
    # These guests are Linux, which a KVM that interprets its code would not boot in time.
    emulated = {"spec": {"configuration": {"developerConfiguration": {"useEmulation": True}}}}
    kube.patch("kubevirt/kubevirt", emulated, namespace=INSTALLED_IN)
    kube.kubectl("rollout", "status", f"deployment/{OPERATOR}", "--timeout=240s", namespace=INSTALLED_IN)
