"""Faults of the test cluster do what their names state, and end."""

import pathlib

import pytest

from garboard_e2e.cluster import build
from garboard_e2e.cluster.names import Object
from garboard_e2e.cluster.probes import PROBE, Probed, probe


def test_a_partition_is_noticed_and_heals(probed: Probed) -> None:
    restarts = probed.restarts_of("probe-node-2")
    probed.cluster("partition", "node-2")
    assert probed.state_of("node-2") == "partitioned"
    probed.wait_for_node("node-2", "Unknown")
    probed.cluster("heal", "node-2")
    probed.wait_for_node("node-2", "True")
    probed.wait_for_answer("probe-node-1", "probe-node-2")
    assert probed.restarts_of("probe-node-2") == restarts, "its pod restarted"


def test_a_killed_node_comes_back(probed: Probed) -> None:
    def boot() -> str:
        return str(probed.get("node", "node-2", namespace=None)["status"]["nodeInfo"]["bootID"])

    before = boot()
    probed.cluster("kill", "node-2")
    assert probed.state_of("node-2") == "down"
    probed.wait_for_node("node-2", "Unknown")
    probed.cluster("start", "node-2")
    probed.wait_for_node("node-2", "True")
    probed.ask_until("another boot", lambda: boot() != before)
    probed.ready("pod/probe-node-2")
    probed.wait_for_answer("probe-node-1", "probe-node-2")


def test_a_hang_of_the_api_server_ends(probed: Probed) -> None:
    probed.cluster("freeze", "kube-apiserver")
    assert probed.state_of("kube-apiserver") == "frozen"
    assert not probed.is_answered("3s"), "a frozen API server answered"
    probed.cluster("thaw", "kube-apiserver")
    probed.ask_until("an answer of the API server", probed.is_answered)


def test_a_hang_of_a_node_ends(probed: Probed) -> None:
    probed.wait_for_answer("probe-node-2", "probe-node-1")
    probed.cluster("freeze", "node-1")
    assert probed.state_of("node-1") == "frozen"
    assert not probed.answer_to_host("probe-node-1", 3), "a pod on a frozen node answered"
    probed.cluster("thaw", "node-1")
    probed.wait_for_node("node-1", "True")
    probed.wait_for_answer("probe-node-2", "probe-node-1")


# containerd before kubelet: a kubelet that is still starting when containerd goes away ends, and nothing here starts it
# again.
SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
AGENTS = ("node-1/containerd", "node-1/kubelet", "node-1/kube-proxy")


def test_killed_components_come_back_and_pods_stay(probed: Probed) -> None:
    def containerd_answers() -> bool:
        ctr = build.tools() / "ctr"
        return probed.call("exec", "node-1", "--", ctr, "--connect-timeout", "2s", "version").returncode == 0

    containers = probed.containers_of_probes()
    for component in (*SERVERS, *AGENTS):
        probed.cluster("kill", component)
        assert probed.state_of(component) == "gone", component
        probed.cluster("start", component)
        probed.ask_until("an answer of containerd", containerd_answers)
    probed.ask_until("an answer of the API server", probed.is_answered)
    probed.ask_until("a healthy cluster", lambda: probed.call("status").returncode == 0)
    assert probed.containers_of_probes() == containers, "a pod has another container"


def test_up_repairs_what_is_broken(probed: Probed) -> None:
    probed.cluster("kill", "kube-scheduler")
    probed.cluster("freeze", "node-1/kubelet")
    probed.cluster("partition", "node-1")
    probed.cluster("kill", "node-2")
    probed.cluster("up")
    probed.cluster("status")


def test_up_adds_a_third_node(probed: Probed, images: dict[str, pathlib.Path]) -> None:
    probed.cluster("up", "--nodes", 3)
    probed.cluster("load", images[PROBE], "--node", "node-3")
    probed.put(probe("node-3"))
    probed.ready("pod/probe-node-3")
    probed.wait_for_answer("probe-node-1", "probe-node-3")
    probed.wait_for_answer("probe-node-3", "probe-node-1")


def deployment() -> Object:
    """A hundred pods on nodes that are only played."""
    labels = {"app": "played"}
    container = {"name": "none", "image": "example.invalid/none"}
    on_played = {"nodeSelector": {"type": "kwok"}, "tolerations": [{"operator": "Exists"}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]} | on_played}
    spec = {"replicas": 100, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "played"}, "spec": spec}


def test_nodes_that_are_only_played_run_pods(probed: Probed) -> None:
    if not (build.tools() / "kwok").exists():
        pytest.skip("KWOK is not there, scripts/fetch-cluster --kwok builds it")

    def played() -> int:
        nodes = probed.kubectl("get", "nodes", "-l", "type=kwok", "--no-headers", namespace=None).splitlines()
        return sum(" Ready " in node for node in nodes)

    probed.cluster("up", "--kwok", 20)
    probed.ask_until("twenty more nodes", lambda: played() == 20)
    probed.put(deployment())
    available = "--for=condition=Available"
    probed.kubectl("wait", available, "deployment/played", "--timeout=180s", namespace="default")
    probed.kubectl("delete", "deployment", "played", namespace="default")
