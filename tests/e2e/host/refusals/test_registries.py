"""Registries that lie, refuse or break down."""

import subprocess
from collections.abc import Iterator

import pytest

from garboard_e2e import bad_images
from garboard_e2e.lying_registry import Registry, digest
from garboard_e2e.refusals import Bad, Bench, Object, files_kept, instance

LAYER = bad_images.layer(bad_images.entry("disk/a.img", bad_images.SECTOR))
LIES = {
    "wrong-layer": (digest(LAYER)[:20], "nothing of it is kept"),
    "longer-layer": ("more than the", "nothing of it is kept"),
    "huge-layer": ("bytes",),
    "wrong-manifest": ("sha256:", "nothing of it is kept"),
    "wrong-type": ("old or unknown kind", "push it again"),
    "garbage": ("cannot be read", "push or build"),
    "not-http": ("does not answer|understood",),
    "broken": ("500",),
    "missing": ("check its name",),
    "secret": ("docker login",),
    "busy": ("try later",),
}
# The command tries again for a while.
TRIED_AGAIN = {
    "broken-layer": ("broke|ended|500", "again"),
    "cut-layer": ("broke|ended|cut", "again"),
    "stalls": ("does not answer", "check"),
}
Pulls = dict[str, subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def registry(bench: Bench) -> Iterator[Registry]:
    with Registry(LAYER) as lying:
        yield lying


@pytest.fixture(scope="module", autouse=True)
def pulls(request: pytest.FixtureRequest, bench: Bench, registry: Registry) -> Pulls:
    """Begun before all else, because they take long; those that are to be judged."""
    judged = [lie for lie in TRIED_AGAIN if any(f"[{lie}]" in item.name for item in request.session.items)]
    return {lie: bench.start("image", "pull", f"{registry.host}/{lie}:1") for lie in judged}


def of_image(reference: str) -> Object:
    return instance(spec__volumes__0__containerDisk__image=reference)


@pytest.mark.parametrize("lie", LIES)
def test_a_registry(bench: Bench, registry: Registry, lie: str) -> None:
    pinned = lie == "wrong-manifest"
    reference = f"{registry.host}/{lie}" + (f"@sha256:{'1' * 64}" if pinned else ":1")
    bench.refuses(Bad((registry.host, *LIES[lie]), of_image(reference)))


def test_a_registry_that_is_not_there(bench: Bench) -> None:
    bench.refuses(Bad(("127.0.0.1:1", "does not answer", "check"), of_image("127.0.0.1:1/absent:1")))


def test_an_image_that_may_not_be_pulled(bench: Bench, registry: Registry) -> None:
    disk = {"image": f"{registry.host}/never:1", "imagePullPolicy": "Never"}
    bench.refuses(Bad(("Never", "IfNotPresent"), instance(spec__volumes__0__containerDisk=disk)))


@pytest.mark.parametrize("lie", TRIED_AGAIN)
def test_a_registry_that_is_asked_again(bench: Bench, pulls: Pulls, lie: str) -> None:
    bench.judge(pulls[lie], TRIED_AGAIN[lie], code=2)


def test_nothing_of_a_lie_is_kept(bench: Bench) -> None:
    assert not files_kept(bench)
