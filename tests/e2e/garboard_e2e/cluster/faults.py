"""Faults of a test cluster, undone at the end of their `with`; the history records that they were on purpose."""

import contextlib
import datetime
import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator

from ..outcome import Failure
from .names import AGENT, NAMESPACE
from .program import Cluster
from .watched import Watched


@contextlib.contextmanager
def fault(kube: Watched, what: str, mutes: bool = True, forced: Iterable[str] = ()) -> Iterator[None]:
    """For the model (`history.py`): something is broken, and no report arrives while it `mutes`. Of machines that are
    `forced` an operator has reported that their QEMU is gone."""
    machines = [f"{NAMESPACE}/{name}" for name in forced]
    kube.recorder.note("fault", name=what, over=False, mutes=mutes, forced=machines)
    try:
        yield
    finally:
        kube.recorder.note("fault", name=what, over=True)


@contextlib.contextmanager
def without(kube: Watched, *components: str) -> Iterator[None]:
    """Programs of the cluster killed, in this order, and started in the other."""
    with fault(kube, f"{components} killed"):
        for component in components:
            kube.cluster("kill", component)
        try:
            yield
        finally:
            for component in reversed(components):
                bring_back(kube, component)
            kube.ask_until("an answer of the API server", lambda: is_ready(kube))


@contextlib.contextmanager
def frozen(kube: Watched, node: str) -> Iterator[None]:
    """A node hangs, until it is Ready again."""
    with broken(kube, node, "freeze", "thaw"):
        yield


@contextlib.contextmanager
def cut_off(kube: Watched, node: str) -> Iterator[None]:
    """A node runs on without a network; until it is Ready again."""
    with broken(kube, node, "partition", "heal"):
        yield


@contextlib.contextmanager
def broken(kube: Watched, node: str, verb: str, back: str) -> Iterator[None]:
    with fault(kube, f"{node} {verb}"):
        kube.cluster(verb, node)
        try:
            yield
        finally:
            kube.cluster(back, node)
            kube.ask_until(f"{node} Ready", lambda: node_is(kube, node, "True"))
            kube.ask_until(f"the agent of {node}", kube.offers_devices)


def is_ready(kube: Cluster) -> bool:
    return kube.tried("get", "--raw", "/readyz", "--request-timeout=3s") == "ok"


def bring_back(kube: Cluster, component: str) -> None:
    """Started until it stays: the port of one that was killed may be taken for another moment."""
    kube.ask_until(f"{component} again", lambda: comes_back(kube, component))


def comes_back(kube: Cluster, component: str) -> bool:
    kube.cluster("start", component, check=False)
    status = kube.status() or {"nodes": [], "servers": []}
    programs = [*status["servers"], *(agent for node in status["nodes"] for agent in node["agents"])]
    runs = any(each["name"] == component and each["state"] == "running" for each in programs)
    return runs and (component != "kube-apiserver" or is_ready(kube))


def node_is(kube: Cluster, node: str, wanted: str) -> bool:
    """Whether the condition Ready of a node is this."""
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return kube.tried("get", "node", node, "-o", path, namespace=None) == wanted


@contextlib.contextmanager
def believed(kube: Cluster, node: str) -> Iterator[None]:
    """A node is not missed although its kubelet is away, however long that takes here: its Lease is renewed."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(2):
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            change = json.dumps({"spec": {"renewTime": now}})
            kube.tried("patch", "lease", node, "--type=merge", "-p", change, namespace="kube-node-lease")

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()


@contextlib.contextmanager
def silent_agent(kube: Cluster, node: str) -> Iterator[None]:
    """The node agent of a node stands still."""
    there = [pod for pod in kube.agents() if "deletionTimestamp" not in pod["metadata"]]
    pods = [pod["metadata"]["uid"] for pod in there if pod["spec"].get("nodeName") == node]
    processes = [process for pod in pods for process in kube.processes_of(pod, AGENT)]
    if not processes:
        raise Failure(f"there is no agent on {node}")
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
