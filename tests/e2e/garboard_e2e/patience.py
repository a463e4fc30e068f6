"""Waiting for states, never for times."""

import os
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from .outcome import Failure

# Seconds. Generous: tests run beside compilers, and guests are emulated.
PATIENCE = int(os.environ.get("GARBOARD_PATIENCE", "240"))

Found = TypeVar("Found")


def wait_until(
    what: str,
    holds: Callable[[], Found | Literal[False] | None],
    seconds: float = PATIENCE,
    circumstances: Callable[[], str] = lambda: "",
) -> Found:
    """Until `holds` returns something true, which is returned. A failure has `circumstances` in its message."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds} s; {circumstances()}")
        time.sleep(0.05)
    return found
