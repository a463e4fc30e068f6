"""Which paths the agent touches, as strace records it."""

import pathlib
from collections.abc import Callable

from garboard_e2e.hostile import paths
from garboard_e2e.hostile.agent import NodeAgent
from garboard_e2e.hostile.attackers import MEETING, Attackers
from garboard_e2e.hostile.machines import Machines
from garboard_e2e.hostile.tracing import traced


def expect_own(trace: pathlib.Path, wanted: list[str]) -> str:
    """That nothing else than the agent's own was touched, and that the trace shows what was done."""
    seen = paths.Seen.in_trace(trace.read_text(errors="replace"))
    assert not (foreign := seen.foreign()), f"not the agent's own: {foreign[:5]}"
    assert not (missing := seen.missing(wanted)), f"the trace shows no {missing}"
    return seen.sums()


def test_a_start_and_a_stop_touch_no_path_of_a_pod(
    agent: NodeAgent, machines: Machines, directory: pathlib.Path, note: Callable[[str], None]
) -> None:
    with traced(agent.process(), paths.CALLS, directory / "trace"):
        machines.come_and_go("traced")
    note(expect_own(directory / "trace", paths.START))


def test_nor_does_anything_that_attackers_try_and_all_of_it_is_refused(
    agent: NodeAgent, attackers: Attackers, honest: str, directory: pathlib.Path, note: Callable[[str], None]
) -> None:
    meeting = attackers.meet()
    attackers.need("lender", on_the_nodes_network=True)
    lender = attackers.begin("lender", "lend", f"{MEETING}/lender")
    try:
        attackers.kube.ask_until("what is lent", (meeting / "lender").is_socket)
        with traced(agent.process(), paths.CALLS, directory / "trace"):
            refused = attackers.tries("stranger", "stranger")
            refused += attackers.tries("liar", "lies", honest)
            refused += attackers.tries("bare", "unordered")
            refused += attackers.tries("liar", "more")
            refused += attackers.tries("liar", "descriptors", f"{MEETING}/lender")
            refused += attackers.tries("liar", "deaths")
    finally:
        lender.kill()
        attackers.remove("lender")
    # Each attempt counts what it tries; all of them together are as many.
    assert refused >= 60, f"only {refused} attempts were made"
    note(f"{refused} refused, {expect_own(directory / 'trace', [paths.CALLER])}")
