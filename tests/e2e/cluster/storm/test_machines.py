"""Parts of a machine die or are deleted: its supervisor, its QEMU, its pod."""

import functools
import os
import re
import signal
from collections.abc import Callable

import pytest

from garboard_e2e.cluster.faults import fault, silent_agent
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import COMPUTE, NODE_1, NODE_2, SIDECAR
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.storm import DISK, ROCK, WAVE, Storm, ids
from garboard_e2e.names import SUPERVISOR

LOAD = "load"


def rounds(kube: Kube) -> int:
    """Of disk load that the guest reports."""
    return max((int(number) for number in re.findall(r"disk-load (\d+)", kube.serial(LOAD))), default=0)


def is_again(kube: Kube, restarts: int) -> bool:
    """The sidecar runs, and was started more often than that. Its status may name any of the tags that one image
    has."""
    return kube.restarts(LOAD, SIDECAR) > restarts and "running" in kube.container(LOAD, SIDECAR)["state"]


def give_another_image(kube: Kube, number: int) -> None:
    tag, node = f"registry.garboard.dev/garboard/launcher:storm{number}", kube.status_of("vmi", LOAD)["nodeName"]
    kube.inside(node, "ctr", "-n", "k8s.io", "images", "tag", "--force", kube.images.launcher, tag)
    change = [{"op": "replace", "path": "/spec/initContainers/0/image", "value": tag}]
    kube.patch(f"pod/{kube.pod_name(LOAD)}", change, "json")


@pytest.mark.long
def test_supervisors_are_killed_under_load_and_the_guest_does_not_notice(
    kube: Kube, storm: Storm, note: Callable[[str], None]
) -> None:
    """Once by a signal and once by another image each time: the kubelet lets a container that dies often wait up to
    five minutes, but not one with another image."""
    volume = {"name": "load", "emptyDisk": {"capacity": "16Mi"}}
    kube.start(machine(LOAD, tests="disk-load", volumes=[volume]))
    kube.prints(LOAD, "disk-load [0-9]")
    before, compute, first = ids(kube.qemus(LOAD)), kube.container(LOAD, COMPUTE)["containerID"], rounds(kube)
    with kube.launchers_stay():
        for number in storm.again(5):
            restarts = kube.restarts(LOAD, SIDECAR)
            kube.ask_until("a supervisor", lambda: kube.processes(LOAD, SUPERVISOR))
            kube.kill(LOAD, SUPERVISOR)
            kube.wait("the sidecar again", functools.partial(is_again, kube, restarts))
            give_another_image(kube, number)
            kube.wait("the other image", functools.partial(is_again, kube, restarts + 1))
    assert ids(kube.qemus(LOAD)) == before, "another QEMU runs"
    assert kube.container(LOAD, COMPUTE)["containerID"] == compute, "compute was restarted"
    kube.ask_until("more disk load", lambda: rounds(kube) > first)
    serial = kube.serial(LOAD)
    assert "read something else" not in serial and "error in round" not in serial, "the guest noticed"
    note(f"{2 * len(storm.again(5))} times, the guest's disk load went on from round {first} to {rounds(kube)}")


def test_a_qemu_that_is_killed_is_started_again_by_its_strategy(kube: Kube, storm: Storm) -> None:
    for _ in storm.again():
        name = storm.random.choice([ROCK, WAVE, DISK])
        how = storm.random.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
        uid = kube.runs(name)
        os.kill(kube.qemu(name), how)
        kube.runs(name, not_this=uid)


def test_an_end_that_no_agent_reported_stays_one(kube: Kube, storm: Storm) -> None:
    """The controller ends an instance whose agent is silent; what it writes after that must not take the end back, or
    the guest would run a second time."""
    for number in storm.again():
        name, after = f"unreported{number}", f"after{number}"
        kube.start(machine(name, "Once", node=NODE_1))
        with fault(kube, "a silent agent"), silent_agent(kube, NODE_1):
            os.kill(kube.qemu(name), signal.SIGKILL)
            kube.wait(f"the end of {name}", functools.partial(has_failed, kube, name))
            kube.kubectl("delete", "pod", kube.pod_name(name))
            kube.wait(f"the pod of {name} missed", functools.partial(is_without_pod, kube, name))
        # What started it again wrongly would have done so before this one runs.
        kube.start(machine(after, node=NODE_2))
        is_over = kube.phase(name) == "Failed" and not kube.pods(name)
        assert is_over, f"{name} is {kube.phase(name)} again: {kube.pods(name)}"
        kube.remove(name, after)


def has_failed(kube: Kube, name: str) -> bool:
    return kube.phase(name) == "Failed"


def is_without_pod(kube: Kube, name: str) -> bool:
    return kube.condition("vmi", name, "Ready").get("reason") == "PodNotExists"


def failed_starts(kube: Kube) -> int:
    failure = kube.status_of("vm", "early").get("startFailure") or {}
    return int(failure.get("consecutiveFailCount", 0)) if "retryAfterTimestamp" in failure else 0


@pytest.mark.long
def test_starts_that_fail_are_spaced_out(kube: Kube, storm: Storm) -> None:
    """A machine that ends before its guest runs has to wait for its next start, longer each time; that one is made of
    what is in the specification then."""
    vm, place = machine("early"), "/spec/template/spec/domain/firmware/kernelBoot/container/kernelPath"
    boot = vm["spec"]["template"]["spec"]["domain"]["firmware"]["kernelBoot"]["container"]
    right, boot["kernelPath"] = boot["kernelPath"], "/boot/missing"
    kube.apply(vm)
    kube.wait("one failed start", lambda: failed_starts(kube) == 1)
    kube.wait("two failed starts", lambda: failed_starts(kube) == 2)
    kube.patch("vm/early", [{"op": "replace", "path": place, "value": right}], "json")
    kube.runs("early")
    kube.wait("no failure any more", lambda: "startFailure" not in kube.status_of("vm", "early"))


def test_a_machine_whose_pod_is_deleted_is_started_again(kube: Kube, storm: Storm) -> None:
    for _ in storm.again():
        for name in (ROCK, DISK):
            uid = kube.runs(name)
            kube.kubectl("delete", "pod", kube.pod_name(name), "--wait=false")
            kube.runs(name, not_this=uid)


def test_nothing_runs_twice_when_a_pod_is_deleted_by_force(kube: Kube, storm: Storm) -> None:
    """The object goes at once, and its QEMU only when the kubelet observes it."""
    for _ in storm.again():
        for name in (ROCK, DISK):
            uid = kube.runs(name)
            storm.delete_pod_by_force(name)
            kube.runs(name, not_this=uid)
