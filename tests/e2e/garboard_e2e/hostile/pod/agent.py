"""The agent's socket, and requests to it."""

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

AGENT = os.environ.get("GARBOARD_AGENT", "/run/garboard-agent/agent.sock")
ESCAPES = '\x1b[31m\r\n{"level":"INFO","message":"forged"}\x00'
# Seconds. An answer that takes longer was held up by another caller: what holds up here does so for longer.
PATIENCE = 30

Request = dict[str, Any]


class Agent:
    """A connection to the agent."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        """A new one, or one that another process made, or will make."""
        self.socket = connection or socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        if connection is None:
            self.socket.connect(AGENT)

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        sent = self.socket.sendmsg([data], ancillary)
        # Nothing is left, as a rule; who sends even that meets a connection that was closed meanwhile.
        if rest := data[sent:]:
            self.socket.sendall(rest)

    def answer(self) -> str:
        """The next line; `closed` when the agent hung up."""
        line = b""
        try:
            while not line.endswith(b"\n"):
                # No more than this line: descriptors that come with the next one would be lost.
                data = self.socket.recv(1)
                if not data:
                    return "closed"
                line += data
        except (ConnectionResetError, BrokenPipeError):
            return "closed"
        except TimeoutError:
            return "nothing"
        return reason(line)

    def ask(self, request: Request | str, descriptors: Sequence[int] = ()) -> str:
        try:
            self.send(line_of(request), descriptors)
        except (BrokenPipeError, ConnectionResetError):
            return "closed"
        return self.answer()


def line_of(request: Request | str) -> bytes:
    """A request as it is sent; a text becomes JSON that is none."""
    return json.dumps(request).encode() + b"\n"


def reason(line: bytes) -> str:
    """The reason of a refusal, or the answer's kind."""
    answered = json.loads(line)
    return str(answered.get("reason", answered["answer"]))


MASQUERADE = {"binding": "masquerade", "ipv4": "10.0.2.0/24", "ipv6": "fd10:0:2::/120", "ports": []}
BRIDGE = {"binding": "bridge"}


def plumb(**changes: Any) -> Request:
    """What the honest machine's launcher asks for, with changes to the interface."""
    interface = {"name": "default", "tap": "tap0", "mac": "02:00:00:aa:bb:01", "queues": 1, "binding": MASQUERADE}
    return {"ask": "plumb", "interfaces": [interface | changes]}


def sockets(**changes: Any) -> Request:
    """The same for the sockets that serve an interface."""
    return plumb(**changes) | {"ask": "sockets"}


def report(uid: str, generation: int = 1, **changes: Any) -> Request:
    status = {
        "generation": generation,
        "namespace": "default",
        "name": "x",
        "uid": uid,
        "phase": "Running",
        "phaseSinceMs": 0,
        "paused": None,
        "stopping": False,
        "softwareEmulation": True,
        "machine": "forged",
        "memoryBytes": 1,
        "vcpus": 1,
        "interfaces": [],
        "guest": None,
        "taints": [],
        "supervisorPid": 1,
        "resets": 0,
        "ended": None,
    }
    return {"ask": "report", "status": {**status, **changes}}
