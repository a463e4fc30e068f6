"""A bench for each table of bad input, in namespaces of its own."""

import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.care import looked_after
from garboard_e2e.guests import HELLO
from garboard_e2e.own_namespaces import own_network_and_mounts
from garboard_e2e.places import temporary_directory
from garboard_e2e.refusals import Bench


@pytest.fixture(scope="module")
def namespaces() -> Iterator[None]:
    with own_network_and_mounts():
        yield


@pytest.fixture(scope="module")
def bench(
    request: pytest.FixtureRequest, namespaces: None, programs: pathlib.Path, hello: pathlib.Path
) -> Iterator[Bench]:
    with temporary_directory("gbr-") as directory:
        yield from looked_after(request, Bench(programs, f"{HELLO}={hello}", directory))
