"""Callers without number. The log comes last: it has what all of them have sent."""

import datetime
import json
import pathlib
import time
from collections.abc import Callable

from garboard_e2e.hostile.agent import Measured, NodeAgent
from garboard_e2e.hostile.attackers import MEETING, Attackers, ends
from garboard_e2e.hostile.machines import Machines

# What the agent may take while it is flooded, and afterwards.
MOST = Measured(kib=96 * 1024, threads=64, descriptors=200)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_an_honest_machine_starts_in_a_flood_and_the_agent_stays_small(
    agent: NodeAgent, attackers: Attackers, machines: Machines, honest: str, note: Callable[[str], None]
) -> None:
    # Threads for what blocks end after ten seconds without work: those of the test before.
    attackers.kube.ask_until("few threads", lambda: agent.measured().threads < MOST.threads // 4)
    meeting, before = attackers.meet(), agent.measured()
    began, since = time.monotonic(), now()
    floods = {pod: attackers.begin(pod, "flood", f"{MEETING}/stop") for pod in ("liar", "stranger")}
    try:
        machines.make("flooded")
        machines.serves("flooded")
        during = agent.measured()
    finally:
        (meeting / "stop").touch()
        for pod, flood in floods.items():
            ends(flood, f"flood of {pod}")
    machines.remove("flooded")
    attackers.kube.ask_until("few descriptors again", lambda: agent.measured().descriptors <= before.descriptors + 8)
    after = agent.measured()
    note(f"before {before}; during {during}; after {after}")
    for measured in (during, after):
        is_small = measured.kib < MOST.kib and measured.threads < MOST.threads
        assert is_small and measured.descriptors < MOST.descriptors, f"{measured}, before it {before}"
    lines, seconds = len(agent.log(since).splitlines()), time.monotonic() - began
    # Twenty at once and five a second, of two pods and of callers in none, and a few of the machine's.
    assert lines < 200 + 16 * seconds, f"it logged {lines} lines in {seconds:.0f} s"


def test_a_caller_that_has_ended_is_refused(agent: NodeAgent, attackers: Attackers, honest: str) -> None:
    """It is gone, and its process number free, before the agent looks."""
    meeting, since = attackers.meet(), now()
    with agent.stopped():
        attempt = attackers.begin("liar", "gone", f"{MEETING}/go", f"{MEETING}/left")
        attackers.kube.ask_until("the caller to end", (meeting / "left").exists)
    (meeting / "go").touch()
    ends(attempt, "gone")
    refusals = ("the caller has ended", "could not look up the caller")
    attackers.kube.ask_until("a refusal", lambda: any(each in agent.log(since) for each in refusals))


def test_a_pod_that_is_not_there_any_more_gets_nothing(attackers: Attackers, honest: str) -> None:
    """It is deleted by force while its kubelet hangs, so that its processes stay."""
    kube, meeting = attackers.kube, attackers.meet()
    attackers.need("late", attackers.guise("honest"))
    attempt = attackers.begin("late", "late", honest, f"{MEETING}/go", f"{MEETING}/result")
    kube.ask_until("the first answer", (meeting / "result.first").exists)
    kube.cluster("freeze", "node-1/kubelet")
    try:
        attackers.remove("late")
        kube.ask_until("the end of the pod", lambda: not kube.tried("get", "pod", "late", "--ignore-not-found"))
        (meeting / "go").touch()
        # The agent learns of it by its watch, and that a little later perhaps.
        kube.ask_until("the second answer", (meeting / "result").exists)
    finally:
        kube.cluster("thaw", "node-1/kubelet")
        attempt.kill()
    answer = (meeting / "result").read_text()
    is_refused = "not there any more" in answer or "no launcher pod" in answer
    assert is_refused, f"it was answered {answer!r}"


def test_its_log_has_whole_short_lines_whatever_callers_send(
    agent: NodeAgent, attackers: Attackers, honest: str, directory: pathlib.Path
) -> None:
    """Each is one JSON object, without control characters."""
    attackers.tries("liar", "lies", honest)
    lines = agent.log().encode().split(b"\n")[:-1]
    assert lines, "the agent has no log"
    for line in lines:
        assert isinstance(json.loads(line), dict), f"no object: {line[:200]!r}"
        assert len(line) < 4096, f"a line of {len(line)} bytes"
        assert all(byte >= 32 for byte in line), f"a control character in {line[:200]!r}"
