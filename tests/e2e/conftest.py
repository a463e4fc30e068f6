"""What all tests here have: the programs, the guests, and a look at what each test leaves behind."""

import os
import pathlib
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e import guests, names
from garboard_e2e.places import CACHE, temporary_directory

pytest_plugins = ["garboard_e2e.plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    target = os.environ.get("CARGO_TARGET_DIR", f"{CACHE}/target")
    group = parser.getgroup("garboard")
    group.addoption("--programs", type=pathlib.Path, default=f"{target}/debug", help="where the built programs are")
    group.addoption("--supervisor-kills", type=int, default=100, help="how often a supervisor is killed under load")
    group.addoption("--qemu-kills", type=int, default=100, help="how often QEMU is killed")
    group.addoption("--seed", type=int, default=1, help="which moments those are, and where faults of a storm strike")
    group.addoption("--times", type=int, default=1, help="how often each fault of a storm comes, and an upgrade")
    group.addoption("--machines", type=int, default=3, help="how many machines are upgraded on a cluster")
    group.addoption("--from-commit", help="the version they are upgraded from, if not the commit before this checkout")
    group.addoption("--instances", type=int, default=200, help="how many machines are played in all")
    group.addoption("--played-nodes", type=int, help="on how many nodes, if not on as many as take them")
    group.addoption("--in-flight", type=int, default=16, help="how many of them may be on their way at once; 0: all")
    group.addoption("--writers", type=int, default=8, help="how many of them are created at the same time")
    group.addoption("--release", action="store_true", help="measure a controller that is built as users have it")
    group.addoption("--reference", action="store_true", help="measure KubeVirt's virt-controller too")
    group.addoption("--keep-cluster", action="store_true", help="leave the test cluster up for the next session")


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> pathlib.Path:
    """The directory of the programs."""
    directory: pathlib.Path = pytestconfig.getoption("--programs")
    assert (directory / names.COMMAND).is_file(), (
        f"there is no {names.COMMAND} in {directory}: `scripts/test TIER` builds it; --programs names another place"
    )
    return directory


@pytest.fixture(scope="session")
def guest(pytestconfig: pytest.Config) -> Callable[[str], pathlib.Path]:
    """Layouts of guests by their references; one that is not in the cache is made, in the open."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def layout(reference: str) -> pathlib.Path:
        with capture.global_and_fixture_disabled():
            return guests.layout(reference)

    return layout


@pytest.fixture(scope="session")
def hello(guest: Callable[[str], pathlib.Path]) -> pathlib.Path:
    """The layout of the hello guest."""
    return guest(guests.HELLO)


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Reports what a test found, beside its name."""
    return lambda text: record_property("note", text)


@pytest.fixture
def directory() -> Iterator[pathlib.Path]:
    """A directory of the test's own."""
    with temporary_directory() as made:
        yield made
