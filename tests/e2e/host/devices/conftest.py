"""A namespace of machines for each file of tests."""

import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.care import looked_after
from garboard_e2e.guests import HELLO
from garboard_e2e.namespace import Namespace
from garboard_e2e.places import temporary_directory


@pytest.fixture(scope="module")
def namespace(request: pytest.FixtureRequest, programs: pathlib.Path) -> Iterator[Namespace]:
    with temporary_directory() as directory:
        yield from looked_after(request, Namespace(programs, directory, request.module.NAMESPACE))


@pytest.fixture(scope="session")
def hello_image(hello: pathlib.Path) -> str:
    """The option that takes the hello guest for an image."""
    return f"--image={HELLO}={hello}"
