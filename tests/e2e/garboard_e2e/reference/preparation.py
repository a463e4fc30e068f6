"""What the functional tests expect around what they test: definitions of all kinds that they list, a Deployment of the
operator's name, and guests by the names of KubeVirt's images.

None of it pretends that something works: a kind without a controller stays as it was written.
"""

import json
import pathlib
import subprocess
from collections.abc import Collection

from ..cluster.kube import Kube
from ..cluster.names import INSTALLED_IN, Object
from ..guests import ALPINE, ALPINE_TOOLS, CIRROS, FEDORA, TOOLS, layout

PREFIX, TAG = "registry.garboard.dev/reference", "1"
# Which image of ours stands for which of KubeVirt's.
IMAGES = {
    "alpine-container-disk-demo": ALPINE,
    "alpine-ext-kernel-boot-demo": ALPINE,
    "alpine-with-test-tooling-container-disk": ALPINE_TOOLS,
    "cirros-container-disk-demo": CIRROS,
    "cirros-custom-container-disk-demo": CIRROS,
    "fedora-with-test-tooling-container-disk": FEDORA,
    "vm-killer": TOOLS,
}
OPERATOR = "virt-operator"
# The gates of KubeVirt's test clusters that tests need here: those that run beside others must not switch one on.
GATES = ["HostDisk", "PanicDevices", "Snapshot"]
# Tests of who may ask for this name want one, which nothing else gives. There is no such image: what starts it fails.
GUESTFS = {"garboard.dev/guestfs-image": f"{PREFIX}/libguestfs-tools:{TAG}"}


def operator() -> Object:
    """A Deployment with a ready replica, which the tests wait for before the first one; it does nothing."""
    labels = {"kubevirt.io": OPERATOR}
    image = f"{PREFIX}/vm-killer:{TAG}"
    container = {"name": "does-nothing", "image": image, "imagePullPolicy": "Never", "command": ["sleep", "infinity"]}
    # It is to be there also while a test has tainted its node; what that test comes to is about this pod alone, and has
    # the verdict `stand-in`.
    pod = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    about = {
        "kubernetes.io/description": "does nothing: KubeVirt's functional tests wait for a Deployment of this name"
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": OPERATOR, "namespace": INSTALLED_IN, "labels": labels, "annotations": about},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": about}, "spec": pod},
        },
    }


def definitions(program: pathlib.Path, kube: Kube) -> list[Object]:
    """Those of KubeVirt's kinds that Garboard does not define."""
    listed = json.loads(subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout)
    present = {each["metadata"]["name"] for each in kube.items("crd", namespace=None)}
    found = [each for each in listed["items"] if each["metadata"]["name"] not in present]
    for each in found:
        each.pop("status", None)
    return found


def nodes(kube: Kube) -> list[str]:
    return [each["metadata"]["name"] for each in kube.items("nodes", namespace=None)]


def load_images(kube: Kube, images: Collection[str]) -> None:
    """On each node that has not got them."""
    for node in nodes(kube):
        present = kube.inside(node, "ctr", "--namespace", "k8s.io", "images", "list", "--quiet").split()
        for image in sorted(set(images) - set(present)):
            kube.load(layout(image))


def name_images(kube: Kube, without: Collection[str]) -> None:
    """Ours are on each node under the names that the tests ask for; `without` are those that no test wants."""
    wanted = {name: image for name, image in IMAGES.items() if image not in without}
    load_images(kube, wanted.values())
    for node in nodes(kube):
        for name, image in wanted.items():
            theirs = f"{PREFIX}/{name}:{TAG}"
            kube.inside(node, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", image, theirs)


def prepare(kube: Kube, programs: pathlib.Path, without: Collection[str]) -> None:
    """Everything, on a cluster where Garboard is installed, but for the images `without`."""
    kinds = definitions(programs / "definitions", kube)
    missing = {"apiVersion": "v1", "kind": "List", "items": kinds}
    kube.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(missing), namespace=None)
    name_images(kube, without)
    kube.apply(operator(), namespace=None)
    # These guests are Linux, which a KVM that interprets its code would not boot in time.
    developers = {"useEmulation": True, "featureGates": GATES}
    settings = {
        "metadata": {"annotations": GUESTFS},
        "spec": {"configuration": {"developerConfiguration": developers}},
    }
    kube.patch("kubevirt/kubevirt", settings, namespace=INSTALLED_IN)
    kube.kubectl("rollout", "status", f"deployment/{OPERATOR}", "--timeout=240s", namespace=INSTALLED_IN)
    for name in (kind["metadata"]["name"] for kind in kinds):
        kube.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s", namespace=None)
