"""Verbs: start, restart, stop, pause, unpause, reset, by users who may and who may not."""

from collections.abc import Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE
from garboard_e2e.cluster.person import SECONDS, Person

WAITING = ("--timeout", SECONDS)


@pytest.fixture
def manual(person: Person, installed: None, image: None) -> Iterator[str]:
    """A machine that runs when it is started."""
    person.apply("manual", "Manual")
    yield "manual"
    person.delete("manual")


def test_an_editor_starts_restarts_and_stops_a_machine_whose_strategy_stays(
    person: Person, manual: str, ada: str
) -> None:
    editor, name = person.plugin.of(ada), f"{NAMESPACE}/{manual}"
    person.why(manual, "halted", "it runs when it is started")
    editor.prints(f"{name} runs$", "start", manual, *WAITING)
    editor.prints(f"{name} runs already", "start", manual)
    before = person.field(f"vmi/{manual}", "metadata", "uid")
    person.await_boot(manual)
    editor.prints(f"{name} runs again", "restart", manual, *WAITING)
    assert person.field(f"vmi/{manual}", "metadata", "uid") != before, "it is the same instance"
    stopped = editor.call("stop", manual, "--force", *WAITING)
    assert stopped.returncode == 0 and f"{name} stopped" in stopped.stdout, stopped
    assert "in its own time" not in stopped.stderr, stopped.stderr
    editor.prints(f"{name} does not run already", "stop", manual)
    assert person.field(f"vm/{manual}", "spec", "runStrategy") == "Manual", "its strategy was changed"
    person.plugin.refuses(4, "it does not run; .kubectl garboard start manual. starts it", "restart", manual)


def test_who_may_only_look_starts_nothing(person: Person, manual: str, bob: str) -> None:
    person.plugin.of(bob).refuses(4, "you may not do this", "start", manual)


def test_a_machine_that_is_not_there_is_named(person: Person, installed: None) -> None:
    person.plugin.refuses(3, "there is no machine .nobody", "stop", "nobody")


def test_an_editor_writes_no_more_than_a_request(person: Person, manual: str, ada: str) -> None:
    status = ["patch", f"vm/{manual}", "--subresource=status", "--type=merge", "-p", '{"status":{"ready":true}}']
    person.kubectl.of(ada).refuses(1, "only stateChangeRequests may be changed", *status)


def test_a_stop_may_take_longer_than_the_instance_and_says_where_that_is_too_long(person: Person, manual: str) -> None:
    for seconds, own_time in (("100000", False), ("40000000", True)):
        person.plugin.run("start", manual, *WAITING)
        person.await_boot(manual)
        stopped = person.plugin.call("stop", manual, "--grace-period", seconds, *WAITING)
        assert stopped.returncode == 0 and f"{NAMESPACE}/{manual} stopped" in stopped.stdout, stopped
        has_warned = "stops, but in its own time: " in stopped.stderr and "366 days" in stopped.stderr
        assert has_warned == own_time, stopped.stderr


def test_what_is_being_stopped_is_started_afterwards(person: Person, installed: None, image: None) -> None:
    person.apply("again", "Halted")
    person.plugin.run("start", "again", *WAITING)
    before = person.field("vmi/again", "metadata", "uid")
    person.plugin.run("stop", "again", "--no-wait")
    person.plugin.prints(f"{NAMESPACE}/again runs$", "start", "again", *WAITING)
    assert person.field("vmi/again", "metadata", "uid") != before, "it is the same instance"
    person.delete("again")


def test_a_halted_machine_is_started_and_stopped_and_stays_halted(
    kube: Kube, person: Person, installed: None, image: None
) -> None:
    person.apply("halted", "Halted")
    person.plugin.prints(f"{NAMESPACE}/halted runs$", "start", "halted", *WAITING)
    # One of two is not there, and the other one stops.
    missing = "there is no machine .nobody"
    person.plugin.refuses(3, missing, "stop", "nobody", "halted", "--force", *WAITING)
    person.await_field("vm/halted", "Stopped", "status", "printableStatus")
    assert person.field("vm/halted", "spec", "runStrategy") == "Halted", "it is not Halted"
    person.delete("halted")


@pytest.fixture
def goes_on(person: Person, machine: str) -> Iterator[str]:
    """A machine that runs, and runs again afterwards."""
    yield machine
    person.plugin.run("unpause", machine)


def test_pause_unpause_and_reset(person: Person, goes_on: str, bob: str) -> None:
    name = f"{NAMESPACE}/{goes_on}"
    person.plugin.prints(f"{name} paused", "pause", goes_on)
    person.plugin.prints(f"{name} is paused already", "pause", goes_on)
    person.why(goes_on, "paused", "it is paused|was paused on request")
    person.plugin.prints(f"kubectl garboard unpause {goes_on}", "why", goes_on)
    person.plugin.prints(f"{name} running", "unpause", goes_on)
    person.await_verdict(goes_on, "running")
    person.plugin.prints(f"{name} is to reboot", "soft-reboot", goes_on)
    person.plugin.prints(f"{name} reset", "reset", goes_on)
    person.plugin.refuses(4, "the QEMU guest agent is not connected", "freeze", goes_on)
    person.plugin.of(bob).refuses(4, "you may not do this: .*virtualmachineinstances/pause", "pause", goes_on)


def test_of_two_machines_one_that_is_there_is_paused(person: Person, goes_on: str) -> None:
    person.plugin.refuses(3, "there is no machine .nobody", "pause", "nobody", goes_on)
    person.plugin.prints(f"{NAMESPACE}/{goes_on} running", "unpause", goes_on)
