"""The one test cluster that all tiers here use, one after the other."""

import pathlib
from collections.abc import Callable, Generator, Iterator

import pytest

from garboard_e2e import tcg
from garboard_e2e.cluster.build import Build
from garboard_e2e.cluster.names import CLUSTER
from garboard_e2e.cluster.shared import Shared, take_down
from garboard_e2e.cluster.watched import Watched


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its cluster shows, before anything is removed, and whether QEMU crashed by a known
    defect meanwhile."""
    report = yield
    kube = getattr(item, "funcargs", {}).get("kube")
    if report.failed and report.when == "call" and isinstance(kube, Watched):
        report.sections.append(("the cluster", kube.circumstances()))
        if call.excinfo and (defect := tcg.crashed(kube.warnings_since(call.start))):
            # Whether it is run again is decided by the text of the exception.
            call.excinfo.value.args = (f"{call.excinfo.value}; {defect}",)
    return report


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
def cluster_program(pytestconfig: pytest.Config) -> pathlib.Path:
    """The program of tests/cluster."""
    program: pathlib.Path = pytestconfig.getoption("--programs") / "cluster"
    assert program.is_file(), f"there is no {program}: `cargo build -p garboard-test-cluster` builds it"
    return program


@pytest.fixture(scope="session")
def build(pytestconfig: pytest.Config, cluster_program: pathlib.Path) -> Build:
    """What clusters are made of; what is not in the cache is built, in the open."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        return Build.made(cluster_program)


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config, build: Build, show: Callable[[str], None]) -> Iterator[Shared]:
    """The cluster of this session, and of those after it that have --keep-cluster too."""
    yield Shared(build, CLUSTER, show)
    if not pytestconfig.getoption("--keep-cluster"):
        take_down(build.program, CLUSTER)
