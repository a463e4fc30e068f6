"""VirtualMachineInstanceReplicaSets: scaled, replaced, adopted, released, paused and refused."""

import contextlib
import functools
import json
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.replica_sets import Replicas, replica_set

Make = Callable[..., Replicas]
COLUMNS = ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]


@pytest.fixture
def make(kube: Kube) -> Iterator[Make]:
    """Applies sets, which go before their instances are removed: they would make others."""
    with contextlib.ExitStack() as made:

        def apply(name: str, replicas: int | None, **more: object) -> Replicas:
            kube.apply(replica_set(name, replicas, **more))
            found = Replicas(kube, name)
            made.callback(found.delete)
            return found

        yield apply


def test_a_set_is_scaled_by_kubectl_and_shows_how_many_there_are(kube: Kube, make: Make) -> None:
    replicas = make("scaled", None)
    first = replicas.comes_to(1)
    assert all(name.startswith("scaled") and len(name) == len("scaled") + 5 for name in first), f"named {first}"
    replicas.scale(3)
    three = replicas.comes_to(3)
    assert first.items() <= three.items(), "a scale to more replaced what was there"
    assert sorted(replicas.owned()) == sorted(three), "an instance has no owner"
    head, row = (line.split() for line in kube.kubectl("get", "vmirs/scaled").splitlines())
    assert (head, row[:4]) == (COLUMNS, ["scaled", "3", "3", "3"]), f"kubectl shows {head} {row}"
    scale = replicas.read_scale()
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 3, "selector": "app=scaled"})
    replicas.scale(1)
    one = replicas.comes_to(1)
    assert one.items() <= three.items(), "a scale to fewer replaced what was there"
    replicas.scale(0)
    replicas.comes_to(0)


def is_replaced(replicas: Replicas, before: dict[str, str], name: str) -> bool:
    """Whether as many are ready as before, and the one with this name is another or gone."""
    now = replicas.staying()
    ready = replicas.status().get("readyReplicas")
    return len(now) == len(before) == ready and now.get(name) != before[name]


def test_what_is_deleted_and_what_ends_is_replaced(kube: Kube, make: Make) -> None:
    replicas = make("replaced", 2)
    before = replicas.comes_to(2)
    deleted, killed = sorted(before)
    kube.kubectl("delete", f"vmi/{deleted}", "--wait=false")
    kube.ask_until("one in place of the deleted one", functools.partial(is_replaced, replicas, before, deleted))
    now = replicas.staying()
    assert now[killed] == before[killed], "the other one was replaced, too"
    os.kill(kube.qemu(killed), signal.SIGKILL)
    kube.ask_until("one in place of that which failed", functools.partial(is_replaced, replicas, now, killed))
    reasons = replicas.reasons()
    assert {"SuccessfulCreate", "SuccessfulDelete"} <= reasons, f"events {reasons}"


def has_pause(replicas: Replicas, wanted: bool) -> bool:
    return ("ReplicaPaused" in replicas.conditions()) == wanted


def test_a_paused_set_creates_nothing_until_it_goes_on(kube: Kube, make: Make) -> None:
    replicas = make("paused", 0, paused=True)
    kube.ask_until("the condition ReplicaPaused", functools.partial(has_pause, replicas, True))
    replicas.scale(1)
    # The controller has seen the change once it has written what belongs to another change after it.
    other = make("beside", 1)
    other.comes_to(1)
    assert replicas.staying() == {}, "a paused set has made an instance"
    kube.patch("vmirs/paused", {"spec": {"paused": False}})
    replicas.comes_to(1)
    kube.ask_until("no condition", functools.partial(has_pause, replicas, False))


def is_alone(kube: Kube, name: str) -> bool:
    found = kube.there("vmi", name)
    return found is not None and not found["metadata"].get("ownerReferences")


def test_an_instance_is_released_and_adopted_by_its_labels(kube: Kube, make: Make) -> None:
    replicas = make("claims", 1)
    (name,) = first = replicas.comes_to(1)
    kube.kubectl("label", f"vmi/{name}", "app-")
    kube.wait("an instance without an owner", functools.partial(is_alone, kube, name))
    second = replicas.comes_to(1)
    assert name not in second, "the set still has the one that it released"
    # A set that is paused adopts, and neither makes nor deletes an instance.
    kube.patch(f"vmirs/{replicas.name}", {"spec": {"paused": True}})
    replicas.scale(2)
    kube.kubectl("label", f"vmi/{name}", "app=claims")
    kube.ask_until("an instance that was adopted", lambda: len(replicas.owned()) == 2)
    kube.patch(f"vmirs/{replicas.name}", {"spec": {"paused": False}})
    both = replicas.comes_to(2)
    assert set(both) == set(first) | set(second), f"{sorted(both)}, and not the one that was released"


def test_a_set_that_is_deleted_takes_its_instances_along_or_leaves_them(kube: Kube, make: Make) -> None:
    replicas = make("family", 1)
    (name,) = before = replicas.comes_to(1)
    replicas.delete("--cascade=orphan")
    kube.wait("an instance without an owner", functools.partial(is_alone, kube, name))
    again = make("family", 1)
    assert again.comes_to(1) == before, "a set of the same name has not adopted what the first one left"
    kube.has_shell(name)
    again.delete()
    kube.is_gone(name)


def autoscaler(name: str, replicas: int) -> Object:
    """One that wants this number, whatever it measures: no metrics are served here."""
    target = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": name}
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"scaleTargetRef": target, "minReplicas": replicas, "maxReplicas": replicas},
    }


def test_an_autoscaler_reads_and_sets_how_many_there_are(kube: Kube, make: Make) -> None:
    replicas = make("elastic", 1)
    replicas.comes_to(1)
    kube.apply(autoscaler("elastic", 2))
    try:
        replicas.comes_to(2)
        status = kube.get("hpa/elastic")["status"]
        assert status["currentReplicas"] in (1, 2), f"the autoscaler did not read the scale: {status}"
        kube.apply(autoscaler("elastic", 1))
        replicas.comes_to(1)
    finally:
        kube.kubectl("delete", "hpa/elastic")


def test_what_cannot_work_is_refused_with_its_field(kube: Kube) -> None:
    astray = replica_set("astray", 1, selector={"matchLabels": {"app": "other"}})
    output = kube.kubectl("apply", "-f", "-", text=json.dumps(astray), code=1)
    assert "spec.selector: the selector does not match the labels of the template" in output, output
    bad = replica_set("bad", 1)
    bad["spec"]["template"]["spec"]["domain"]["devices"]["disks"].append({"name": "none", "disk": {"bus": "virtio"}})
    output = kube.kubectl("apply", "-f", "-", text=json.dumps(bad), code=1)
    assert "spec.template.spec.domain.devices.disks[0].name" in output, output
    misspelt = replica_set("misspelt", 1)
    misspelt["spec"]["template"]["spec"]["domian"] = {}
    output = kube.kubectl("apply", "-f", "-", text=json.dumps(misspelt), code=1)
    assert "spec.template.spec.domian" in output and "domain" in output, output
