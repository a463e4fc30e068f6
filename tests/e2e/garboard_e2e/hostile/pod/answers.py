"""What is answered, and what should be."""

import sys
import time
from collections.abc import Callable, Sequence

from .agent import PATIENCE, Agent, Request

# What was answered otherwise than it should be.
failed: list[str] = []


def expect(what: str, answered: str, *words: str) -> None:
    fine = any(word in answered for word in words)
    say(("ok      " if fine else "FAILED  ") + f"{what}: {answered[:160]!r}")
    if not fine:
        failed.append(what)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def told(ask: Callable[[], str], closed: bool = False) -> str:
    """What is answered where there is room for a connection: the agent puts away those before it in its own time, and
    hangs up on a caller that was refused often without a word for a while. Launchers ask again, too. With `closed` that
    is an answer."""
    end = time.monotonic() + 2 * PATIENCE
    while True:
        try:
            answered = ask()
        except (BlockingIOError, ConnectionError):
            answered = "closed"
        is_answer = closed if answered == "closed" else "connections already" not in answered
        if is_answer or time.monotonic() > end:
            return answered
        time.sleep(0.3)


def asked(request: Request | str, descriptors: Sequence[int] = (), closed: bool = False) -> str:
    """The same, over a connection of its own."""
    return told(lambda: Agent().ask(request, descriptors), closed)
