"""Three machines that stay while things break, and how often that is."""

from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.objects import claim
from garboard_e2e.cluster.shared import Shared
from garboard_e2e.cluster.storm import DISK, NODES, Storm


@pytest.fixture(scope="package")
def kube(shared: Shared) -> Iterator[Kube]:
    with shared.installed() as kube:
        yield kube


@pytest.fixture(scope="package")
def begun(kube: Kube, pytestconfig: pytest.Config, show: Callable[[str], None]) -> Iterator[Storm]:
    """In the end all three run, and the model accepts the history with them in it."""
    storm = Storm(kube, pytestconfig.getoption("--times"), pytestconfig.getoption("--seed"))
    with volumes.directory() as directory:
        kube.apply(*claim(DISK, str(directory)))
        storm.start()
        yield storm
        names = [*NODES, DISK]
        try:
            for name in names:
                kube.runs(name)
            show(kube.judge())
        finally:
            kube.remove(*names)
            volumes.remove_claim(kube, DISK)


@pytest.fixture
def storm(begun: Storm) -> Storm:
    """All three machines run."""
    begun.start()
    return begun


@pytest.fixture(autouse=True)
def machines_go(kube: Kube, storm: Storm) -> Iterator[None]:
    """Whatever a test has made beside them is removed after it, and has to go."""
    yield
    kube.keep_only({*NODES, DISK})
