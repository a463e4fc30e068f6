"""Sockets that wait to be closed."""

import contextlib
import socket
import struct

from .agent import Agent, line_of, plumb, report
from .answers import asked, expect

peers: list[socket.socket] = []


def lingering() -> None:
    """TCP sockets that keep a process that closes them last for an hour: the agent is to close them, and to go on."""
    for step in ["taken", "left unread"]:
        for _ in range(24):
            agent = Agent()
            agent.socket.settimeout(2)
            with contextlib.suppress(OSError, TimeoutError):
                if step == "taken":
                    agent.send(line_of(plumb()), [stuck_socket()])
                else:
                    agent.send(b"x", [stuck_socket()])
                    agent.send(b"x" * 300_000)
    # An answer that does not come within the patience is `nothing`.
    answered = asked(report("x"))
    expect("is still answered", answered, "another VirtualMachineInstance", "connections already", "no launcher")


def stuck_socket() -> int:
    """A TCP socket whose close waits: it has data that its peer does not take."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    here = socket.socket()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    here.connect(listener.getsockname())
    peers.append(listener.accept()[0])
    here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    here.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            here.send(b"x" * 65536)
    return here.detach()
