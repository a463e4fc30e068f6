"""The test cluster comes up, and its parts work."""

import pathlib

import pytest

from garboard_e2e.cluster.names import Object
from garboard_e2e.cluster.probes import DATA, GREETING, NEWER_PROBE, PORT, PROBE, Probed, pod
from garboard_e2e.outcome import Failure


def test_two_nodes_come_up(cluster: Probed, up: str) -> None:
    assert up.splitlines()[-1] == f"export KUBECONFIG={cluster.state}/kubeconfig"
    # Fails where one of the parts is not well.
    cluster.cluster("status")
    ready = [node for node in ("node-1", "node-2") if cluster.node_is(node, "True")]
    assert ready == [node["metadata"]["name"] for node in cluster.items("nodes", namespace=None)]


def test_a_second_up_changes_nothing(cluster: Probed, up: str) -> None:
    before = cluster.numbers()
    again = cluster.call("up")
    assert again.returncode == 0 and "already up" in again.stderr, again.stderr
    assert cluster.numbers() == before, "a process has changed"


def test_images_are_loaded(cluster: Probed, loaded: None) -> None:
    assert PROBE in cluster.inside("node-2", "ctr", "images", "list", "-q").split()


def test_a_pod_runs_on_each_node(probed: Probed) -> None:
    for node in ("node-1", "node-2"):
        assert probed.object("pod", f"probe-{node}")["spec"]["nodeName"] == node


def test_pods_reach_each_other_across_nodes(probed: Probed) -> None:
    probed.wait_for_answer("probe-node-1", "probe-node-2")
    probed.wait_for_answer("probe-node-2", "probe-node-1")


@pytest.mark.parametrize("node", ["node-1", "node-2"])
def test_the_host_reaches_pods(probed: Probed, node: str) -> None:
    probed.wait_for_answer(f"probe-{node}", f"probe-{node}")
    assert probed.answer_to_host(f"probe-{node}", 60) == f"probe-{node}"


def test_a_service_is_reached(probed: Probed) -> None:
    port = {"port": 80, "targetPort": PORT}
    spec = {"selector": {"app": "probe"}, "ports": [port]}
    probed.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe"}, "spec": spec})
    address = probed.object("service", "probe")["spec"]["clusterIP"]

    def answers() -> set[str]:
        return {probed.answer("probe-node-1", address, 80) for _ in range(4)}

    both = {"probe-node-1", "probe-node-2"}
    probed.ask_until("answers of the pods on this node and on the other", lambda: answers() >= both)


def test_the_api_is_reached_from_inside(probed: Probed) -> None:
    def is_reached() -> bool:
        connects = ["exec", "-i", "probe-node-1", "--", "/bin/busybox", "nc", "-w", "3", "10.96.0.1", "443"]
        try:
            probed.kubectl(*connects, text="", namespace="default")
        except Failure:
            return False
        return True

    probed.ask_until("the API, from inside", is_reached)


def test_an_image_is_a_volume_and_kubectl_prints_logs(cluster: Probed, loaded: None) -> None:
    volume = {"name": "data", "image": {"reference": DATA, "pullPolicy": "Never"}}
    mounts = [{"name": "data", "mountPath": "/data"}]
    cluster.put(pod("reader", "cat", "/data/greeting", mounts=mounts, volumes=[volume], restartPolicy="Never"))
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", ended, "pod/reader", "--timeout=180s", namespace="default")
    assert cluster.kubectl("logs", "reader", namespace="default") == f"{GREETING}\n"
    cluster.kubectl("delete", "pod", "reader", "--wait", namespace="default")


def test_a_native_sidecar_is_replaced_alone(cluster: Probed, loaded: None) -> None:
    aided = pod("aided", "sleep", "100000")
    aided["spec"]["initContainers"] = [aided["spec"]["containers"][0] | {"name": "sidecar", "restartPolicy": "Always"}]
    cluster.put(aided)
    cluster.ready("pod/aided")

    def status() -> Object:
        found: Object = cluster.object("pod", "aided")["status"]
        return found

    before = status()["containerStatuses"][0]["containerID"]
    change = [{"op": "replace", "path": "/spec/initContainers/0/image", "value": NEWER_PROBE}]
    cluster.patch("pod/aided", change, "json", namespace="default")
    cluster.ask_until("a restart of the sidecar", lambda: status()["initContainerStatuses"][0]["restartCount"] == 1)
    assert status()["containerStatuses"][0]["containerID"] == before, "the other container restarted too"
    cluster.kubectl("delete", "pod", "aided", "--wait", namespace="default")


def test_requests_are_in_the_audit_log(cluster: Probed, up: str) -> None:
    cluster.kubectl("create", "configmap", "counted", namespace="default")
    wanted = ('"resource":"configmaps"', '"name":"counted"', '"verb":"create"')

    def creations() -> int:
        lines = cluster.audit_log.read_text().splitlines()
        return sum(all(part in line for part in wanted) for line in lines)

    # It is logged when it was answered.
    cluster.ask_until("one such request in the log", lambda: creations() == 1)


WRONG = (
    "kill nothing",
    "kill node-9",
    "freeze kwok",
    "partition etcd",
    "start node-0",
    "exec node-9 -- true",
    "load /does/not/exist",
)


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_arguments_are_refused(cluster: Probed, up: str, arguments: str) -> None:
    done = cluster.call(*arguments.split())
    assert done.returncode != 0, "it succeeded"
    assert 1 <= len((done.stdout + done.stderr).splitlines()) <= 6, done.stderr


def test_a_second_cluster_is_refused_beside_one_that_runs(cluster: Probed, up: str) -> None:
    other = Probed(cluster.program, "other")
    done = other.call("up")
    assert done.returncode != 0, "a second cluster came up"
    assert "another cluster" in done.stderr, done.stderr
    assert not pathlib.Path("/run/garboard-cluster/other").exists(), "a refused cluster left a directory"
