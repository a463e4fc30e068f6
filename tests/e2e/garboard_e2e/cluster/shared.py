"""One test cluster for all tiers: a tier that begins takes the one that is up, if it is of the same build, and empties
it."""

import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Iterator

from ..outcome import Failure
from .build import Build
from .emptying import empty
from .kube import Kube
from .program import Cluster

# Lies with the cluster's certificates, and goes with the cluster.
KEY_FILE = "made-of.json"


@dataclasses.dataclass(frozen=True)
class Shape:
    """How many nodes there are, and how many more KWOK plays."""

    nodes: int = 2
    kwok: int = 0


class Shared:
    """The cluster of this name."""

    def __init__(self, build: Build, name: str, show: Callable[[str], object]) -> None:
        """`show` prints a line about what takes its time."""
        self.build, self.name, self.show = build, name, show

    def empty(self, shape: Shape = Shape()) -> Kube:
        """A cluster of this build and shape, its images loaded, without Garboard. The one that is up, where that can be
        emptied; otherwise another one."""
        kube = Kube(self.build.program, self.name, self.build.images)
        key = self.build.key | dataclasses.asdict(shape)
        if self.fits(kube, key):
            began = time.monotonic()
            try:
                empty(kube, shape.nodes + shape.kwok)
                self.show(f"the cluster was emptied in {time.monotonic() - began:.0f} s")
                return kube
            except Failure as failure:
                self.show(f"the cluster cannot be emptied, another one is made: {failure}")
        self.make(kube, key, shape)
        return kube

    @contextlib.contextmanager
    def installed(self) -> Iterator[Kube]:
        """Garboard as it is installed by default. At the end the model judges everything that was seen."""
        kube = self.empty()
        try:
            kube.install()
            yield kube
            kube.judge()
        finally:
            kube.recorder.stop()

    def fits(self, cluster: Cluster, key: dict[str, str | int]) -> bool:
        """Whether there is one that was made of the same things, and is whole."""
        with contextlib.suppress(OSError, json.JSONDecodeError):
            made_of = json.loads((cluster.state / KEY_FILE).read_text())
            return made_of == key and (cluster.status() or {}).get("healthy") is True
        return False

    def make(self, cluster: Cluster, key: dict[str, str | int], shape: Shape) -> None:
        """Everything anew."""
        began = time.monotonic()
        cluster.cluster("down", check=False)
        cluster.cluster("up", "--nodes", shape.nodes, "--kwok", shape.kwok)
        for layout in [*self.build.images.archives, self.build.hello]:
            cluster.load(layout)
        (cluster.state / KEY_FILE).write_text(json.dumps(key))
        self.show(f"a cluster was made in {time.monotonic() - began:.0f} s")

    def down(self) -> None:
        """Nothing is left of it."""
        take_down(self.build.program, self.name)


def take_down(program: pathlib.Path, name: str) -> None:
    """For a tier that makes clusters itself: they use the same addresses."""
    Cluster(program, name).cluster("down", check=False)
