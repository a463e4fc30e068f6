"""Many pods of one node that report at once use up their common share of its agent, and not the API server's patience
or the agent's memory."""

import contextlib
import os
import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.audit import moments
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NODE_1
from garboard_e2e.hostile.agent import NodeAgent
from garboard_e2e.hostile.attackers import MEETING, Attackers, manifest
from garboard_e2e.hostile.machines import Machines
from garboard_e2e.hostile.pace import BURST, ahead, allowed
from garboard_e2e.patience import PATIENCE
from garboard_e2e.processes import status_of

# So many need more than half of the agent's connections with the 8 of each (CONNECTIONS_PER_POD, node/src/budget.rs),
# and more than its pace of writes with one write a second of each (WRITE_PERIOD, there).
CROWD = 50
# Of 768 connections (CONNECTIONS, there) half are kept for pods with fewer than three (RESERVED).
CONNECTIONS, SHARED = 768, 384
# So many writes that the even pace (NODE_WRITE_PERIOD, there) takes half a minute for those after the burst.
WRITES = 800
# So many pods come and go one after the other.
SECONDS = 3 * PATIENCE


class Sockets:
    """How many sockets a process has, looked at again and again."""

    def __init__(self, process: int) -> None:
        self.process, self.most, self.over = process, 0, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self) -> None:
        while not self.over.wait(0.2):
            self.most = max(self.most, sum(target.startswith("socket:") for target in targets(self.process)))

    def __enter__(self) -> "Sockets":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def targets(process: int) -> Iterator[str]:
    """What its descriptors are of."""
    with contextlib.suppress(OSError):
        for descriptor in pathlib.Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                yield os.readlink(descriptor)


class Crowd:
    """Pods that pretend to be the launcher of one machine."""

    def __init__(self, attackers: Attackers) -> None:
        self.attackers, self.kube, self.meeting = attackers, attackers.kube, attackers.meet()

    def come(self, uid: str) -> None:
        """All at once, of one manifest."""
        pods, guise = [], self.attackers.guise("honest")
        for number in range(CROWD):
            pod = manifest(f"crowd-{number}", guise, attempt=["crowd", uid, MEETING])
            pod["metadata"]["labels"]["hostile"] = "crowd"
            pods.append(pod)
        self.kube.apply(*pods)
        self.is_all("here")

    def go(self) -> None:
        self.kube.kubectl("delete", "pods", "-l", "hostile=crowd", "--force", "--grace-period=0")

    def left(self, what: str) -> list[pathlib.Path]:
        return [each for each in self.meeting.glob(f"{what}.*") if not each.name.endswith(".new")]

    def is_all(self, what: str) -> None:
        """Waits until each has left such a file."""
        self.kube.ask_until(f"`{what}` of the crowd", lambda: len(self.left(what)) == CROWD, SECONDS)

    def results(self) -> tuple[int, int]:
        """How many connections they held in the end, and how many reports of theirs were noted."""
        found = [each.read_text().split() for each in self.left("result")]
        return sum(int(held) for held, _ in found), sum(int(noted) for _, noted in found)


@pytest.fixture
def crowd(agent: NodeAgent, attackers: Attackers, honest: str) -> Iterator[Crowd]:
    """There, with the two connections that every pod gets. When it has gone, the agent has few descriptors again."""
    before = agent.measured().descriptors
    crowd = Crowd(attackers)
    crowd.go()
    try:
        crowd.come(honest)
        yield crowd
    finally:
        # The tests after this one are to have the node to themselves.
        (crowd.meeting / "stop").touch()
        crowd.go()
    attackers.kube.ask_until("few descriptors again", lambda: agent.measured().descriptors <= before + 8)


def test_many_pods_report_at_once_and_the_agent_writes_at_its_pace(
    kube: Kube, agent: NodeAgent, crowd: Crowd, machines: Machines, note: Callable[[str], None]
) -> None:
    process, restarts = agent.process(), agent.restarts()
    begin = kube.audit_log.stat().st_size
    with Sockets(process) as sockets:
        (crowd.meeting / "go").touch()
        # By then it writes no faster than it may.
        wait_for_writes(kube, begin, BURST)
        machines.make("crowded")
        machines.serves("crowded")
        wait_for_writes(kube, begin, WRITES)
        (crowd.meeting / "stop").touch()
        crowd.is_all("result")
    held, noted = crowd.results()
    peak, limit = int(status_of(process)["VmHWM"].split()[0]), agent.limit_kib()
    note(f"{noted} reports over {held} connections, {sockets.most} sockets, {peak} KiB of {limit} at most")
    note(expect_pace(kube, begin))
    # Beyond their share each may still take the third that it needs.
    assert held <= SHARED + CROWD, f"the crowd had {held} connections"
    assert held >= SHARED - 32, f"it was no crowd: it had no more than {held} connections"
    assert sockets.most < CONNECTIONS, f"the agent had {sockets.most} sockets"
    assert peak < limit, f"the agent had {peak} KiB of {limit}"
    assert (agent.process(), agent.restarts()) == (process, restarts), "the agent was started again"
    assert not kube.condition("vmi", "honest", "Paused"), "the crowd was believed"
    machines.remove("crowded")


def wait_for_writes(kube: Kube, begin: int, number: int) -> None:
    written = f"{number} writes of the agent"
    kube.ask_until(written, lambda: len(moments(kube.audit_log, NODE_1, begin)) >= number, SECONDS)


def expect_pace(kube: Kube, begin: int) -> str:
    found = moments(kube.audit_log, NODE_1, begin)
    most, may = ahead(found), allowed(CROWD)
    found_pace = (
        f"{len(found)} writes in {found[-1] - found[0]:.1f} s, at most {most:.0f} ahead of the pace, {may} allowed"
    )
    assert most <= may, found_pace
    return found_pace
