"""What stands for virt-handler. After each test that runs alone, and after each change of settings, the suite asks
every pod with its label, at port 8443, which settings it has. Nothing listens on Garboard's nodes, whose agents learn
of settings by the controllers: these are who is asked, by a pod on each node (tests/reference/handler).

Where a test looks for more in it than this answer, such as a container `virt-handler` with a shell, it fails as before.
One that ends or replaces it does so to these pods, and the node agents go on: whether it passes says nothing of them,
and its verdict is `stand-in` (tests/reference/verdicts.tsv).
"""

from ..cluster.kube import Kube
from ..cluster.names import AGENT, INSTALLED_IN, Object
from ..guests import HANDLER
from .preparation import load_images

NAME, LABEL = "stands-for-virt-handler", "kubevirt.io"
PODS = {LABEL: "virt-handler"}
# `emptying` removes by it what is in no namespace.
WITH_GARBOARD = {"app.kubernetes.io/name": "garboard"}
RBAC = "rbac.authorization.k8s.io"


def rights() -> list[Object]:
    """An account that may ask for the controllers' health. A path without a name is a list to the API server."""
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": INSTALLED_IN}
    asks = {"apiGroups": ["subresources.kubevirt.io"], "resources": ["healthz"], "verbs": ["get", "list"]}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME}
    whole = {"metadata": {"name": NAME, "labels": WITH_GARBOARD}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": INSTALLED_IN}},
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "rules": [asks]} | whole,
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]} | whole,
    ]


def daemons() -> Object:
    """One on each node: where they run, the suite takes a node for one that runs machines."""
    container = {"name": "passes-on", "image": HANDLER, "imagePullPolicy": "Never", "ports": [{"containerPort": 8443}]}
    pod = {"serviceAccountName": NAME, "tolerations": [{"operator": "Exists"}], "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": INSTALLED_IN},
        "spec": {
            "selector": {"matchLabels": PODS},
            "template": {"metadata": {"labels": PODS}, "spec": pod},
        },
    }


def stand_in(kube: Kube) -> None:
    """In the place of the node agents, whose pods lose the label."""
    load_images(kube, [HANDLER])
    unlabelled = {"spec": {"template": {"metadata": {"labels": {LABEL: None}}}}}
    kube.patch(f"daemonset/{AGENT}", unlabelled, namespace=INSTALLED_IN)
    kube.apply(*rights(), daemons(), namespace=None)
    for name in (AGENT, NAME):
        kube.kubectl("rollout", "status", f"daemonset/{name}", "--timeout=240s", namespace=INSTALLED_IN)
    kube.ask_until("nodes that take machines", kube.offers_devices)
