"""Streams that are open while parts fail: what their clients read and when, that the machine's session is over then,
and that its guest does not notice. Of each machine a console, which goes through the agent of its node, and a
connection to a port of the guest, which does not (docs/failures.md)."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.counting import counting
from garboard_e2e.cluster.faults import cut_off, fault, without
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NODE_1, NODE_2, Object
from garboard_e2e.cluster.storm import ROCK, WAVE, Storm
from garboard_e2e.cluster.stream import ABNORMAL
from garboard_e2e.cluster.streams import End, Pair, Streams
from garboard_e2e.names import SUPERVISOR

# Codes of close frames (RFC 6455, 7.4.1, and its registry).
ERROR, RESTARTS = 1011, 1012
# How long it may take until the end of a process is read by its clients, in seconds. Generous: tests run beside
# compilers.
AT_ONCE = 15
# A controller that is to end answers for so long (controller/src/shutdown/mod.rs).
ANSWERS = 5
# How long it takes until both ends of an agent's connection notice that nothing arrives (tunnel/src/lib.rs).
NOTICED = 20
# The same of a connection to a guest that is idle: 30 s, and three questions (controller/src/subresources/forward.rs).
KEPT_ALIVE = 60

Note = Callable[[str], None]


@pytest.fixture
def streams(kube: Kube) -> Streams:
    return Streams(kube)


def codes(ends: list[End]) -> list[int]:
    return [end.code for end in ends]


def after(began: float, end: End) -> str:
    return f"{end.at - began:.1f} s"


def two_controllers(kube: Kube, storm: Storm) -> tuple[Object, Object]:
    """The leader, and the other one."""
    storm.has_two_controllers()
    leader = kube.ask_until("a leader", storm.leader)

    def other() -> Object | None:
        return next((pod for pod in storm.replicas() if pod["metadata"]["uid"] != leader["metadata"]["uid"]), None)

    return leader, kube.ask_until("another controller", other)


@contextlib.contextmanager
def apart(storm: Storm, streams: Streams, failing: Object, other: Object) -> Iterator[tuple[Pair, Pair]]:
    """Streams by a controller that is to fail, and by the other one. Neither guest notices, the other streams go on,
    and in the end there are two controllers again."""
    with (
        storm.undisturbed(ROCK, WAVE),
        counting(storm.kube, ROCK, WAVE),
        streams.of(ROCK, failing) as cut,
        streams.of(WAVE, other) as kept,
    ):
        yield cut, kept
        kept.go_on()
        storm.has_two_controllers()


def test_a_controller_that_is_killed_ends_its_own_streams_alone(
    kube: Kube, storm: Storm, streams: Streams, note: Note
) -> None:
    for _ in storm.again():
        leader, killed = two_controllers(kube, storm)
        with apart(storm, streams, killed, leader) as (cut, _), fault(kube, "a controller killed"):
            began = time.monotonic()
            storm.kill_process(killed)
            ends = cut.ended(AT_ONCE)
            assert codes(ends) == [ABNORMAL, ABNORMAL], ends
            with streams.console_again(ROCK):
                again = time.monotonic()
    note(f"both ended after {after(began, ends[0])}, the console again {again - began:.1f} s")


def test_a_leader_that_is_stopped_says_so_to_its_clients_and_other_streams_go_on(
    kube: Kube, storm: Storm, streams: Streams, note: Note
) -> None:
    """As in an upgrade, and while its node is drained. To the other streams it makes no difference who leads."""
    for _ in storm.again():
        leader, other = two_controllers(kube, storm)
        with apart(storm, streams, leader, other) as (cut, kept), fault(kube, "the leader stopped"):
            began = time.monotonic()
            storm.stop_controller(leader)
            kube.ask_until("another leader", storm.leader)
            kept.go_on()
            ends = cut.ended(ANSWERS + AT_ONCE)
            assert codes(ends) == [RESTARTS, RESTARTS], ends
            assert all("connect again" in end.reason for end in ends), ends
            with streams.console_again(ROCK):
                again = time.monotonic()
    note(f"both ended after {after(began, ends[0])}, the console again {again - began:.1f} s")


def test_an_agent_that_is_killed_ends_consoles_and_no_connection_to_a_guest(
    kube: Kube, storm: Storm, streams: Streams, note: Note
) -> None:
    """Rarely: the kubelet lets a container that dies often wait up to five minutes."""
    for _ in storm.rarely():
        with storm.undisturbed(ROCK, WAVE), counting(kube, WAVE), streams.of(WAVE) as pair, streams.of(ROCK) as far:
            with fault(kube, f"the agent of {NODE_2} killed"):
                began = time.monotonic()
                storm.kill_agent(NODE_2)
                end = pair.console.ended(AT_ONCE)
                assert end.code == ERROR and end.reason, end
                pair.port.echoes()
                with streams.console_again(WAVE):
                    again = time.monotonic()
                pair.port.echoes()
            far.go_on()
            kube.ask_until(f"the agent of {NODE_2}", kube.offers_devices)
    note(f"the console ended after {after(began, end)} ({end.reason}), and again {again - began:.1f} s")


def test_a_supervisor_that_is_killed_ends_consoles_and_no_connection_to_a_guest(
    kube: Kube, storm: Storm, streams: Streams, note: Note
) -> None:
    """Rarely: the kubelet lets a container that dies often wait up to five minutes."""
    for _ in storm.rarely():
        with storm.undisturbed(ROCK, WAVE), counting(kube, WAVE), streams.of(WAVE) as pair:
            began = time.monotonic()
            kube.kill(WAVE, SUPERVISOR)
            end = pair.console.ended(AT_ONCE)
            assert end.code == ERROR and end.reason, end
            pair.port.echoes()
            with streams.console_again(WAVE):
                again = time.monotonic()
            pair.port.echoes()
    note(f"the console ended after {after(began, end)}, and again {again - began:.1f} s")


def test_streams_end_with_their_api_server_and_are_opened_when_it_is_back(
    kube: Kube, storm: Storm, streams: Streams, note: Note
) -> None:
    for _ in storm.again():
        with storm.undisturbed(ROCK, WAVE), counting(kube, ROCK) as (counter,), streams.of(ROCK) as cut:
            began = time.monotonic()
            with without(kube, "kube-apiserver"):
                ends = cut.ended(AT_ONCE)
                assert codes(ends) == [ABNORMAL, ABNORMAL], ends
                counter.goes_on()
            back = time.monotonic()
            with streams.console_again(ROCK):
                again = time.monotonic()
    note(f"both ended after {after(began, ends[0])}, the console again {again - back:.1f} s after the API server was")


@pytest.mark.long
def test_a_node_that_is_cut_off_ends_its_streams_in_time(
    kube: Kube, storm: Storm, streams: Streams, note: Note
) -> None:
    """Nothing on the way ends, and nothing arrives: each side notices alone. The controller is on the other node."""
    for _ in storm.rarely():
        near = storm.controller_on(NODE_1)
        with (
            storm.undisturbed(ROCK, WAVE),
            counting(kube, WAVE) as (counter,),
            streams.of(WAVE, near) as cut,
            streams.of(ROCK, near) as kept,
        ):
            began = time.monotonic()
            with cut_off(kube, NODE_2):
                console = cut.console.ended(NOTICED + AT_ONCE)
                kept.go_on()
                port = cut.port.ended(KEPT_ALIVE + AT_ONCE)
                counter.goes_on()
            for end in (console, port):
                assert end.code == ERROR and end.reason, end
            with streams.console_again(WAVE):
                kept.go_on()
    note(f"the console ended after {after(began, console)}, the connection to the guest after {after(began, port)}")
