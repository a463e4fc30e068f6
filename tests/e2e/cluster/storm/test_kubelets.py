"""Kubelets and containerd die, come back without devices, or do not learn that a pod is gone."""

import functools
import time

import pytest

from garboard_e2e.cluster.faults import believed, fault, node_is, silent_agent, without
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.storm import DISK, NODES, ROCK, WAVE, Storm, ids

# A kubelet that is well has killed a container within this, in seconds.
KILLED = 10


def test_kubelet_and_containerd_are_killed_during_a_start_and_during_a_stop(kube: Kube, storm: Storm) -> None:
    with storm.undisturbed(ROCK, WAVE):
        for number in storm.again():
            node, name = NODES[storm.random.choice([ROCK, WAVE])], f"kubelet{number}"
            kube.apply(machine(name, node=node))
            moment = functools.partial(kube.pods if number % 2 else storm.is_on_its_node, name)
            kube.wait("the moment", moment)
            with without(kube, f"{node}/kubelet", f"{node}/containerd"):
                pass
            kube.runs(name)
            kube.patch(f"vm/{name}", {"spec": {"runStrategy": "Halted"}})
            with without(kube, f"{node}/kubelet"):
                pass
            kube.is_gone(name)
            kube.remove(name)


def is_given_a_node(kube: Kube, name: str) -> bool:
    return bool((kube.current_pod(name) or {}).get("spec", {}).get("nodeName"))


def is_rejected(kube: Kube, name: str) -> bool:
    return "rejected the pod" in kube.tried("describe", "vmi", name)


@pytest.mark.long
def test_a_pod_that_a_kubelet_without_devices_rejects_is_made_again(kube: Kube, storm: Storm) -> None:
    """It has started again and does not have its devices yet. A machine that is to run once does so all the same."""
    with storm.undisturbed(ROCK, WAVE):
        for number in storm.again():
            name, node = f"once{number}", NODES[storm.random.choice([ROCK, WAVE])]
            with fault(kube, "a kubelet without devices"), silent_agent(kube, node):
                with without(kube, f"{node}/kubelet"):
                    kube.apply(machine(name, "Once", node=node))
                    kube.wait("a pod", functools.partial(kube.pods, name))
                    uid = kube.uid(name)
                    kube.wait("its node", functools.partial(is_given_a_node, kube, name))
                kube.ask_until("a pod that is rejected", functools.partial(is_rejected, kube, name))
            assert kube.runs(name) == uid, f"{name} has another instance"
            kube.remove(name)


def is_past(end: float) -> bool:
    return time.monotonic() > end


def test_nothing_runs_twice_when_a_pod_is_deleted_by_force_while_its_kubelet_is_away(kube: Kube, storm: Storm) -> None:
    """For longer than one that is well takes to kill: the agent sees that its QEMU runs on, and nothing follows before
    that has ended."""
    for _ in storm.again():
        name = storm.random.choice([ROCK, DISK])
        uid, old = kube.runs(name), kube.qemus(name)
        node = old[0]["node"]
        with believed(kube, node), without(kube, f"{node}/kubelet"):
            storm.delete_pod_by_force(name)
            end = time.monotonic() + KILLED
            kube.says_of_itself("vmi", name, "Ready", "the agent of node")
            kube.wait("the time of a kubelet that is well", functools.partial(is_past, end))
            assert node_is(kube, node, "True"), f"{node} was taken for lost meanwhile"
            assert kube.uid(name) == uid, "another one was started although it runs"
            assert ids(kube.qemus(name)) == ids(old), "another one was started although it runs"
        kube.runs(name, not_this=uid)
