"""What is answered, and what should be."""

import sys
import time
from collections.abc import Callable, Sequence

from .agent import PATIENCE, Agent, Request

# What was answered otherwise than it should be.
failed: list[str] = []


def expect(what: str, answered: str, *texts: str) -> None:
    fine = any(text in answered for text in texts)
    show(("ok      " if fine else "FAILED  ") + f"{what}: {answered[:160]!r}")
    if not fine:
        failed.append(what)


def show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def final_answer(ask: Callable[[], str], closed: bool = False) -> str:
    """What is answered when another connection is accepted: the agent closes those before it in its own time, and
    closes connections of a caller that was refused often without an answer for a while. Launchers ask again, too.
    With `closed` that is an answer."""
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
    return final_answer(lambda: Agent().ask(request, descriptors), closed)
