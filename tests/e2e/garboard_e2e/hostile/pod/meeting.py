"""Files on the node, by which an attempt and its test go step by step."""

import os
import time


def leave(path: str, text: str = "") -> None:
    """A file that is there with all of its text, or not at all."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.05)


def sleep() -> None:
    """Until the pod is deleted."""
    time.sleep(100_000)
