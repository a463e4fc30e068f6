"""What many machines cost the controller and the API server, and what a change of the leader costs. Requests are what
is tested; times, memory and processor time are figures."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from garboard_e2e.cluster import audit
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.replica_sets import PLURAL, Replicas
from garboard_e2e.outcome import Failure
from garboard_e2e.scale.halves import QUICK, Half, Leader, slowest_ms
from garboard_e2e.scale.played import SECONDS, SILENCE, Played, condition
from garboard_e2e.scale.usage import Usage

# The most that the controller and the node's agent may write for a start, events apart, and the most that they may
# read.
MOST = {"writes": 5, "reads": 3}
# So many more requests for one machine than for one of the first half are none.
NOTHING = 0.2
SILENT = ["silent-0", "silent-1"]


def test_an_instance_without_a_report_of_its_guest_is_not_ready_although_its_pod_is(installed: Played) -> None:
    """KWOK calls a launcher's pod Ready as soon as it is there, before an agent has reported anything of its guest."""
    started = installed.start("silent", len(SILENT), "--patience=12")
    assert started.returncode != 0, "machines run, and no agent is there"
    installed.kube.ask_until("pods that are Ready", lambda: all_silent(installed, "pods", is_ready))
    installed.kube.ask_until("instances that are Scheduled", lambda: all_silent(installed, "vmi", is_scheduled))
    for kind, values in (("vmi", ["Scheduled"]), ("vm", ["Scheduled", "Starting"])):
        for item in installed.everything(kind):
            status = item["status"]
            shown = status.get("phase", status.get("printableStatus"))
            is_right = shown in values and condition(item, "Ready") == "False"
            assert is_right, f"the {kind} {item['metadata']['name']} is {shown}, Ready {condition(item, 'Ready')}"


def all_silent(played: Played, kind: str, holds: Callable[[Object], bool]) -> bool:
    found = played.everything(kind)
    return len(found) == len(SILENT) and all(holds(item) for item in found)


def is_ready(item: Object) -> bool:
    return condition(item, "Ready") == "True"


def is_scheduled(item: Object) -> bool:
    return bool(item.get("status", {}).get("phase") == "Scheduled")


def test_it_is_ready_when_its_agent_has_reported(played: Played) -> None:
    played.kube.ask_until("the reports of all machines", lambda: all(map(is_ready, played.everything("vmi"))))


def test_a_start_is_at_most_five_writes_and_three_reads(first: Half, second: Half, note: Callable[[str], None]) -> None:
    """Of those that were quick: a start that is slow is reported step by step."""
    expect_quick_ones(first, second)
    for half in (first, second):
        note(half.summary())
        # The instance, its pod and what becomes of it, at least.
        writes = half.quick_average("writes")
        assert writes >= 3, f"only {writes:.2f} writes of a start were found in the audit log"
        for what, most in MOST.items():
            requests = dict(half.requests.counted)
            assert half.most(what) <= most, f"a start had {half.most(what)} {what}; all of them: {requests}"


def test_one_more_costs_no_more_with_twice_as_many(first: Half, second: Half) -> None:
    expect_quick_ones(first, second)
    for what in MOST:
        here, there = first.quick_average(what), second.quick_average(what)
        found = f"one machine had {here:.2f} {what} among the first, and {there:.2f} among the second half"
        assert there <= here + NOTHING, found


def expect_quick_ones(first: Half, second: Half) -> None:
    quick = [len(half.quick) for half in (first, second)]
    if min(quick) < 10:
        pytest.skip(f"{quick[0]} and {quick[1]} machines were Running within {QUICK - 1} s")


def test_all_of_them_run(played: Played, first: Half, second: Half) -> None:
    played.kube.ask_until("every machine Ready", lambda: not others_than_running(played), 60)
    started = {*first.times.took, *second.times.took}
    there = {vm["metadata"]["name"] for vm in played.everything("vm")}
    assert not (odd := (started ^ there) - set(SILENT)), f"started or there, and not both: {odd}"
    assert started <= there, f"gone: {started - there}"


def others_than_running(played: Played) -> list[str]:
    """Machines and instances that do not run or are not Ready."""
    found = []
    for kind, field in (("vm", "printableStatus"), ("vmi", "phase")):
        for item in played.everything(kind):
            shown = item["status"].get(field)
            if shown != "Running" or not is_ready(item):
                found.append(f"{kind} {item['metadata']['name']} {shown}")
    return found


def identities(played: Played) -> dict[str, tuple[str, str]]:
    """What would differ if anything had been written or started again."""
    found = {}
    for kind in ("vm", "vmi", "pods"):
        for item in played.everything(kind):
            about = item["metadata"]
            found[f"{kind} {about['name']}"] = (about["uid"], "" if kind == "pods" else about["resourceVersion"])
    return found


def test_another_leader_writes_nothing_and_starts_nothing_again(
    played: Played, first: Half, second: Half, figures: list[tuple[str, str]], note: Callable[[str], None]
) -> None:
    """The one that leads hangs until the other one leads, and is killed. What follows is read once."""
    hangs, next_one = Leader.awaited(played), standby(played)
    there, begin, before = identities(played), played.mark(), Usage.of(next_one.process)
    seen, began = next_one.reconciles(), time.monotonic()
    # One that is killed at once is started again by its kubelet, and takes the Lease that has its own name.
    os.kill(hangs.process, signal.SIGSTOP)
    try:
        played.kube.ask_until("another leader", lambda: leads(played, next_one))
        led = time.monotonic() - began
    finally:
        os.kill(hangs.process, signal.SIGKILL)
    number = len(there) // 3
    settled = until_quiet(next_one, number) - began
    requests, after = played.requests(begin, audit.component), Usage.of(next_one.process)
    reads, writes = (requests.sum(verbs, "controller") for verbs in (audit.READS, audit.WRITES))
    times = f"{led:.1f} s, {settled:.1f} s"
    figures += [
        ("leader hangs: another one leads after, and has looked at everything after", times),
        ("… its reads, and writes", f"{reads}, {writes}"),
        ("… its processor time, and memory, for each instance", str(after.since(before, number))),
        ("… 99 of 100 reconciliations within", slowest_ms(seen, next_one.reconciles())),
    ]
    assert reads > 0, "no request of the new leader was found in the audit log"
    assert not (written := requests.written()), f"the new leader wrote {written}"
    assert identities(played) == there, "something is not what it was before"
    assert reads <= number / 20 + 20, f"the new leader read {dict(requests.counted)}"
    note(f"{led:.1f} s, then {settled - led:.1f} s and {reads} reads for {number} machines")


def standby(played: Played) -> Leader:
    """The controller that does not lead."""
    leading = Leader.awaited(played).pod["metadata"]["name"]
    pod = next(each for each in played.kube.controllers() if each["metadata"]["name"] != leading)
    if not (found := Leader.of(played, pod)):
        raise Failure(f"{pod['metadata']['name']} has no process")
    return found


def leads(played: Played, other: Leader) -> bool:
    found = Leader.found(played)
    return found is not None and found.process == other.process


def until_quiet(leader: Leader, machines: int) -> float:
    """When the last reconciliation of the first round had ended."""
    counted, since, end = -1, time.monotonic(), time.monotonic() + SECONDS
    while time.monotonic() < end:
        now = leader.reconciles().total()
        if now != counted:
            counted, since = now, time.monotonic()
        elif counted >= 2 * machines and time.monotonic() > since + SILENCE:
            return since
        time.sleep(0.2)
    raise Failure(f"{counted} reconciliations, and no end")


def played_set(name: str, replicas: int) -> Object:
    """Instances like the machines of tests/scale/src/start.rs."""
    spec = {
        "domain": {
            "cpu": {"cores": 1, "sockets": 1, "threads": 1, "model": "qemu64"},
            "machine": {"type": "q35"},
            "memory": {"guest": "128Mi"},
            "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
        },
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "root", "containerDisk": {"image": "registry.garboard.dev/hello:1"}}],
    }
    labels = {"app": name}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def looks(played: Played, begin: int) -> tuple[int, int, int]:
    """How often the controller has read a set, created an instance, and written the status of a set since then."""
    found = [each for each in audit.events(played.kube.audit_log, begin) if audit.component(each) == "controller"]

    def count(verb: str, resource: str) -> int:
        return sum(each["verb"] == verb and audit.resource(each) == resource for each in found)

    return (
        count("get", PLURAL),
        count("create", "virtualmachineinstances"),
        count("patch", f"{PLURAL}/status"),
    )


def test_a_set_of_many_is_looked_at_for_each_round_and_not_for_each_instance(
    played: Played, first: Half, second: Half, note: Callable[[str], None]
) -> None:
    """As many as the machines of a half; they run beside both."""
    number = played.options.instances // 2
    replicas = Replicas(played.kube, "many")
    begin = played.mark()
    played.kube.apply(played_set("many", number))
    try:
        names = sorted(replicas.comes_to(number))
        reads, created, written = looks(played, begin)
        note(f"{number} instances of a set: {reads} reads of it, {written} writes of its status")
        assert created == number, f"{created} instances were created for {number}"
        assert reads <= number / 25 + 5, f"the set was read {reads} times"
        begin = played.mark()
        played.kube.kubectl("delete", f"vmi/{names[0]}", "--wait=false")
        played.kube.ask_until("another instance", lambda: names[0] not in replicas.staying())
        replicas.comes_to(number)
        reads, created, written = looks(played, begin)
        assert created == 1 and reads <= 5, f"one instance in place of another: {reads} reads, {created} creations"
    finally:
        replicas.delete()
        played.kube.ask_until("the end of the set's instances", lambda: not replicas.all())
