"""CoreDNS on a test cluster, which has no name server of its own: names of Services and of pods, and one name outside
of the cluster. The objects are called as kubeadm calls them: the functional tests look for the Service by its name."""

import contextlib

from ..cluster.emptying import name_server_goes
from ..cluster.kube import Kube
from ..cluster.names import INSTALLED_IN, Object
from ..guests import NAMES
from ..outcome import Failure
from ..patience import PATIENCE
from .preparation import OPERATOR, load_images

NAMESPACE, ACCOUNT, SERVICE = "kube-system", "coredns", "kube-dns"
# `emptying` removes by it what a run that was interrupted left.
LABELS = {"k8s-app": SERVICE}
# Of the addresses that the API server gives to no other Service by itself; that of kubeadm.
CLUSTER_ADDRESS = "10.96.0.10"
# The host. Kubelets send pods there (tests/cluster/src/config/kubelet.rs), where nothing listens: kube-proxy brings
# what is sent to the port of the Service to it.
ADDRESS, DOMAIN = "172.30.0.1", "cluster.local"
# What stands for the rest of the world, which the cluster does not reach: the host, outside of all nodes and pods.
OUTSIDE = "outside.example"
RBAC = "rbac.authorization.k8s.io"
# Two servers, for in one of them CoreDNS asks `template` before `kubernetes`. Nothing is forwarded: nodes have an empty
# resolv.conf, and no way to the Internet.
COREFILE = f"""\
{DOMAIN} in-addr.arpa ip6.arpa {{
    errors
    health
    ready
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
    }}
}}
. {{
    errors
    template IN A {OUTSIDE} {{
        answer "{{{{ .Name }}}} 5 IN A {ADDRESS}"
    }}
    template ANY ANY {OUTSIDE} {{
        rcode NOERROR
    }}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def labelled(version: str, kind: str, name: str, namespace: str | None, content: Object) -> Object:
    metadata = {"name": name, "labels": LABELS} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata} | content


def rights() -> list[Object]:
    """An account that sees what has names."""
    name, seen = f"system:{ACCOUNT}", ["list", "watch"]
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    rules = [
        {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": seen},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": seen},
    ]
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    return [
        labelled("v1", "ServiceAccount", ACCOUNT, NAMESPACE, {}),
        labelled(f"{RBAC}/v1", "ClusterRole", name, None, {"rules": rules}),
        labelled(f"{RBAC}/v1", "ClusterRoleBinding", name, None, {"roleRef": role, "subjects": [account]}),
    ]


def container() -> Object:
    return {
        "name": "coredns",
        "image": NAMES,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": {"cpu": "10m", "memory": "50Mi"}, "limits": {"memory": "170Mi"}},
        "ports": [{"containerPort": 53, "protocol": protocol} for protocol in ("UDP", "TCP")],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "failureThreshold": 12},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }


def deployment() -> Object:
    """One on each of two nodes, whatever tests do to one of them."""
    apart = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    pod = {
        "serviceAccountName": ACCOUNT,
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [apart | {"labelSelector": {"matchLabels": LABELS}}],
        "containers": [container()],
        "volumes": [{"name": "config", "configMap": {"name": ACCOUNT}}],
    }
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template}
    return labelled("apps/v1", "Deployment", ACCOUNT, NAMESPACE, {"spec": spec})


def service() -> Object:
    """Its second address is the one that pods have in their resolv.conf."""
    ports = [
        {"name": f"dns-{protocol.lower()}", "port": 53, "targetPort": 53, "protocol": protocol}
        for protocol in ("UDP", "TCP")
    ]
    spec = {"clusterIP": CLUSTER_ADDRESS, "externalIPs": [ADDRESS], "selector": LABELS, "ports": ports}
    return labelled("v1", "Service", SERVICE, NAMESPACE, {"spec": spec})


def objects() -> list[Object]:
    settings = labelled("v1", "ConfigMap", ACCOUNT, NAMESPACE, {"data": {"Corefile": COREFILE}})
    return [*rights(), settings, deployment(), service()]


class NameServer:
    """There, and asked by pods, until it is left."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    def __enter__(self) -> "NameServer":
        load_images(self.kube, [NAMES])
        self.kube.apply(*objects(), namespace=None)
        ready = ["rollout", "status", f"deployment/{ACCOUNT}", f"--timeout={PATIENCE:.0f}s"]
        self.kube.kubectl(*ready, namespace=NAMESPACE)
        for name in (f"kubernetes.default.svc.{DOMAIN}", OUTSIDE):
            self.await_answer(name)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Failure):
            name_server_goes(self.kube)

    def await_answer(self, name: str) -> None:
        """To a pod, which asks where its resolv.conf says."""
        ask = ["exec", f"deployment/{OPERATOR}", "--", "nslookup", name]
        self.kube.ask_until(f"a pod finds {name}", lambda: self.kube.tried(*ask, namespace=INSTALLED_IN))
