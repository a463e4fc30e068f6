"""A launcher that was taken over, at the other end of the streams and requests of its users. The node agent and the
controllers in between are the real ones."""

from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NODE_1
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.stream import ended, received, typed
from garboard_e2e.hostile.account import Account
from garboard_e2e.hostile.attackers import Attackers
from garboard_e2e.hostile.stand_in import StandIn, controllers_kib, stand_in

# What both controllers together may have more while a launcher floods a viewer who reads nothing: less than it sends in
# a second.
MOST_KIB = 48 * 1024
LONGEST_MESSAGE = 1024


@pytest.fixture(scope="module")
def prey(kube: Kube) -> Iterator[str]:
    """A machine whose launcher is taken over."""
    kube.apply(machine("prey", "Always", tests="", node=NODE_1))
    kube.runs("prey")
    kube.has_shell("prey")
    yield "prey"
    kube.remove("prey")


def test_a_pod_that_offers_itself_gets_no_stream_of_another_machine(
    attackers: Attackers, alice: Account, answering: str
) -> None:
    """It has the labels, the owner and the order of the machine's launcher; the streams go by the pod's UID."""
    attempt = attackers.begin("liar", "offers")
    # Meanwhile: what would come to it comes to the machine.
    while attempt.poll() is None:
        alice.types(answering)
    printed, _ = attempt.communicate()
    assert attempt.returncode == 0 and printed.count("ok ") >= 6, printed
    alice.types(answering)


@pytest.fixture(scope="module")
def taken_over(kube: Kube, attackers: Attackers, alice: Account, prey: str) -> Iterator[StandIn]:
    with stand_in(kube, attackers, prey) as standing:
        yield standing
    # Its supervisor is asked again, and has missed nothing.
    alice.types(prey)


# What it answers to a request for its console, and what the user gets instead of a stream.
REFUSED = {
    "nonsense": (500, "sent an answer that cannot be parsed"),
    "bytes": (500, "sent an answer that cannot be parsed"),
    "unexpected": (500, "the launcher sent an unexpected answer"),
    "escapes": (409, "\\u{1b}[31m\\r\\n"),
    "endless line": (500, "sent an answer longer than 524288 bytes"),
    "silence": (500, "did not answer within 6 s"),
}
# What it sends in a session, and how the user's stream is closed.
CLOSED = {
    "end with escapes": (1001, "\\u{1b}[31m"),
    "end without an end": (1011, "ended a session with more than 4096 bytes"),
    "half a part": (1011, "the stream was cut"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_instead_of_a_stream_its_user_gets_a_short_reason(
    taken_over: StandIn, alice: Account, prey: str, answering: str, what: str
) -> None:
    taken_over.says(what)
    answer, (code, text) = alice.refused(prey, "console"), REFUSED[what]
    assert answer.status == code and text in answer.message, answer
    assert len(answer.message) < LONGEST_MESSAGE and answer.message.isprintable(), f"{answer.message!r}"
    alice.types(answering)


@pytest.mark.parametrize("what", CLOSED)
def test_a_session_ends_with_a_short_reason(
    taken_over: StandIn, alice: Account, prey: str, answering: str, what: str
) -> None:
    taken_over.says(what)
    with alice.stream(prey, "console") as stream, alice.stream(answering, "console") as other:
        code, reason = ended(stream)
        assert (code, CLOSED[what][1] in reason) == (CLOSED[what][0], True), f"{code} {reason!r}"
        # A close frame has room for 123 bytes.
        assert reason.isprintable() and len(reason.encode()) <= 123, f"{reason!r}"
        typed(other)


def test_a_change_reaches_no_instance_that_the_launcher_says_it_is_not(
    taken_over: StandIn, alice: Account, prey: str, answering: str
) -> None:
    """As one of an earlier run would answer, which an old request must not find."""
    taken_over.says("another instance")
    answer = alice.puts(prey, "reset")
    assert answer.status == 500 and "the launcher runs another instance than this one" in answer.message, answer
    alice.types(answering)


def test_a_flood_that_is_not_read_stays_on_its_node(
    kube: Kube, taken_over: StandIn, alice: Account, prey: str, answering: str, note: Callable[[str], None]
) -> None:
    taken_over.says("flood")
    before = controllers_kib(kube)
    with alice.stream(prey, "console") as viewer, alice.stream(answering, "console") as other:
        assert b"flood" in received(viewer)
        took = [typed(other) for _ in range(10)]
        more = controllers_kib(kube) - before
        note(f"{more} KiB more; keystrokes beside it took {max(took):.2f} s at most")
        assert more < MOST_KIB, f"the controllers have {more} KiB more"
    alice.types(answering)
