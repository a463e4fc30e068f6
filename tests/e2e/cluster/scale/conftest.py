"""Many machines at once, on nodes that are played (tests/scale): one real node runs the controller from its image and
deploy/garboard.yaml. They are started in two halves. What was measured is printed last, for docs/benchmarks.md."""

import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.build import printed_by
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE
from garboard_e2e.cluster.objects import SETTINGS
from garboard_e2e.cluster.shared import Shape, Shared
from garboard_e2e.places import REPOSITORY, SCRIPTS
from garboard_e2e.scale.halves import Half, Leader
from garboard_e2e.scale.played import Options, Played, markdown


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """KubeVirt is measured on request."""
    is_left_out = collection_path.name == "test_reference.py" and not config.getoption("--reference")
    return True if is_left_out else None


@pytest.fixture(scope="session")
def options(pytestconfig: pytest.Config) -> Options:
    instances = pytestconfig.getoption("--instances")
    # Of the 250 pods that a played node takes.
    nodes = pytestconfig.getoption("--played-nodes") or instances // 200 + 2
    return Options(instances, nodes, pytestconfig.getoption("--in-flight"), pytestconfig.getoption("--writers"))


@pytest.fixture(scope="session")
def empty(pytestconfig: pytest.Config, shared: Shared, options: Options) -> Callable[[], Played]:
    """Makes a cluster of played nodes, without anything on it."""
    player: pathlib.Path = pytestconfig.getoption("--programs") / "garboard-scale"
    assert player.is_file(), f"there is no {player}: `cargo build -p garboard-test-scale` builds it"

    def made() -> Played:
        subprocess.run([SCRIPTS / "fetch-cluster", "--kwok"], check=True, capture_output=True)
        return Played(shared.empty(Shape(nodes=1, kwok=options.nodes)), player, options)

    return made


@pytest.fixture(scope="module")
def installed(pytestconfig: pytest.Config, shared: Shared, empty: Callable[[], Played]) -> Iterator[Played]:
    """Garboard on it, with a leader; no node agent is played yet."""
    played = empty()
    kube = played.kube
    try:
        if pytestconfig.getoption("--release"):
            kube.load(printed_by(REPOSITORY / "deploy/images/build", "--only", "controller") / "controller.tar")
        kube.kubectl("apply", "-f", "-", text=kube.images.manifest.read_text(), namespace=None)
        rolled_out = ["rollout", "status", "deployment/garboard-controller", "--timeout=120s"]
        kube.kubectl(*rolled_out, namespace=INSTALLED_IN)
        kube.apply(SETTINGS, namespace=INSTALLED_IN)
        kube.kubectl("create", "namespace", NAMESPACE, namespace=None)
        restricted = "pod-security.kubernetes.io/enforce=restricted"
        kube.kubectl("label", "namespace", NAMESPACE, restricted, namespace=None)
        played.equip()
        Leader.awaited(played)
        yield played
    finally:
        played.end()
        # Its machines would not end without those who play, and no other tier has such nodes.
        shared.down()


@pytest.fixture(scope="module")
def played(installed: Played) -> Played:
    """With node agents."""
    installed.play("agents", str(installed.options.nodes))
    return installed


@pytest.fixture(scope="module")
def figures(
    pytestconfig: pytest.Config, options: Options, show: Callable[[str], None]
) -> Iterator[list[tuple[str, str]]]:
    """What was measured."""
    rows: list[tuple[str, str]] = []
    yield rows
    built = "release" if pytestconfig.getoption("--release") else "not optimised"
    show(markdown([f"{options.instances} instances, {built}", "garboard"], rows))


@pytest.fixture(scope="module")
def first(played: Played, figures: list[tuple[str, str]]) -> Half:
    """The first half of the machines, all of them started."""
    half = Half.started(played, "first")
    figures += half.rows("first")
    return half


@pytest.fixture(scope="module")
def second(played: Played, first: Half, figures: list[tuple[str, str]]) -> Half:
    """The second half."""
    half = Half.started(played, "second")
    figures += half.rows("second")
    return half
