"""What the node agent may write: machines, launcher pods and labels of its node, which is a claim of its token."""

import pytest

from garboard_e2e.api_server import ApiServer, Caller, Object
from garboard_e2e.rights import (
    AGENT,
    AGENT_1,
    ELSEWHERE_ACCOUNT,
    FALSE_AGENT,
    RUNNING,
    condition,
    granted,
    instance,
    labels,
    node,
    pod_status,
    refused,
    run,
)

ELSEWHERE = Caller(ELSEWHERE_ACCOUNT, node="node-1")
OTHER_NODE = "may not write a machine of node node-2"
ANSWER = "nothing is left of one on its node"


def of_pods(**pods: str | None) -> Object:
    return {"status": {"activePods": pods}}


def owner(**more: str) -> Object:
    return {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"} | more]}}


INSTANCES = {
    "the status of a machine of its node": granted(instance(AGENT_1, "vm-1", RUNNING)),
    "not of another node": refused(OTHER_NODE, instance(AGENT_1, "vm-2", RUNNING)),
    "not through an older version": refused(OTHER_NODE, instance(AGENT_1, "vm-2", RUNNING, "v1alpha3")),
    "not of none": refused("may not write a machine of node (none yet)", instance(AGENT_1, "vm-new", RUNNING)),
    "not without the claim": refused("the token is bound to no pod", instance(AGENT, "vm-1", RUNNING)),
    "does not give a machine away": refused(
        "to another node", instance(AGENT_1, "vm-1", {"status": {"nodeName": "node-2"}})
    ),
    "does not drop a machine": refused("to another node", instance(AGENT_1, "vm-1", {"status": None})),
    "does not take a machine": refused(
        "may not write a machine", instance(AGENT_1, "vm-2", {"status": {"nodeName": "node-1"}})
    ),
    "that nothing is left of a pod on its node": granted(instance(AGENT_1, "vm-1", of_pods(mine=""))),
    "not of a pod on another node": refused(ANSWER, instance(AGENT_1, "vm-1", of_pods(elsewhere=""))),
    "not of a machine of another node": refused(OTHER_NODE, instance(AGENT_1, "vm-2", of_pods(mine=""))),
    "no pod of its own making": refused(ANSWER, instance(AGENT_1, "vm-1", of_pods(forged="node-1"))),
    "moves no pod": refused(ANSWER, instance(AGENT_1, "vm-1", of_pods(mine="node-2"))),
    "forgets no pod": refused(ANSWER, instance(AGENT_1, "vm-1", of_pods(mine=None))),
    "not the spec": refused(
        "may not change the spec", instance(AGENT_1, "vm-1", {"spec": {"domain": {"devices": {"rng": {}}}}})
    ),
    "not the owners": refused("may not change the owners", instance(AGENT_1, "vm-1", owner())),
    "not the finalizers": refused(
        "may not change the finalizers", instance(AGENT_1, "vm-1", {"metadata": {"finalizers": None}})
    ),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_an_agent_writes_the_status_of_machines_of_its_node(server: ApiServer, name: str) -> None:
    INSTANCES[name].holds(server)


CONDITIONS, STATUS = "two conditions of a pod only", "nothing but conditions"
REPORT = {"type": "garboard.dev/launcher-report", "status": "True", "message": "{}"}
CONTAINER = {"name": "x", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
TWO_ADDRESSES = {"status": {"podIPs": [{"ip": "10.244.1.9"}, {"ip": "fd00::9"}]}}
NO_ADDRESS = {"status": {"podIP": None, "podIPs": None}}
PODS = {
    "the readiness gate of a launcher pod of its node": granted(condition(AGENT_1, "pod-1")),
    "not of another node": refused("of another node", condition(AGENT_1, "pod-2")),
    "not without the claim": refused("of another node", condition(AGENT, "pod-1")),
    "not of another kind of pod": refused("launcher pods only", condition(AGENT_1, "other-1")),
    "the report of a launcher pod of its node": granted(
        pod_status(AGENT_1, "pod-1", {"status": {"conditions": [REPORT]}})
    ),
    "no other condition of kubevirt.io": refused(CONDITIONS, condition(AGENT_1, "pod-1", "kubevirt.io/other")),
    "no other condition": refused(CONDITIONS, condition(AGENT_1, "pod-1", "Ready")),
    "not the phase of a pod": refused(STATUS, pod_status(AGENT_1, "pod-1", {"status": {"phase": "Succeeded"}})),
    "not why a pod is as it is": refused(STATUS, pod_status(AGENT_1, "pod-1", {"status": {"reason": "Evicted"}})),
    "not the containers of a pod": refused(
        STATUS, pod_status(AGENT_1, "pod-1", {"status": {"containerStatuses": [CONTAINER]}})
    ),
    # Not merged by their keys: the order of addresses counts.
    "no second address": refused(STATUS, pod_status(AGENT_1, "pod-1", TWO_ADDRESSES, "merge")),
    "drops no address": refused(STATUS, pod_status(AGENT_1, "pod-1", NO_ADDRESS, "merge")),
    "not the labels of a pod": refused(
        "labels, annotations", pod_status(AGENT_1, "pod-1", {"metadata": {"labels": {"app": "x"}}})
    ),
}


@pytest.mark.parametrize("name", PODS)
def test_an_agent_writes_two_conditions_of_launcher_pods_of_its_node(server: ApiServer, name: str) -> None:
    PODS[name].holds(server)


OWN_LABELS = "labels of kubevirt.io only"
HEARTBEAT = {"metadata": {"annotations": {"kubevirt.io/heartbeat": "now"}}}
CONNECTED = {"metadata": {"annotations": {"garboard.dev/connected-controllers": "2 now"}}}
OTHERS = {"metadata": {"annotations": {"garboard.dev/another": "now"}}}
MARKS = {"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/qemu64": "true"}
NODES = {
    "labels of its node": granted(labels(AGENT_1, "node-1", MARKS)),
    "removes such a label": granted(labels(AGENT_1, "node-1", {"kubevirt.io/schedulable": None})),
    "the heartbeat": granted(node(AGENT_1, "node-1", HEARTBEAT)),
    "to how many controllers it is connected": granted(node(AGENT_1, "node-1", CONNECTED)),
    "no other annotation": refused("connected-controllers only", node(AGENT_1, "node-1", OTHERS)),
    "not of another node": refused("may not write another node", labels(AGENT_1, "node-2", {"kubevirt.io/x": "y"})),
    "no other label": refused(OWN_LABELS, labels(AGENT_1, "node-1", {"node-role.kubernetes.io/control-plane": ""})),
    "none that only looks like it": refused(OWN_LABELS, labels(AGENT_1, "node-1", {"evilkubevirt.io/x": ""})),
    "removes no other label": refused(OWN_LABELS, labels(AGENT_1, "node-1", {"kubernetes.io/os": None})),
    "no taint": refused(
        "may not change the spec",
        node(AGENT_1, "node-1", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_an_agent_writes_labels_of_kubevirt_io_of_its_node(server: ApiServer, name: str) -> None:
    NODES[name].holds(server)


# An overlay may install into another namespace.
NAMESPACES = {
    "elsewhere, a machine of its node": granted(instance(ELSEWHERE, "vm-1", RUNNING)),
    "elsewhere, not of another node": refused(OTHER_NODE, instance(ELSEWHERE, "vm-2", RUNNING)),
    "elsewhere, not another node": refused(
        "may not write another node", labels(ELSEWHERE, "node-2", {"kubevirt.io/x": "y"})
    ),
    "elsewhere, not a pod of another node": refused("of another node", condition(ELSEWHERE, "pod-2")),
    # No webhook is here to be asked: that it would be is what distinguishes it from the agent.
    "one that is only called so is judged like any other user": refused(
        "failed calling webhook", instance(FALSE_AGENT, "vm-1", RUNNING)
    ),
}


@pytest.mark.parametrize("name", NAMESPACES)
def test_an_agent_is_known_by_its_role_and_not_by_its_namespace(server: ApiServer, name: str) -> None:
    NAMESPACES[name].holds(server)


RUNS = {
    "the record of a run on its node": granted(run(AGENT_1, "node-1")),
    "not of another node": refused("may not write a record of another node", run(AGENT_1, "node-2")),
    "not without the claim": refused("may not write a record of another node", run(AGENT, "node-1")),
    "no owner but its machine": refused(
        "no owner but its VirtualMachine", run(AGENT_1, "node-1", **owner()["metadata"])
    ),
    "no finalizer": refused("a record has no finalizers", run(AGENT_1, "node-1", finalizers=["example.com/hold"])),
    "it ends after it began": refused(
        "a run ends after it began", run(AGENT_1, "node-1", {"endedAt": "2025-12-31T23:59:59Z"})
    ),
    "a cause is a name": refused("spec.reason", run(AGENT_1, "node-1", {"reason": "none of the usual ones"})),
    "no text without an end": refused("spec.serial", run(AGENT_1, "node-1", {"serial": "x" * 20000})),
}


@pytest.mark.parametrize("name", RUNS)
def test_an_agent_keeps_records_of_runs_of_its_node(server: ApiServer, name: str) -> None:
    RUNS[name].holds(server)
