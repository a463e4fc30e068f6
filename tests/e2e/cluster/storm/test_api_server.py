"""The API server and its etcd die, are away for long, or are slow."""

import functools
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from garboard_e2e.cluster.faults import fault, is_ready, without
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NODE_2
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.storm import ROCK, WAVE, Storm

PULSES = """
import subprocess, sys, time
command = [sys.argv[1], "--name", sys.argv[2]]
while True:
    subprocess.run([*command, "freeze", "etcd"])
    time.sleep(1)
    subprocess.run([*command, "thaw", "etcd"])
    time.sleep(1)
"""


def is_stopping(kube: Kube, name: str) -> bool:
    instance = kube.there("vmi", name)
    return instance is None or "deletionTimestamp" in instance["metadata"]


def test_the_api_server_dies_during_a_start_and_during_a_stop(kube: Kube, storm: Storm) -> None:
    """At different moments."""
    with storm.undisturbed(ROCK, WAVE):
        for number in storm.again():
            name, moment = f"api{number}", number % 3
            kube.apply(machine(name))
            moments: list[Callable[[], object]] = [
                functools.partial(kube.there, "vmi", name),
                functools.partial(kube.pods, name),
                functools.partial(storm.is_on_its_node, name),
            ]
            kube.wait("the moment", moments[moment])
            with without(kube, "kube-apiserver"):
                if moment == 2:  # the order is on the node: nothing else is needed
                    kube.wait(f"QEMU of {name} without an API server", functools.partial(kube.qemus, name))
            kube.runs(name)
            kube.patch(f"vm/{name}", {"spec": {"runStrategy": "Halted"}})
            kube.wait("the beginning of the stop", functools.partial(is_stopping, kube, name))
            with without(kube, "kube-apiserver"):
                pass
            kube.is_gone(name)
            kube.remove(name)


@pytest.mark.long
def test_the_api_server_is_away_for_a_minute_in_which_one_guest_runs_on_and_one_ends(kube: Kube, storm: Storm) -> None:
    for _ in storm.rarely():
        with storm.undisturbed(ROCK):
            uid, address = kube.runs(WAVE), kube.address(ROCK)
            kube.has_shell(WAVE)
            with without(kube, "kube-apiserver"):
                kube.power_off(WAVE)
                kube.wait("the end of a QEMU", lambda: not kube.qemus(WAVE))
                end, pages = time.monotonic() + 60, 0
                while time.monotonic() < end or pages < 10:
                    kube.page(address, NODE_2)
                    pages += 1
            kube.runs(WAVE, not_this=uid)


@pytest.mark.long
def test_machines_come_and_go_while_etcd_is_slow(kube: Kube, storm: Storm) -> None:
    """It stops and goes on, second by second."""
    with storm.undisturbed(ROCK, WAVE):
        for number in storm.again():
            name = f"etcd{number}"
            with fault(kube, "etcd in pulses"):
                pulses = subprocess.Popen([sys.executable, "-c", PULSES, str(kube.program), kube.name])
                try:
                    kube.apply(machine(name))
                    kube.runs(name)
                    # Its end is to be one in order, and a guest that has not booted is killed.
                    kube.has_shell(name)
                    kube.remove(name)
                finally:
                    pulses.terminate()
                    pulses.wait()
                    kube.cluster("thaw", "etcd", check=False)
                kube.ask_until("an answer of the API server", lambda: is_ready(kube))
