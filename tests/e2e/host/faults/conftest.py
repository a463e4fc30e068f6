"""How often processes are killed."""

import pytest


@pytest.fixture
def supervisor_kills(pytestconfig: pytest.Config) -> int:
    times: int = pytestconfig.getoption("--supervisor-kills")
    return times


@pytest.fixture
def qemu_kills(pytestconfig: pytest.Config) -> int:
    times: int = pytestconfig.getoption("--qemu-kills")
    return times


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    number: int = pytestconfig.getoption("--seed")
    return number
