"""A cluster with Garboard, without machines: what its API server answers to manifests."""

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.shared import Shared


@pytest.fixture(scope="package")
def kube(shared: Shared) -> Kube:
    """Nothing happens that the model could judge."""
    kube = shared.empty()
    kube.roll_out(kube.images.manifest.read_text())
    return kube
