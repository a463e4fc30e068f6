"""The two versions, and how often machines are taken from one to the other."""

import pathlib
from collections.abc import Callable

import pytest

from garboard_e2e.versions import Version, earlier, today


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Of a campaign each time is a test."""
    if "time" in metafunc.fixturenames:
        times: int = metafunc.config.getoption("--times")
        metafunc.parametrize("time", range(1, times + 1), scope="module")


@pytest.fixture(scope="session")
def times(pytestconfig: pytest.Config) -> int:
    number: int = pytestconfig.getoption("--times")
    return number


@pytest.fixture(scope="session")
def show(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Shows a line while tests run."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")

    def write(text: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(text)

    return write


@pytest.fixture(scope="session")
def versions(pytestconfig: pytest.Config, programs: pathlib.Path, show: Callable[[str], None]) -> dict[str, Version]:
    """The one `before` and the one of `today`; what is not in the cache is built, in the open."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        before = earlier(pytestconfig.getoption("--from-commit"))
    new = today(programs)
    assert before.name != new.name, (
        f"both builds report that they are {new.name}; build this checkout with GARBOARD_VERSION=$(scripts/version)"
    )
    show(f"from {before.name} to {new.name}")
    return {"before": before, "today": new}
