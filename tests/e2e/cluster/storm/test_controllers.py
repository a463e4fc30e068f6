"""Controllers fail, are replaced, or receive events late."""

import contextlib
import functools
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.admission import sound
from garboard_e2e.cluster.api import Api
from garboard_e2e.cluster.asking import aggregated, asked, made
from garboard_e2e.cluster.faults import fault, without
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.late_watches import ADDRESS, BESIDE, LateWatches
from garboard_e2e.cluster.names import AGENT, CONTROLLER, INSTALLED_IN, NODE_1, NODE_2
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.storm import ROCK, WAVE, Storm

# As long as several late messages take, in seconds.
WHILE_LATE = 300
LAG = 30
# How long its end stays unknown to API servers and nodes, in seconds: less than it answers for.
UNKNOWN = 2.5


def test_the_leader_is_killed_during_a_start_and_during_a_stop(
    kube: Kube, storm: Storm, note: Callable[[str], None]
) -> None:
    with storm.undisturbed(ROCK, WAVE):
        for number in storm.again():
            name = f"one{number}"
            kube.apply(machine(name))
            storm.kill_leader()
            kube.runs(name)
            kube.will_go(name)
            kube.kubectl("delete", f"vm/{name}", "--wait=false")
            storm.kill_leader()
            kube.is_gone(name)
            storm.has_two_controllers()
    note(f"{2 * len(storm.again())} times, {'by its Lease' if storm.leader() else 'no Lease here: one of two'}")


def test_all_controllers_are_killed_during_a_start_and_before_an_end(kube: Kube, storm: Storm) -> None:
    with storm.undisturbed(ROCK, WAVE):
        for number in storm.again():
            name = f"all{number}"
            kube.apply(machine(name))
            storm.kill_controllers(*storm.replicas())
            uid = kube.runs(name)
            # Its end comes while nothing is there to make another.
            storm.kill_controllers(*storm.replicas())
            with contextlib.suppress(ProcessLookupError):
                os.kill(kube.qemu(name), signal.SIGKILL)
            kube.runs(name, not_this=uid)
            kube.remove(name)
            storm.has_two_controllers()


def test_everything_is_rolled_out_again_during_a_start_and_during_a_stop(kube: Kube, storm: Storm) -> None:
    """As in an upgrade: controllers and agents are replaced while a machine starts and one stops; and then the kubelets
    judge what runs by what the new agents report of their nodes."""
    parts = f"deployment/{CONTROLLER}", f"daemonset/{AGENT}"
    with storm.undisturbed(ROCK, WAVE):
        for number in storm.again():
            starts, stops = f"new{number}", f"old{number}"
            kube.start(machine(stops))
            with fault(kube, "rolled out"):
                kube.kubectl("rollout", "restart", *parts, namespace=INSTALLED_IN)
                kube.apply(machine(starts))
                kube.will_go(stops)
                kube.kubectl("delete", f"vm/{stops}", "--wait=false")
                for part in parts:
                    kube.kubectl("rollout", "status", part, "--timeout=120s", namespace=INSTALLED_IN)
            kube.runs(starts)
            kube.is_gone(stops)
            for node in (NODE_1, NODE_2):
                with without(kube, f"{node}/kubelet"):
                    pass
            kube.ask_until("nodes that take machines", kube.offers_devices)
            kube.remove(starts)


def test_nothing_is_refused_while_controllers_are_replaced(
    kube: Kube, storm: Storm, note: Callable[[str], None]
) -> None:
    """Manifests that the webhooks judge, and requests that API servers forward, one of each every 50 ms: a controller
    that leaves answers until it is known that it does."""
    api, deployment, counts = Api.of(kube), f"deployment/{CONTROLLER}", [0, 0]
    with storm.undisturbed(ROCK, WAVE):
        for _ in storm.again():
            before = names(kube)
            with (
                fault(kube, "controllers rolled out"),
                asked(api, made(sound(kube))) as manifests,
                asked(api, aggregated) as forwarded,
            ):
                kube.kubectl("rollout", "restart", deployment, namespace=INSTALLED_IN)
                kube.kubectl("rollout", "status", deployment, "--timeout=120s", namespace=INSTALLED_IN)
                kube.ask_until("the end of those before", functools.partial(are_gone, kube, before))
            manifests.expect_no_refusal()
            forwarded.expect_no_refusal()
            kube.ask_until("a leader", storm.leader)
            counts = [counts[0] + manifests.taken, counts[1] + forwarded.taken]
    note(f"{counts[0]} manifests and {counts[1]} forwarded requests were answered")


def test_a_controller_that_leaves_answers_until_it_is_known_that_it_does(
    kube: Kube, storm: Storm, note: Callable[[str], None]
) -> None:
    """The leader is stopped, and its address stays in the EndpointSlices for a while: it is still asked."""
    api, counts = Api.of(kube), [0, 0]
    with storm.undisturbed(ROCK, WAVE):
        for _ in storm.again():
            leader = kube.ask_until("a leader", storm.leader)["metadata"]["name"]
            with (
                fault(kube, "the leader stopped"),
                asked(api, made(sound(kube))) as manifests,
                asked(api, aggregated) as forwarded,
            ):
                kube.cluster("freeze", "kube-controller-manager")
                try:
                    kube.kubectl("delete", "pod", leader, "--wait=false", namespace=INSTALLED_IN)
                    time.sleep(UNKNOWN)
                finally:
                    kube.cluster("thaw", "kube-controller-manager")
                kube.ask_until("its end", functools.partial(are_gone, kube, {leader}))
            manifests.expect_no_refusal()
            forwarded.expect_no_refusal()
            storm.has_two_controllers()
            counts = [counts[0] + manifests.taken, counts[1] + forwarded.taken]
    note(f"{counts[0]} manifests and {counts[1]} forwarded requests were answered")


def names(kube: Kube) -> set[str]:
    """Of all pods of controllers."""
    return {pod["metadata"]["name"] for pod in kube.controllers()}


def are_gone(kube: Kube, pods: set[str]) -> bool:
    return not pods & names(kube)


@pytest.fixture
def way(kube: Kube, storm: Storm) -> Iterator[LateWatches]:
    """The controllers reach the API server by a way on which watches can come late."""
    deployment, host, port = f"deployment/{CONTROLLER}", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"

    def settle(*variables: str) -> None:
        kube.kubectl("set", "env", deployment, *variables, namespace=INSTALLED_IN)
        kube.kubectl("rollout", "status", deployment, "--timeout=120s", namespace=INSTALLED_IN)
        kube.ask_until("a leader", storm.leader)

    with LateWatches(pathlib.Path(kube.state)) as way:
        settle(f"{host}={ADDRESS}", f"{port}={BESIDE}")
        try:
            yield way
        finally:
            way.lag = 0
            settle(f"{host}-", f"{port}-")


@contextlib.contextmanager
def late(kube: Kube, way: LateWatches) -> Iterator[None]:
    """What watches bring comes so late; what is asked is answered at once."""
    with fault(kube, f"watches {LAG} s late"):
        way.lag = LAG
        try:
            yield
        finally:
            way.lag = 0


def another_runs(kube: Kube, name: str, not_this: str | None) -> None:
    """Waits for it; its QEMU may be reported late."""

    def holds() -> bool:
        return kube.uid(name) != not_this and kube.phase(name) == "Running"

    kube.wait(f"another {name}", holds, WHILE_LATE)


def is_not_started(kube: Kube, name: str, uid: str) -> None:
    """A machine that is Halted and whose guest has ended."""
    kube.wait(f"the instance of {name} gone or over", lambda: kube.phase(name) in ("", "Succeeded"))
    assert not kube.qemus(name), f"{name} was started although it is Halted"
    assert kube.uid(name) in (uid, None), f"{name} was started although it is Halted"


@pytest.mark.long
def test_nothing_is_started_stopped_or_removed_wrongly_when_watches_are_half_a_minute_late(
    kube: Kube, storm: Storm, way: LateWatches, note: Callable[[str], None]
) -> None:
    """The leader acts on what was true half a minute ago, while machines are stopped, end, go, come again under the
    same name, and lose their pods."""
    with storm.undisturbed(ROCK, WAVE):
        for number in storm.again():
            stops, over, forced, new = (f"{what}{number}" for what in ("latestop", "lateend", "lateforce", "latenew"))
            kube.start(machine(stops), machine(over, "RerunOnFailure"), machine(forced))
            kube.has_shell(over)
            before, pieces = {name: kube.runs(name) for name in (stops, over, forced)}, way.late
            with late(kube, way):
                # Halted, and its guest ends before the leader observes that.
                kube.patch(f"vm/{over}", {"spec": {"runStrategy": "Halted"}})
                kube.power_off(over)
                took = is_removed_after(kube, storm, stops, forced, new)
                kube.apply(machine(stops))
                another_runs(kube, new, None)
                another_runs(kube, forced, before[forced])
                another_runs(kube, stops, before[stops])
                is_late = took > LAG - 5 and way.late > pieces
                assert is_late, f"nothing was late: {stops} went within {took:.0f} s"
            is_not_started(kube, over, before[over])
            for name in (stops, forced, new):
                kube.runs(name)
            kube.remove(stops, over, forced, new)
    note(f"{way.late} pieces came late")


def is_removed_after(kube: Kube, storm: Storm, stops: str, forced: str, new: str) -> float:
    """A machine is removed, another one loses its pod, and a third is made: the seconds until the first is gone."""
    kube.will_go(stops)
    old = kube.uid(stops, "vm")
    kube.kubectl("delete", f"vm/{stops}", "--wait=false")
    storm.delete_pod_by_force(forced)
    kube.apply(machine(new))
    began = time.monotonic()
    kube.wait(f"the end of {stops}", lambda: kube.uid(stops, "vm") != old, WHILE_LATE)
    return time.monotonic() - began
