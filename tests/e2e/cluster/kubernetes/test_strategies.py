"""Run strategies: what becomes of a machine after its end, whichever it was."""

import functools
import json
import os
import signal

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.objects import machine

ENDINGS = ["the guest powers down", "QEMU crashes", "the instance is deleted"]
# After each of them, in this order.
TABLE = {
    "Always": ("again", "again", "again"),
    "RerunOnFailure": ("Stopped", "again", "Stopped"),
    "Once": ("Succeeded", "Failed", "again"),
    "Manual": ("Succeeded", "Failed", "Stopped"),
}


def end(kube: Kube, name: str, ending: str) -> None:
    if ending == ENDINGS[0]:
        kube.power_off(name)
    elif ending == ENDINGS[1]:
        os.kill(kube.qemu(name), signal.SIGSEGV)
    else:
        kube.kubectl("delete", f"vmi/{name}", "--wait=false")


def is_over(kube: Kube, name: str, process: int) -> bool:
    """Whether a QEMU of a machine is gone: from then on it is the controller that decides."""
    return all(each["pid"] != process for each in kube.qemus(name))


def came_to(kube: Kube, name: str, outcome: str, uid: str) -> bool:
    """Whether a machine is where it should be after its end."""
    if outcome == "again":
        return kube.uid(name) != uid and kube.phase(name) == "Running"
    if outcome == "Stopped":
        return kube.uid(name) is None and kube.printed(name) == "Stopped"
    return kube.uid(name) == uid and kube.phase(name) == outcome and kube.printed(name) == "Stopped"


# QEMUs that crash are in `storm` (test_machines.py) and, with each strategy, in `strategy` on a bare host.
@pytest.mark.parametrize(
    "ending",
    [ENDINGS[0], pytest.param(ENDINGS[1], marks=pytest.mark.long), ENDINGS[2]],
    ids=lambda ending: ending.replace(" ", "_"),
)
def test_after_an_end_each_strategy_decides(kube: Kube, ending: str) -> None:
    number = ENDINGS.index(ending)
    strategies = {f"{strategy.lower()}{number}": strategy for strategy in TABLE}
    kube.apply(*(machine(name, strategy) for name, strategy in strategies.items()))
    # A request, as nothing else starts it.
    start = {"status": {"stateChangeRequests": [{"action": "Start"}]}}
    kube.patch(f"vm/manual{number}", start, subresource="status")
    uids = {name: kube.runs(name) for name in strategies}
    processes = {name: kube.qemu(name) for name in strategies}
    for name in strategies:
        kube.has_shell(name)
        end(kube, name, ending)
    for name, process in processes.items():
        over = functools.partial(is_over, kube, name, process)
        kube.wait(f"the end of the QEMU of {name}", over, circumstances=functools.partial(kube.course, name))
    # Twice: what was started again took longer than a wrong start of the others.
    for _ in range(2):
        for name, strategy in strategies.items():
            outcome = TABLE[strategy][number]
            came = functools.partial(came_to, kube, name, outcome, uids[name])
            kube.wait(f"{name} {outcome}", came, circumstances=functools.partial(kube.course, name))


def test_running_is_a_strategy(kube: Kube) -> None:
    """True is Always, false is Halted."""
    kube.apply(machine("older", True), machine("idle", False), machine("halted", "Halted"))
    uid = kube.runs("older")
    os.kill(kube.qemu("older"), signal.SIGKILL)
    kube.runs("older", not_this=uid)
    kube.has_shell("older")
    kube.patch("vm/older", {"spec": {"running": False}})
    kube.is_gone("older")
    for name in ("older", "idle", "halted"):
        kube.shows(name, "Stopped")
        assert not kube.there("vmi", name), f"{name} is Stopped and has an instance"


def asks_nothing(kube: Kube, name: str) -> bool:
    """Whether no request is left on a machine."""
    return "stateChangeRequests" not in kube.status_of("vm", name)


def test_a_start_that_is_requested_of_a_halted_machine_has_it_run_always(kube: Kube) -> None:
    kube.apply(machine("asleep", "Halted"), machine("resting", False))
    start = {"status": {"stateChangeRequests": [{"action": "Start"}]}}
    for name in ("asleep", "resting"):
        kube.shows(name, "Stopped")
        kube.patch(f"vm/{name}", start, subresource="status")
        kube.runs(name)
        kube.wait("the end of the request", functools.partial(asks_nothing, kube, name))
    assert kube.present("vm", "asleep")["spec"]["runStrategy"] == "Always"
    assert kube.present("vm", "resting")["spec"]["running"] is True


def test_running_and_run_strategy_together_are_refused(kube: Kube) -> None:
    both = machine("both")
    both["spec"]["running"] = True
    output = kube.kubectl("apply", "-f", "-", text=json.dumps(both), code=1)
    assert "`running` and `runStrategy` exclude each other" in output, f"both are refused with: {output}"
