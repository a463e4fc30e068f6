"""A look at what machines leave behind, for the fixtures that have some."""

import os
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import TypeVar

import pytest

from .command import Garboard
from .outcome import Failure

Command = TypeVar("Command", bound=Garboard)


def looked_after(request: pytest.FixtureRequest, command: Command) -> Iterator[Command]:
    """Gives the command to the tests of a fixture's scope. When they have passed, nothing may be left; when one has
    failed, its machines are ended by force. The files of one that failed go to
    the directory that GARBOARD_KEEP names."""
    failed_before = request.session.testsfailed
    yield command
    has_failed = request.session.testsfailed > failed_before
    try:
        if not has_failed:
            command.expect_clean()
    except Failure:
        has_failed = True
        raise
    finally:
        if has_failed:
            keep(command.directory, request.node.name)
            command.stop_everything()


def keep(directory: pathlib.Path, name: str) -> None:
    if place := os.environ.get("GARBOARD_KEEP"):
        subprocess.run(["cp", "-a", directory, f"{place}/{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}"], check=False)
