"""Guests under KVM in pods, with the settings that a new installation has. The guest is a boot sector, which runs also
where KVM interprets guest code."""

import json
import os
import pathlib
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import COMPUTE, NODE_1, NODE_2, SIDECAR, Object
from garboard_e2e.cluster.objects import firmware
from garboard_e2e.guests import BOOTSECTOR
from garboard_e2e.names import SUPERVISOR
from garboard_e2e.outcome import Failure

NODES = {"kvm-left": NODE_1, "kvm-right": NODE_2}
# Where KVM interprets guest code, firmware and boot sector take some ten seconds.
BOOT = 300
AGENT_FACTS = "run/garboard-agent/pod/node.json"
INTERPRETED = "KVMInterpretsGuestCode"


@pytest.fixture(scope="module")
def guests(kube: Kube, guest: Callable[[str], pathlib.Path]) -> Iterator[dict[str, str]]:
    """A machine on each node, by default; their nodes by their names."""
    if not os.path.exists("/dev/kvm"):
        pytest.skip("this machine has no /dev/kvm")
    offers_kvm = ["get", "nodes", "-o", r"jsonpath={.items[*].status.allocatable.devices\.kubevirt\.io/kvm}"]
    kube.ask_until(
        "nodes that offer /dev/kvm", lambda: "0" not in (found := kube.kubectl(*offers_kvm).split()) and len(found) == 2
    )
    kube.load(guest(BOOTSECTOR))
    kube.start(*(firmware(name, node) for name, node in NODES.items()))
    yield NODES
    kube.remove(*NODES)


def query_kvm(kube: Kube, name: str) -> Object:
    """QEMU's answer to `query-kvm`, through the supervisor's broker."""
    connection, answer = kube.ask(name, {"ask": "qmp", "access": "readOnly"})
    with connection:
        if answer.get("answer") != "streaming":
            raise Failure(f"the QMP broker of {name} answers {answer}")
        stream = connection.makefile("rwb")
        stream.readline()
        for command in ("qmp_capabilities", "query-kvm"):
            stream.write(json.dumps({"execute": command, "id": command}).encode() + b"\n")
            stream.flush()
            while (found := json.loads(stream.readline())).get("id") != command:
                pass
        answered: Object = found["return"]
        return answered


def answers(kube: Kube, name: str) -> bool:
    try:
        return query_kvm(kube, name)["enabled"] is True
    except (OSError, Failure, ValueError, StopIteration):
        return False


def runs_under_kvm(kube: Kube, name: str) -> None:
    kube.prints(name, "garboard-boot: counted", seconds=BOOT)
    assert (found := query_kvm(kube, name)) == {"enabled": True, "present": True}, (
        f"query-kvm of {name} returns {found}"
    )
    container = next(each for each in kube.pod(name)["spec"]["containers"] if each["name"] == COMPUTE)
    asked = container["resources"]
    assert asked["limits"].get("devices.kubevirt.io/kvm") == "1", f"compute of {name} asks for {asked}"


def test_a_guest_on_each_node_runs_under_kvm_by_default(kube: Kube, guests: dict[str, str]) -> None:
    for name, node in guests.items():
        runs_under_kvm(kube, name)
        assert (found := kube.status_of("vmi", name)["nodeName"]) == node, f"{name} is on {found}"


def test_where_kvm_interprets_guest_code_a_condition_and_one_event_say_so(
    kube: Kube, guests: dict[str, str], note: Callable[[str], None]
) -> None:
    """And nowhere else."""
    facts = json.loads((kube.root(NODE_1) / AGENT_FACTS).read_text())
    state = facts["kvm"]["state"]
    interprets = state == "emulated"
    for name in guests:
        reason = kube.condition("vmi", name, "SoftwareEmulation").get("reason")
        wanted = INTERPRETED if interprets else None
        assert reason == wanted, f"KVM is {state}, and {name} has the condition {reason}"
        events = kube.items("events", "--field-selector", f"reason={INTERPRETED},involvedObject.name={name}")
        assert len(events) == int(interprets), f"KVM is {state}, and there are {len(events)} events"
    note(state)


def test_a_guest_under_kvm_is_stopped_started_and_restarted(kube: Kube, guests: dict[str, str]) -> None:
    name = "kvm-left"
    first = kube.runs(name)
    kube.patch(f"vm/{name}", {"spec": {"runStrategy": "Halted"}})
    kube.is_gone(name)
    kube.shows(name, "Stopped")
    kube.patch(f"vm/{name}", {"spec": {"runStrategy": "Always"}})
    second = kube.runs(name, not_this=first)
    runs_under_kvm(kube, name)
    kube.kubectl("delete", f"vmi/{name}", "--wait=false")
    kube.runs(name, not_this=second)
    runs_under_kvm(kube, name)


def test_a_supervisor_of_a_guest_under_kvm_comes_back_when_it_is_killed(kube: Kube, guests: dict[str, str]) -> None:
    name = "kvm-right"
    kube.runs(name)
    before, qemu = kube.restarts(name, SIDECAR), kube.qemu(name)
    kube.kill(name, SUPERVISOR)
    kube.wait("the sidecar again", lambda: kube.restarts(name, SIDECAR) > before)
    kube.ask_until("QMP again", lambda: answers(kube, name))
    assert [each["pid"] for each in kube.qemus(name)] == [qemu], "it is another QEMU"
    runs_under_kvm(kube, name)
