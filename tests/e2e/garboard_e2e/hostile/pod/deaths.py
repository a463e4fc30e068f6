"""Callers that end, or whose pod does."""

import os
import socket
import time
from collections.abc import Callable

from .agent import PATIENCE, Agent, line_of, plumb, report, sockets
from .answers import asked, expect, final_answer
from .descriptors import own_network
from .meeting import leave, wait_for

# Of a pod that is not there any more, on an older connection and on a new one.
GONE = ("not there any more", "no launcher pod")
STEPS: dict[str, Callable[[Agent], None]] = {
    "connected": lambda agent: None,
    "half a line": lambda agent: agent.send(b'{"ask": "plu'),
    "a descriptor without a line": lambda agent: agent.send(b"{", [own_network()]),
    "a request": lambda agent: agent.send(line_of(sockets()), [own_network()]),
    "two requests": lambda agent: agent.send(line_of(report("x")) * 2),
}


def deaths() -> None:
    """A caller that dies at every step, and what others do with what it left."""
    for what, step in STEPS.items():
        for _ in range(20):
            child = os.fork()
            if child == 0:
                step(Agent())
                os._exit(0)
            os.waitpid(child, 0)
        answered = asked(report("x"))
        expect(f"died after: {what}", answered, "another VirtualMachineInstance", "connections already")
    answered = Agent(inherited()).ask(plumb(), [own_network()])
    expect("inherited a connection", answered, "has ended", "closed")


def inherited() -> socket.socket:
    """A connection that outlives the process that made it: nothing is made for it any more."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        agent = Agent()
        socket.send_fds(theirs, [b"x"], [agent.socket.fileno()])
        os._exit(0)
    ours.settimeout(PATIENCE)
    _, received, _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(child, 0)
    return socket.socket(fileno=received[0])


def gone(go: str, result: str) -> None:
    """Called by a process that has ended when the agent gets to it: the agent is stopped until the file `go` is
    there."""
    child = os.fork()
    if child == 0:
        agent = Agent()
        agent.send(line_of(plumb()), [own_network()])
        os._exit(0)
    os.waitpid(child, 0)
    leave(result)
    wait_for(go)


def late(uid: str, go: str, result: str) -> None:
    """Goes on talking after its pod was deleted. The agent learns of that as it learns of pods, and until then it may
    give."""
    agents = []

    def first() -> str:
        agents.append(Agent())
        return agents[-1].ask(report(uid))

    leave(result + ".first", final_answer(first))
    agent = agents[-1]
    wait_for(go)
    end = time.monotonic() + PATIENCE
    while True:
        answered = agent.ask(plumb(), [own_network()])
        if any(text in answered for text in GONE) or time.monotonic() > end:
            break
        if answered == "closed":
            agent = Agent()
        time.sleep(0.2)
    leave(result, answered)
