"""A machine's life: it starts, is reached, stops, is restarted, edited, orphaned and deleted."""

import collections
import functools
import json
from collections.abc import Callable

import pytest

from garboard_e2e.cluster import audit
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import COMPUTE, MIB, NAMESPACE, NODE_2, Object, other
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.resident import beside_guest

# All that our components write while a machine starts, events apart.
START = {
    "controller: create virtualmachineinstances": 1,
    "controller: create pods": 1,
    "node: patch pods/status": 1,
    "controller: patch virtualmachineinstances": 1,
    "controller: patch virtualmachines/status": 1,
}
# The most that they may read for it: the machine and the instance before each is acted upon, and one for what comes
# between.
READS = 3
# A start that takes longer than this, in seconds, is reported step by step (controller/src/vmi/decide.rs).
QUICK = 5
# The buffer for translated code (machine/src/overhead.rs). What QEMU keeps about the code is in the figure.
TRANSLATED_MIB = 128
GUEST_MIB = 128


def service(name: str) -> Object:
    """One in front of a machine."""
    metadata = {"name": name, "namespace": NAMESPACE}
    spec = {"selector": {"app": name}, "ports": [{"port": 8080, "targetPort": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def address_of_service(kube: Kube, name: str) -> str:
    return kube.kubectl("get", "service", name, "-o", "jsonpath={.spec.clusterIP}") + ":8080"


def test_a_machine_on_each_node_is_reached_from_the_other_by_its_address_and_by_a_service(
    kube: Kube, pair: dict[str, str]
) -> None:
    for name, node in pair.items():
        assert kube.status_of("vmi", name)["nodeName"] == node, f"{name} does not report that it is on {node}"
        kube.page(kube.address(name), other(node))
        kube.apply(service(name))
        kube.page(address_of_service(kube, name), other(node))


def is_ready(kube: Kube, name: str) -> bool:
    """Whether its pod is."""
    conditions = kube.pod(name)["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def took(kube: Kube, name: str) -> float:
    """Seconds from the instance to its guest."""
    stamps = kube.status_of("vmi", name)["phaseTransitionTimestamps"]
    times = {each["phase"]: audit.moment(each["phaseTransitionTimestamp"]) for each in stamps}
    return times["Running"] - times["Pending"]


def test_a_start_is_five_writes_and_three_reads(kube: Kube, note: Callable[[str], None]) -> None:
    """One machine after the other, so that the start of each is the time in which the last one could be written
    again. The first start of a machine is recorded beside them, in one write."""
    names, begin = [f"written-{number}" for number in range(6)], kube.audit_log.stat().st_size
    for name in names:
        kube.start(machine(name))
        kube.becomes("vm", name, "Ready")
        kube.wait(f"the pod of {name} Ready", functools.partial(is_ready, kube, name))
    quick = [name for name in names[:-1] if took(kube, name) < QUICK - 1]
    requests = list(audit.events(kube.audit_log, begin))
    for name in quick:
        written = audit.writes(requests, NAMESPACE, name)
        wrote = {what: number for what, number in written.items() if not audit.is_event(what)}
        assert wrote == START, f"the start of {name} was {wrote}"
        record = f"revision-start-vm-{kube.uid(name, 'vm')}-1"
        of_record = [each for each in audit.of_ours(requests, NAMESPACE) if audit.name(each) == record]
        recorded = [audit.line_of(each) for each in of_record if audit.is_written(each)]
        assert recorded == ["controller: create controllerrevisions"], f"the record of {name} was {recorded}"
        read: collections.Counter[str] = audit.reads(requests, NAMESPACE, name)
        assert read.total() <= READS, f"the start of {name} read {read}"
    if not quick:
        pytest.skip(f"no machine was Running within {QUICK - 1} s")
    note(f"{len(quick)} starts, {sum(START.values())} writes, a record and at most {READS} reads each")


def test_a_machine_is_stopped_started_and_restarted_and_stays_the_same_machine(
    kube: Kube, pair: dict[str, str]
) -> None:
    first = kube.runs("left")
    kube.has_shell("left")
    kube.patch("vm/left", {"spec": {"runStrategy": "Halted"}})
    kube.is_gone("left")
    kube.shows("left", "Stopped")
    kube.patch("vm/left", {"spec": {"runStrategy": "Always"}})
    second = kube.runs("left", not_this=first)
    # A restart is a new instance of the same machine.
    before = kube.reported("left", "storedMachine")
    kube.has_shell("left")
    kube.kubectl("delete", "vmi/left", "--wait=false")
    kube.runs("left", not_this=second)
    order = json.loads(kube.pod("left")["metadata"]["annotations"]["garboard.dev/order"])
    assert order["stored"] == before, f"the launcher was given {order['stored']} and not {before}"
    assert kube.reported("left", "storedMachine") == before, "the next instance is another machine"
    kube.apply(service("left"))
    kube.page(address_of_service(kube, "left"), NODE_2)


def owners(kube: Kube, name: str) -> list[str]:
    """The UIDs of what owns an instance."""
    return [each["uid"] for each in kube.present("vmi", name)["metadata"].get("ownerReferences", [])]


def test_an_orphaned_instance_is_adopted_by_a_new_machine_of_its_name(kube: Kube, pair: dict[str, str]) -> None:
    uid = kube.runs("right")
    kube.will_go("right")
    kube.kubectl("delete", "vm/right", "--cascade=orphan")
    kube.wait("an instance without an owner", lambda: not owners(kube, "right"))
    kube.apply(machine("right", node=pair["right"]))
    owner = kube.wait("the machine", lambda: kube.uid("right", "vm"))
    kube.wait("the new owner", lambda: owners(kube, "right") == [owner])
    assert kube.runs("right") == uid, "the instance was replaced"


def test_kubectl_edit_and_patch_stop_and_start_a_machine(kube: Kube, pair: dict[str, str]) -> None:
    kube.has_shell("left")
    kube.environment["KUBE_EDITOR"] = "sed -i s/runStrategy:.Always/runStrategy:\\ Halted/"
    kube.kubectl("edit", "vm/left")
    kube.is_gone("left")
    kube.patch("vm/left", {"spec": {"runStrategy": "Always"}})
    kube.runs("left")


def test_no_machine_takes_more_memory_than_it_asks_for(
    kube: Kube, pair: dict[str, str], note: Callable[[str], None]
) -> None:
    """What QEMU has beside its guest's memory, against what its container asks for beside it."""
    found = []
    for name in pair:
        containers = {each["name"]: each for each in kube.pod(name)["spec"]["containers"]}
        asked = int(containers[COMPUTE]["resources"]["requests"]["memory"]) / MIB - GUEST_MIB
        # Translated code is in the request, and not in the figure.
        asked -= TRANSLATED_MIB
        taken = sum(beside_guest(kube.qemu(name), GUEST_MIB))
        assert taken < asked, f"{name} takes {taken:.1f} MiB beside its guest, and asks for {asked:.1f}"
        found.append(f"{taken:.0f} of {asked:.0f} MiB")
    note(", ".join(found))


def test_a_machine_is_deleted_in_cascade(kube: Kube) -> None:
    kube.start(machine("deleted"))
    kube.has_shell("deleted")
    kube.remove("deleted")
    left = [each for each in kube.kubectl("get", "vm,vmi,pods", "-o", "name").split() if "deleted" in each]
    assert not left, f"there is still {left}"
