"""A cluster of this tier's own, which is broken, repaired and taken down; what was on this host before it."""

import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster import host, probes
from garboard_e2e.cluster.names import CLUSTER
from garboard_e2e.cluster.probes import Probed
from garboard_e2e.cluster.shared import take_down
from garboard_e2e.places import temporary_directory

NAME = "check"


@pytest.fixture(scope="package")
def images() -> Iterator[dict[str, pathlib.Path]]:
    """The archives by their references."""
    with temporary_directory() as directory:
        yield probes.make_images(directory)


@pytest.fixture(scope="package")
def before(cluster_program: pathlib.Path) -> list[str]:
    """What is on this host when there is no cluster. What is left of a dead cluster of another name goes with the next
    `up`, so one is made before the look."""
    # The one that other tiers share has the same addresses.
    take_down(cluster_program, CLUSTER)
    own = Probed(cluster_program, NAME)
    own.cluster("down", check=False)
    own.cluster("up", "--nodes", 1)
    own.cluster("down")
    return host.state(cluster_program)


@pytest.fixture(scope="package")
def cluster(cluster_program: pathlib.Path, before: list[str]) -> Iterator[Probed]:
    """Not up yet, or in whatever state the tests before have left it."""
    cluster = Probed(cluster_program, NAME)
    try:
        yield cluster
    finally:
        cluster.cluster("down", check=False)


@pytest.fixture(scope="package")
def up(cluster: Probed) -> str:
    """What `up` printed when two nodes came up."""
    return cluster.cluster("up")


@pytest.fixture(scope="package")
def loaded(cluster: Probed, up: str, images: dict[str, pathlib.Path]) -> None:
    """Every node has the images."""
    for archive in images.values():
        cluster.cluster("load", archive)


@pytest.fixture(scope="package")
def probed(cluster: Probed, loaded: None) -> Probed:
    """The cluster with a probe on each of its two nodes."""
    cluster.put(probes.probe("node-1"), probes.probe("node-2"))
    cluster.ready("pod", "-l", "app=probe")
    return cluster
