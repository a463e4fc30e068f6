"""Brings a test cluster to what it was when it came up: without Garboard, without anything that a test has made."""

from ..outcome import Failure
from .names import INSTALLED_IN
from .program import Cluster

# Those that Kubernetes makes.
NAMESPACES = {"default", "kube-node-lease", "kube-public", "kube-system"}
# What tests make that is in no namespace, and what an installation has there beside the definitions of its objects.
WHOLE_KINDS = (
    "crd",
    "pv",
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
)
# Of these Kubernetes has some of its own.
INSTALLED_KINDS = ("clusterrolebindings", "clusterroles", "flowschemas", "priorityclasses")
OF_GARBOARD = ("-l", "app.kubernetes.io/name=garboard")
# The name server that KubeVirt's functional tests have around them (reference/dns.py).
NAME_SERVER_KINDS = "deployments,services,configmaps,serviceaccounts,clusterrolebindings,clusterroles"
OF_NAME_SERVER = ("-l", "k8s-app=kube-dns")
LABELS_OF_GARBOARD = ("kubevirt.io", "garboard.dev")
# How long each step may take, in seconds: where it takes longer, another cluster is made sooner.
STEP = 90


def empty(cluster: Cluster, nodes: int) -> None:
    """Fails where that is not possible."""
    machines_go(cluster)
    others = [name for name in namespaces(cluster) if name not in {*NAMESPACES, INSTALLED_IN}]
    if others:
        delete(cluster, "namespace", *others)
    # Before what serves it goes: a namespace ends when the API server has all that may be in it.
    delete(cluster, "apiservices", *OF_GARBOARD)
    # With their pods, and before their namespace: Kubernetes looks again at one with pods only after half of their
    # grace period, which is 20 s for controllers.
    delete(cluster, "deployments,daemonsets", "--all", "--namespace", INSTALLED_IN, "--cascade=foreground")
    delete(cluster, "namespace", INSTALLED_IN)
    for kind in WHOLE_KINDS:
        delete(cluster, kind, "--all")
    for kind in INSTALLED_KINDS:
        delete(cluster, kind, *OF_GARBOARD)
    # The one part of an installation that is in another namespace than its own (deploy/base/controller-rbac.yaml).
    delete(cluster, "rolebindings", "--namespace", "kube-system", *OF_GARBOARD)
    name_server_goes(cluster)
    for node in nodes_as_new(cluster, nodes):
        cluster.kubectl("label", "node", *node, namespace=None)


def delete(cluster: Cluster, *what: str) -> None:
    cluster.kubectl("delete", *what, "--ignore-not-found", f"--timeout={STEP}s", namespace=None)


def machines_go(cluster: Cluster) -> None:
    """While there are controllers that end them in order."""
    groups = ("kubevirt.io", "pool.kubevirt.io")
    asked = [("api-resources", f"--api-group={group}", "-o", "name") for group in groups]
    served = {kind for each in asked for kind in cluster.kubectl(*each, namespace=None).split()}
    for kind in (
        "virtualmachinepools.pool.kubevirt.io",
        "virtualmachines.kubevirt.io",
        "virtualmachineinstancereplicasets.kubevirt.io",
        "virtualmachineinstances.kubevirt.io",
    ):
        if kind in served:
            delete(cluster, kind, "--all", "--all-namespaces")


def name_server_goes(cluster: Cluster) -> None:
    """With its pods."""
    delete(cluster, NAME_SERVER_KINDS, "--namespace", "kube-system", "--cascade=foreground", *OF_NAME_SERVER)


def namespaces(cluster: Cluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.items("namespaces", namespace=None)]


def nodes_as_new(cluster: Cluster, nodes: int) -> list[list[str]]:
    """For each node with labels of an installation what takes them away; fails where a node itself is another one."""
    found, changes = cluster.items("nodes", namespace=None), []
    if len(found) != nodes:
        raise Failure(f"there are {len(found)} nodes, not {nodes}")
    for node in found:
        taints = node["spec"].get("taints", [])
        is_played = "kwok.x-k8s.io/node" in node["metadata"].get("annotations", {})
        if (taints and not is_played) or node["spec"].get("unschedulable"):
            raise Failure(f"{node['metadata']['name']} takes no pods: {taints}")
        labels = node["metadata"].get("labels", {})
        own = [name for name in labels if any(domain in name for domain in LABELS_OF_GARBOARD)]
        if own:
            changes.append([node["metadata"]["name"], *(f"{name}-" for name in own)])
    return changes
