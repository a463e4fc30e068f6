"""The files of the guests' images."""

import pathlib
from collections.abc import Callable

import pytest

from garboard_e2e import guests, plain_qemu

Unpack = Callable[[str], pathlib.Path]


@pytest.fixture(scope="session")
def unpack(guest: Callable[[str], pathlib.Path], tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Files of guests by their references, unpacked once."""
    made: dict[str, pathlib.Path] = {}

    def files(reference: str) -> pathlib.Path:
        if reference not in made:
            made[reference] = plain_qemu.unpacked(guest(reference), tmp_path_factory.mktemp("guest"))
        return made[reference]

    return files


@pytest.fixture(scope="session")
def hello_files(unpack: Unpack) -> pathlib.Path:
    return unpack(guests.HELLO)


@pytest.fixture(scope="session")
def hello_pc_files(unpack: Unpack) -> pathlib.Path:
    return unpack(guests.HELLO_PC)


@pytest.fixture(scope="session")
def debian_files(unpack: Unpack) -> pathlib.Path:
    return unpack(guests.DEBIAN)
