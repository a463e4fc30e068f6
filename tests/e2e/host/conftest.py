"""Machines of tests on a bare host."""

import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.care import looked_after
from garboard_e2e.machine import Machine


@pytest.fixture
def machine(
    request: pytest.FixtureRequest, programs: pathlib.Path, hello: pathlib.Path, directory: pathlib.Path
) -> Iterator[Machine]:
    """One machine of the hello guest's image, not started yet."""
    yield from looked_after(request, Machine(programs, hello, directory))
