"""Every file of examples/, applied to a cluster."""

import contextlib
import pathlib
from collections.abc import Callable

import pytest

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.examples import CLAIMS, IMAGES, NOT_HERE, PRINTS, with_accelerator
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.outcome import Failure
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


# QEMU 10.0 under TCG, with more than one vCPU: one may read the memory map that another one has just replaced.
# docs/status.md has it for users.
CRASH_OF_QEMU = "iotlb_to_section: Assertion"


def test_an_example_runs(kube: Kube, example: pathlib.Path, show: Callable[[str], None]) -> None:
    """Applied, Running, Ready, seen in the guest's output, and gone when the file is deleted."""
    try:
        runs_and_goes(kube, example)
    except Failure as failure:
        of_it = f"--field-selector=involvedObject.name={example.stem.partition('-')[2]}"
        if CRASH_OF_QEMU not in kube.tried("get", "events", of_it, "-o", "jsonpath={.items[*].message}"):
            raise
        show(f"{example.stem} is tried once more: QEMU crashed in its TCG ({failure})")
        runs_and_goes(kube, example)


def runs_and_goes(kube: Kube, example: pathlib.Path) -> None:
    """One machine of the file."""
    kind, _, name = example.stem.partition("-")
    kube.apply(*with_accelerator(kube, example))
    try:
        kube.wait("phase Running", lambda: kube.phase(name) == "Running")
        if kind == "vm":
            kube.shows(name, "Running")
        kube.kubectl("wait", "--for=condition=Ready", f"{kind}/{name}", "--timeout=180s")
        kube.prints(name, PRINTS[example.stem])
    finally:
        kube.will_go(name)
        kube.kubectl("delete", "-f", example, "--wait=false")
        kube.is_gone(name)
