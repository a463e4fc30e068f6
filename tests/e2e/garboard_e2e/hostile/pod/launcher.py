"""A launcher that was taken over: what it asks the node agent for, and what it sends on control connections."""

import contextlib
import json
import os
import socket
import threading
import time

from .agent import ESCAPES, PATIENCE, Agent, report
from .answers import asked, expect, final_answer
from .meeting import leave

SERVE = {"ask": "serve"}
# Seconds in which the streams of other machines are opened.
WHILE = 3
# What an agent asks each pod that it has taken (protocol/src/control/mod.rs).
OF_EACH = {"logVerbosity", "statistics"}


def line(answer: str, **fields: object) -> bytes:
    return json.dumps({"answer": answer, **fields}).encode() + b"\n"


def ends(reason: bytes) -> bytes:
    """A session that is over at once (protocol/src/session.rs)."""
    return line("session") + b"\0\0" + reason


# What each file `say` means: what is sent once the request was read.
SAYS: dict[str, bytes] = {
    "nonsense": line("everything"),
    "bytes": b"\x1b[2J\xff\0\n",
    "unexpected": line("healthy"),
    "escapes": line("denied", reason=ESCAPES * 100),
    "silence": b"",
    "another instance": line("status", **report("99999999-2222-3333-4444-555555555555")["status"]),
    "end with escapes": ends(json.dumps({"reason": ESCAPES * 20}).encode() + b"\n"),
    "end without an end": ends(b"x" * 8192),
    "half a part": line("session") + b"\0\5ab",
}
# After these the connection is closed; the others are kept until the controller has enough.
CLOSED = {"half a part"}
# What goes on until nobody reads it any more.
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "endless line": (b"", b"[" * 65536),
    "flood": (line("streaming"), b"flood \x1b[2J" * 6553),
}


def offered(what: str) -> Agent:
    """A connection to the agent that control connections are to come on."""
    made: list[Agent] = []

    def ask() -> str:
        made.append(Agent())
        return made[-1].ask(SERVE)

    expect(what, final_answer(ask), "serving")
    return made[-1]


def asked_for(agent: Agent) -> str:
    """What the agent asks this pod for meanwhile, but for what it asks each."""
    names: set[str] = set()
    agent.socket.settimeout(0.2)
    end = time.monotonic() + WHILE
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
            data, descriptors, _, _ = socket.recv_fds(agent.socket, 4096, 16)
            if not data:
                return "closed"
            for descriptor in descriptors:
                with socket.socket(fileno=descriptor) as connection, connection.makefile() as lines:
                    names.add(json.loads(lines.readline())["ask"])
    return " ".join(sorted(names - OF_EACH)) or "nothing"


def after_that(agent: Agent, answered: str) -> str:
    """The answer behind what the agent asks each pod."""
    while answered == "connection":
        answered = agent.answer()
    return answered


def offers() -> None:
    """A pod that is no machine's, and offers itself for control connections: it gets none for a user, and is sent away
    when it speaks unasked."""
    agent = offered("is taken for what its labels say")
    expect("gets no stream of another machine", asked_for(agent), "nothing")
    agent.socket.settimeout(PATIENCE)
    agent.send(b'{"answer": "connection"}\n')
    expect("sends what nobody asked for", after_that(agent, agent.answer()), "closed")
    again = offered("is taken again")
    expect("sends a long line", after_that(again, again.ask("x" * 300_000)), "closed")
    expect("and is answered as before", asked(report("x")), "another VirtualMachineInstance", "connections already")


class Serving:
    """The control connections of this pod."""

    def __init__(self, meeting: str) -> None:
        self.meeting = meeting

    def says(self) -> str:
        with contextlib.suppress(OSError), open(f"{self.meeting}/say") as file:
            return file.read()
        return ""

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        what = self.says()
        with connection, contextlib.suppress(OSError):
            while connection.recv(1) not in (b"\n", b""):
                pass
            if what in ENDLESS:
                first, again = ENDLESS[what]
                connection.sendall(first)
                while True:
                    connection.sendall(again)
            connection.sendall(SAYS.get(what, b""))
            while what not in CLOSED and connection.recv(4096):
                pass


def serves(meeting: str) -> None:
    """Takes the place of the pod's supervisor, until the file `stop`: the newest connection of a pod counts. Leaves
    `serving` when the agent has taken it. Its streams end with this process."""
    agent, serving = Agent(), Serving(meeting)
    if (answered := agent.ask(SERVE)) != "serving":
        raise SystemExit(f"the agent answers {answered}")
    leave(f"{meeting}/serving")
    agent.socket.settimeout(0.2)
    while not os.path.exists(f"{meeting}/stop"):
        with contextlib.suppress(TimeoutError):
            data, descriptors, _, _ = socket.recv_fds(agent.socket, 4096, 16)
            if not data:
                raise SystemExit("the agent hung up")
            for descriptor in descriptors:
                connection = socket.socket(fileno=descriptor)
                threading.Thread(target=serving.serve, args=(connection,), daemon=True).start()
