"""Every file of examples/, applied to a cluster."""

import contextlib
import pathlib
from collections.abc import Callable

import pytest

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.examples import CLAIMS, IMAGES, MACHINES, NOT_HERE, PRINTS, with_accelerator
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.places import EXAMPLES


@pytest.fixture(params=sorted(EXAMPLES.glob("*.yaml")), ids=lambda example: example.stem)
def example(
    request: pytest.FixtureRequest, kube: Kube, held: contextlib.ExitStack, guest: Callable[[str], pathlib.Path]
) -> pathlib.Path:
    """A file, with the image and the volume that it needs."""
    path: pathlib.Path = request.param
    if path.stem in NOT_HERE:
        pytest.skip(NOT_HERE[path.stem])
    assert path.stem in PRINTS, "name in PRINTS what its guest prints"
    if path.stem in IMAGES:
        kube.load(guest(IMAGES[path.stem]))
    if path.stem in CLAIMS:
        held.enter_context(volumes.volume(kube, CLAIMS[path.stem]))
    return path


def test_an_example_runs(kube: Kube, example: pathlib.Path) -> None:
    """Applied, Running, Ready, seen in the guest's output, and gone when the file is deleted."""
    kind, _, of_file = example.stem.partition("-")
    names = MACHINES.get(example.stem, [of_file])
    kube.apply(*with_accelerator(kube, example))
    try:
        for name in names:
            runs(kube, "vmi" if kind == "vmi" else "vm", name, PRINTS[example.stem])
    finally:
        kube.will_go(*names)
        kube.kubectl("delete", "-f", example, "--wait=false")
        for name in names:
            kube.is_gone(name)


def runs(kube: Kube, kind: str, name: str, pattern: str) -> None:
    kube.wait("phase Running", lambda: kube.phase(name) == "Running")
    if kind == "vm":
        kube.shows(name, "Running")
    kube.prints(name, pattern)
    kube.kubectl("wait", "--for=condition=Ready", f"{kind}/{name}", "--timeout=180s")
