"""One of many pods that report at once."""

import contextlib
import os
import socket
import time

from .agent import Agent, report
from .meeting import leave, sleep, wait_for


class Member:
    """A pod of the crowd, and what it holds."""

    def __init__(self, uid: str) -> None:
        self.uid, self.held = uid, list[Agent]()
        self.turns = self.noted = 0

    def is_noted(self, agent: Agent) -> bool | None:
        """Whether a report is noted, something else each time; None when the agent hung up."""
        self.turns += 1
        paused = "PausedByUser" if self.turns % 2 else None
        answered = agent.ask(report(self.uid, time.monotonic_ns(), paused=paused))
        self.noted += answered == "noted"
        return None if answered == "closed" else answered == "noted"

    def take_one_more(self) -> None:
        with contextlib.suppress(OSError):
            agent = Agent()
            if self.is_noted(agent):
                self.held.append(agent)
        time.sleep(0.1)

    def report_over_each(self) -> None:
        for agent in list(self.held):
            if self.is_noted(agent) is None:
                self.held.remove(agent)
            time.sleep(0.1)


def crowd(uid: str, meeting: str) -> None:
    """Reports of the VMI `uid`. Leaves `here` when it has the connections that every pod gets; from `go` to `stop`
    takes all it can get and reports over each in turn; then counts those that are answered, and begins a request of
    nearly the longest size on each. More often than this would be a `flood`, which keeps the agent from writing."""
    name, member = socket.gethostname(), Member(uid)
    while len(member.held) < 2:
        member.take_one_more()
    leave(f"{meeting}/here.{name}")
    wait_for(f"{meeting}/go")
    while not os.path.exists(f"{meeting}/stop"):
        member.take_one_more()
        member.report_over_each()
    answering = [agent for agent in member.held if member.is_noted(agent)]
    for agent in answering:
        agent.send(b'{"ask": "' + b"x" * 262_000)
    leave(f"{meeting}/result.{name}", f"{len(answering)} {member.noted}\n")
    sleep()
