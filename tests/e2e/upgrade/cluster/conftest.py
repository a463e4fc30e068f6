"""An installation of the version before, with machines."""

import pathlib
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.build import Build
from garboard_e2e.cluster.names import CLUSTER
from garboard_e2e.cluster.shared import Shared
from garboard_e2e.upgrade import Upgrade
from garboard_e2e.versions import Version


@pytest.fixture(scope="package")
def upgrade(
    pytestconfig: pytest.Config,
    programs: pathlib.Path,
    hello: pathlib.Path,
    versions: dict[str, Version],
    show: Callable[[str], None],
) -> Iterator[Upgrade]:
    """Machines that run on a cluster with the version before. At the end the model judges everything that was seen."""
    before, new = versions["before"], versions["today"]
    assert before.images.launcher != new.images.launcher, "images of both versions have the same name"
    shared = Shared(Build(programs / "cluster", new.images, hello), CLUSTER, show)
    kube = shared.empty()
    try:
        for archive in before.images.archives:
            kube.load(archive)
        upgrade = Upgrade(kube, before, new)
        upgrade.install(pytestconfig.getoption("--machines"))
        yield upgrade
        kube.remove(*upgrade.names)
        show(kube.judge())
    finally:
        kube.recorder.stop()
        shared.down()
