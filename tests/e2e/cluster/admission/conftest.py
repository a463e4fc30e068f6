"""A cluster with Garboard, without machines: what its API server answers to manifests."""

from collections.abc import Iterator

import pytest

from garboard_e2e.cluster import admission
from garboard_e2e.cluster.api import Api
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN
from garboard_e2e.cluster.renewals import Watch, watched
from garboard_e2e.cluster.shared import Shared


@pytest.fixture(scope="package")
def kube(shared: Shared) -> Kube:
    """Nothing happens that the model could judge."""
    kube = shared.empty()
    kube.roll_out(kube.images.manifest.read_text())
    return kube


@pytest.fixture(scope="package")
def api(kube: Kube) -> Api:
    """Its API server without kubectl, of which each call costs a second."""
    return Api.of(kube)


@pytest.fixture(scope="package")
def renewals(kube: Kube, api: Api) -> Iterator[Watch]:
    """From here on certificates are short-lived, and looked at: renewals take minutes, in which other tests ask."""
    kube.apply(admission.with_gates([], admission.SHORT_LIVES), namespace=INSTALLED_IN)
    with watched(api, admission.sound(kube)) as watch:
        yield watch
