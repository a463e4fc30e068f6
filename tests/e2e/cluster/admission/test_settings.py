"""What the API server answers to settings of a cluster, which only a running cluster can be asked."""

import pytest

from garboard_e2e.cluster.admission import SHORT_LIVES, dry_run, settings, with_gates
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, Object


@pytest.fixture(scope="module", autouse=True)
def own(kube: Kube) -> None:
    """There are settings already: those with which certificates are renewed for tests after these."""
    kube.apply(with_gates([], SHORT_LIVES), namespace=INSTALLED_IN)


def developer(*gates: str) -> Object:
    return {"configuration": {"developerConfiguration": {"featureGates": list(gates)}}}


def path_of(name: str) -> str:
    """The rows below are called by what is wrong, and their path follows."""
    return name.partition(": ")[2]


SHORT_LIFE = {"ca": {"duration": "1h", "renewBefore": "2h"}}
REFUSED: dict[str, Object] = {
    "an unknown setting: spec.configuration.cpuModle": {"configuration": {"cpuModle": "Haswell"}},
    "a setting that keeps workloads in their places: spec.workloads": {
        "workloads": {"nodePlacement": {"nodeSelector": {"zone": "a"}}}
    },
    "a life that ends before it begins: selfSigned.ca.renewBefore": {
        "certificateRotateStrategy": {"selfSigned": SHORT_LIFE}
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_is_refused_by_its_path(kube: Kube, name: str) -> None:
    done = dry_run(kube, settings(REFUSED[name]))
    assert done.returncode != 0, "it is taken"
    assert path_of(name) in done.stderr, done.stderr


WARNED: dict[str, Object] = {
    "a setting that tunes what is not here: spec.imageTag": {"imageTag": "v1"},
    "an unknown gate: featureGates[0]": developer("HostDsk"),
    "a gate with nothing behind it: featureGates[0]": developer("LiveMigration"),
}


@pytest.mark.parametrize("name", WARNED)
def test_a_setting_is_taken_with_a_warning(kube: Kube, name: str) -> None:
    done = dry_run(kube, settings(WARNED[name]))
    assert done.returncode == 0, done.stderr
    assert path_of(name) in done.stderr, done.stderr


def test_second_settings_are_refused_with_the_name_of_the_first(kube: Kube) -> None:
    done = dry_run(kube, settings({}, name="second"))
    assert done.returncode != 0, "it is taken"
    assert "garboard/kubevirt" in done.stderr, done.stderr


def test_settings_in_another_namespace_are_refused(kube: Kube) -> None:
    done = dry_run(kube, settings({}, namespace="default"))
    assert done.returncode != 0, "it is taken"
    assert "metadata.namespace" in done.stderr, done.stderr
