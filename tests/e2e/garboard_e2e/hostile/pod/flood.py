"""Everything at once."""

import contextlib
import json
import os
import threading
from collections.abc import Callable

from .agent import ESCAPES, Agent, line_of, plumb, report
from .answers import show

GoesOn = Callable[[], bool]


def flood(stop: str) -> None:
    """Until there is the file `stop`: connections, halves of messages, large ones, byte by byte, answers that are not
    read. Prints how often each was begun."""
    attempts = [connections, halves, large, drops, unread, refused, reports, forks]
    counts = {what.__name__: 0 for what in attempts}

    def goes_on() -> bool:
        return not os.path.exists(stop)

    def again(what: Callable[[GoesOn], None]) -> None:
        while goes_on():
            counts[what.__name__] += 1
            with contextlib.suppress(OSError):
                what(goes_on)

    threads = [threading.Thread(target=again, args=(what,)) for what in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    show(json.dumps(counts))


def connections(_: GoesOn) -> None:
    held = [Agent() for _ in range(200)]
    for agent in held:
        agent.socket.close()


def halves(_: GoesOn) -> None:
    agent = Agent()
    agent.send(b'{"ask": "plumb", "interfaces": [')
    agent.socket.settimeout(1)
    agent.answer()


def large(_: GoesOn) -> None:
    agent = Agent()
    for _each in range(64):
        agent.send(b"x" * 65536)


def drops(goes_on: GoesOn) -> None:
    agent = Agent()
    agent.send(b"x" * 200_000)
    while goes_on():
        agent.send(b"x")


def unread(goes_on: GoesOn) -> None:
    agent = Agent()
    agent.socket.settimeout(1)
    line = line_of({"ask": "volume", "name": "x" * 1000})
    while goes_on():
        agent.send(line)


def refused(_: GoesOn) -> None:
    agent = Agent()
    for _each in range(50):
        agent.ask(plumb(mac=ESCAPES * 100), [os.open("/dev/zero", os.O_RDWR)])


def reports(_: GoesOn) -> None:
    agent = Agent()
    for _each in range(50):
        agent.ask(report("x" * 1000))


def forks(_: GoesOn) -> None:
    child = os.fork()
    if child == 0:
        try:
            Agent()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
