"""Faults of a test cluster, put right whatever happens."""

import contextlib
import datetime
import json
import os
import signal
import threading

from kube import NAMESPACE, Failure


def expect(holds, sentence):
    if not holds:
        raise Failure(sentence)


@contextlib.contextmanager
def fault(kube, what, mutes=True, forced=()):
    kube.recorder.note("fault", name=what, over=False, mutes=mutes, forced=[f"{NAMESPACE}/{name}" for name in forced])
    try:
        yield
    finally:
        kube.recorder.note("fault", name=what, over=True)


@contextlib.contextmanager
def without(kube, *components):
    """Killed, in this order, and started in the other."""
    with fault(kube, f"{components} killed"):
        for component in components:
            kube.cluster("kill", component)
        try:
            yield
        finally:
            for component in reversed(components):
                kube.ask_until(f"{component} again", lambda what=component: comes_back(kube, what))
            kube.ask_until("an answer of the API server", lambda: is_ready(kube))


@contextlib.contextmanager
def broken(kube, node, verb, back):
    """A node that is frozen or cut off, until it is Ready again."""
    with fault(kube, f"{node} {verb}"):
        kube.cluster(verb, node)
        try:
            yield
        finally:
            kube.cluster(back, node)
            kube.ask_until(f"{node} Ready", lambda: node_is(kube, node, "True"))
            kube.ask_until(f"the agent of {node}", lambda: kube.offers_devices())


def is_ready(kube):
    with contextlib.suppress(Failure):
        return kube.kubectl("get", "--raw", "/readyz", "--request-timeout=3s") == "ok"


def comes_back(kube, component):
    """Started until it stays: the port of one that was killed may be taken for another moment."""
    kube.cluster("start", component, check=False)
    status = json.loads(kube.cluster("status", "-o", "json", check=False))
    agents = [agent for node in status["nodes"] for agent in node["agents"]]
    runs = any(each["name"] == component and each["state"] == "running" for each in status["servers"] + agents)
    return runs and (component != "kube-apiserver" or is_ready(kube))


def node_is(kube, node, wanted):
    with contextlib.suppress(Failure):
        ready = kube.kubectl("get", "node", node, "-o", 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')
        return ready == wanted


@contextlib.contextmanager
def believed(kube, node):
    """A node is not missed although its kubelet is away, however long that takes here: its Lease is renewed."""
    over = threading.Event()

    def renew():
        while not over.wait(2):
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            with contextlib.suppress(Failure):
                kube.kubectl("patch", "lease", node, "--type=merge", "-p", json.dumps({"spec": {"renewTime": now}}), namespace="kube-node-lease")

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()


@contextlib.contextmanager
def silent_agent(kube, node):
    """The node agent of a node stands still."""
    pods = json.loads(kube.kubectl("get", "pods", "-l", "app.kubernetes.io/component=node", "-o", "json", namespace="garboard"))["items"]
    agent = next(pod["metadata"]["uid"] for pod in pods
                 if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"])
    processes = kube.processes_of(agent, "garboard-node")
    expect(processes, f"no agent on {node}")
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
