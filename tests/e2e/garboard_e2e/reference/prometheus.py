"""Debian's Prometheus on the cluster of KubeVirt's functional tests, where those of monitoring look for one. It scrapes
Garboard and judges it as the objects of deploy/base/monitoring.yaml say, which are applied as users apply them.

There is no operator of Prometheus: its kinds are defined, and this module does what it does with them, and finds the
targets, which Debian's Prometheus cannot. A change of a rule, as tests make it, is in force some seconds later.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable

from ..answer import Answer
from ..cluster.kube import Kube
from ..cluster.names import INSTALLED_IN, QEMU_USER, Object
from ..guests import PROMETHEUS
from ..outcome import Failure
from ..patience import PATIENCE
from ..places import REPOSITORY
from . import scrapes
from .handler import RBAC, WITH_GARBOARD
from .preparation import OPERATOR, load_images

# Specifications with this label need it.
LABEL = "sig-monitoring"
MANIFEST = REPOSITORY / "deploy/base/monitoring.yaml"
# kube-prometheus' names, which the suite has built in (tests/libmonitoring/prometheus.go).
NAMESPACE, NAME, PORT = "monitoring", "prometheus-k8s", 9090
PODS = {"app.kubernetes.io/name": "prometheus"}
KINDS = {"ServiceMonitor": "servicemonitors", "PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
# What targets are found by.
FOUND_BY = ("services", "endpoints", "pods")
JOBS = {"kubevirt-prometheus-metrics", "garboard-node", scrapes.API_SERVERS_JOB}
# Where its files are, for nodes have the host's: beneath it.
PLACE = "/srv"
# Seconds between two looks at all of these, and for an answer of Prometheus.
PAUSE, ANSWERS = 2, 10


def definition(kind: str, plural: str) -> Object:
    """Of a kind of the operator, whatever is in it: who reads it here refuses what it does not know."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{scrapes.GROUP}"},
        "spec": {"group": scrapes.GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def rights() -> list[Object]:
    """An account that may read the API server's metrics. For Garboard's there is the token that its monitors name."""
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    metrics = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME}
    whole = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": NAME, "labels": WITH_GARBOARD}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}},
        {"kind": "ClusterRole", "rules": [metrics]} | whole,
        {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]} | whole,
    ]


def container() -> Object:
    return {
        "name": "prometheus",
        "image": PROMETHEUS,
        "imagePullPolicy": "Never",
        "args": [
            f"--config.file={scrapes.DIRECTORY}/{scrapes.CONFIGURATION}",
            "--storage.tsdb.path=/data",
            "--storage.tsdb.retention.time=3h",
            "--web.enable-lifecycle",
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "100Mi"}, "limits": {"memory": "600Mi"}},
        "ports": [{"name": "web", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "web"}, "periodSeconds": 2},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "files", "mountPath": scrapes.DIRECTORY, "readOnly": True},
            {"name": "data", "mountPath": "/data"},
        ],
    }


def deployment(place: pathlib.Path) -> Object:
    """Its files are in a directory of the host, which nodes see too: a ConfigMap would arrive a minute late."""
    pod = {
        "serviceAccountName": NAME,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container()],
        "volumes": [
            {"name": "files", "hostPath": {"path": str(place), "type": "Directory"}},
            {"name": "data", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": PODS},
            "template": {"metadata": {"labels": PODS}, "spec": pod},
        },
    }


def service() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"selector": PODS, "ports": [{"name": "web", "port": PORT, "targetPort": "web"}]},
    }


def rewritten(rules: Object) -> Object:
    """A PrometheusRule as it is applied: without what the API server has added."""
    metadata = {key: rules["metadata"][key] for key in ("name", "namespace", "labels")}
    return {"apiVersion": rules["apiVersion"], "kind": rules["kind"], "metadata": metadata, "spec": rules["spec"]}


class Prometheus:
    """There, and up to date with the operator's objects, until it is left."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="gbprom-", dir=PLACE))
        self.place.chmod(0o755)
        # Our rules as they were applied, what monitors name, what Prometheus has loaded, and its targets' errors.
        self.rules: Object = {}
        self.entries: dict[scrapes.Entry, str] = {}
        self.loaded: dict[str, str] = {}
        self.seen: list[tuple[str, str]] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self) -> "Prometheus":
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self) -> None:
        load_images(self.kube, [PROMETHEUS])
        self.define()
        objects = self.objects()
        (ours,) = [each for each in objects if each["kind"] == "PrometheusRule"]
        self.rules = rewritten(ours)
        self.loaded = self.made(objects)
        self.write(self.loaded)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.kube.apply(namespace, *rights(), service(), deployment(self.place), namespace=None)
        ready = ["rollout", "status", f"deployment/{NAME}", f"--timeout={PATIENCE:.0f}s"]
        self.kube.kubectl(*ready, namespace=NAMESPACE)
        try:
            self.kube.ask_until("a Prometheus whose targets are all up", self.scrapes_all)
        except Failure as failure:
            raise Failure(f"{failure}; {self.seen}") from failure
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join()
        with contextlib.suppress(Failure):
            goes = ["delete", "namespace", NAMESPACE, "--ignore-not-found", f"--timeout={PATIENCE:.0f}s"]
            self.kube.kubectl(*goes, namespace=None)
        shutil.rmtree(self.place, ignore_errors=True)

    def define(self) -> None:
        """The operator's kinds, and of them what users of Garboard apply."""
        definitions = [definition(kind, plural) for kind, plural in KINDS.items()]
        self.kube.apply(*definitions, namespace=None)
        for each in definitions:
            name = f"crd/{each['metadata']['name']}"
            self.kube.kubectl("wait", "--for=condition=Established", name, "--timeout=60s", namespace=None)
        # What is established is found by clients a moment later.
        self.kube.ask_until(
            "what Prometheus' operator gets", lambda: self.kube.tried("apply", "-f", MANIFEST, namespace=None)
        )

    # ---- the operator

    def objects(self) -> list[Object]:
        every = [*(f"{plural}.{scrapes.GROUP}" for plural in KINDS.values()), *FOUND_BY]
        return self.kube.items(",".join(every), namespace=INSTALLED_IN)

    def serve(self) -> None:
        """Until it is stopped. A look that fails, because the API server is busy, is followed by another one."""
        while not self.stop.wait(PAUSE):
            with contextlib.suppress(Failure, OSError, http.client.HTTPException, subprocess.SubprocessError):
                self.look()

    def look(self) -> None:
        objects = self.objects()
        self.restore(objects)
        made = self.made(objects)
        changed = {name for name, text in made.items() if self.loaded.get(name) != text}
        self.write({name: made[name] for name in changed})
        if changed - set(scrapes.TARGETS.values()):
            answer = self.ask("POST", "/-/reload")
            if not answer.is_granted:
                raise Failure(f"Prometheus does not take its files: {answer.text}")
        self.loaded = made

    def restore(self, objects: Iterable[Object]) -> None:
        """Tests that change our rules leave it to KubeVirt's operator, which they scale up again, to put them back. Its
        Deployment does nothing here: this does it."""
        mine = (self.rules["kind"], self.rules["metadata"]["name"])
        ours = [each for each in objects if (each["kind"], each["metadata"]["name"]) == mine]
        if [each["spec"] for each in ours] == [self.rules["spec"]]:
            return
        deployments = self.kube.items("deployments", namespace=INSTALLED_IN)
        if any(each["metadata"]["name"] == OPERATOR and each["spec"]["replicas"] for each in deployments):
            self.kube.apply(self.rules, namespace=None)

    def made(self, objects: list[Object]) -> dict[str, str]:
        """The files that Prometheus is to have. What monitors name is read once: it does not change meanwhile."""
        monitors = [each for each in objects if each["kind"] in ("ServiceMonitor", "PodMonitor")]
        for entry in set(scrapes.entries(monitors)) - self.entries.keys():
            self.entries[entry] = self.awaited(entry)
        return scrapes.files(objects, self.entries)

    def write(self, files: dict[str, str]) -> None:
        """Each of them whole."""
        for name, text in files.items():
            unfinished = self.place / f".{name}"
            unfinished.write_text(text)
            # A token is among them.
            os.chown(unfinished, QEMU_USER, QEMU_USER)
            unfinished.chmod(0o400)
            unfinished.rename(self.place / name)

    def awaited(self, entry: scrapes.Entry) -> str:
        """The token of a Secret comes later than the Secret."""
        return self.kube.ask_until(f"{entry.key} of the {entry.kind} {entry.name}", lambda: self.read(entry))

    def read(self, entry: scrapes.Entry) -> str:
        """Nothing as long as it is not there."""
        found = self.kube.get(f"{entry.kind}/{entry.name}", namespace=entry.namespace)
        text: str = found.get("data", {}).get(entry.key, "")
        return base64.b64decode(text).decode() if entry.kind == "secret" else text

    # ---- Prometheus

    def ask(self, method: str, path: str) -> Answer:
        """The pod itself: the host has a way to pods, and none to Services."""
        selector = ",".join(f"{name}={value}" for name, value in PODS.items())
        pods = self.kube.items("pods", "-l", selector, namespace=NAMESPACE)
        addresses = [pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")]
        if not addresses:
            raise Failure("Prometheus has no pod")
        with contextlib.closing(http.client.HTTPConnection(addresses[0], PORT, timeout=ANSWERS)) as connection:
            connection.request(method, path)
            return Answer.read(connection)

    def scrapes_all(self) -> bool:
        """Whether each job has targets, and each of them answers."""
        with contextlib.suppress(Failure, OSError, http.client.HTTPException, json.JSONDecodeError):
            targets = json.loads(self.ask("GET", "/api/v1/targets").text)["data"]["activeTargets"]
            self.seen = [(target["scrapeUrl"], target["lastError"]) for target in targets]
            answering = all(target["health"] == "up" for target in targets)
            return answering and {target["labels"]["job"] for target in targets} == JOBS
        return False
