"""One run of the functional tests on a cluster: portion after portion, each with its own beginning and end, so that
what was found is kept whatever comes later."""

import collections
import contextlib
import dataclasses
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime

from ..cluster.kube import Kube
from ..cluster.shared import Shared
from ..outcome import Failure
from ..places import REPOSITORY
from . import results
from .dns import NameServer
from .handler import stand_in
from .portions import portions
from .preparation import prepare
from .prometheus import Prometheus
from .results import Result, one_line
from .storage import Provisioner
from .suite import Spec, Suite
from .table import PAGE, WHOLE

# What the suite makes and removes itself, with the number of the process; a run that was interrupted leaves them.
NAMESPACES = re.compile(r"kubevirt-test-(default|alternative|operator|privileged)\d+")
# What Ginkgo writes of a specification that it has not begun, because one before it in an ordered container failed
# (internal/group.go).
NOT_BEGUN = re.compile(r"Spec skipped because (an earlier spec in an ordered container|a BeforeAll node) failed")


def commit() -> str:
    """That of this checkout, with a mark where files differ from it, but for those that a campaign writes."""
    git = ["git", "-C", str(REPOSITORY)]
    head = subprocess.run([*git, "rev-parse", "--short=9", "HEAD"], check=True, stdout=subprocess.PIPE, text=True)
    others = [".", *(f":!{file.relative_to(REPOSITORY)}" for file in (results.FILE, PAGE, WHOLE))]
    differs = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *others]).returncode != 0
    return head.stdout.strip() + ("+" if differs else "")


@contextlib.contextmanager
def prepared(shared: Shared, suite: Suite, without: Collection[str] = (), is_monitored: bool = False) -> Iterator[Kube]:
    """Garboard on a cluster, and what the tests expect around it; `without` are images that none of them wants. Only
    those of monitoring want a Prometheus, which costs memory and time."""
    kube = shared.empty()
    kube.install()
    # Only their objects matter here; what the recorder sees of nodes and processes is for other tests.
    kube.recorder.stop()
    prepare(kube, suite.program.parent, without)
    stand_in(kube)
    with Provisioner(kube), NameServer(kube), Prometheus(kube) if is_monitored else contextlib.nullcontext():
        yield kube


def clear(kube: Kube) -> None:
    """The suite does not begin where its namespaces are."""
    left = remaining(kube)
    command = ["delete", "namespace", *left, "--ignore-not-found"]
    if left and not kube.tried(*command, "--timeout=60s", namespace=None) and remaining(kube):
        # A test that was interrupted leaves machines with finalizers that nothing else removes.
        for kind, namespace, name in held(kube):
            kube.tried(
                "patch", kind, name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}', namespace=namespace
            )
        kube.kubectl(*command, "--timeout=120s", namespace=None)


def remaining(kube: Kube) -> list[str]:
    present = [each["metadata"]["name"] for each in kube.items("namespaces", namespace=None)]
    return [name for name in present if NAMESPACES.fullmatch(name)]


def held(kube: Kube) -> list[tuple[str, str, str]]:
    """Kind, namespace and name of each machine that is left."""
    found = []
    for kind in (
        "virtualmachinepools.pool.kubevirt.io",
        "virtualmachines.kubevirt.io",
        "virtualmachineinstancereplicasets.kubevirt.io",
        "virtualmachineinstances.kubevirt.io",
    ):
        for each in kube.items(kind, "-A", namespace=None):
            found.append((kind, each["metadata"]["namespace"], each["metadata"]["name"]))
    return found


@dataclasses.dataclass
class Outcome:
    """What came out, in the order in which it was run, and what was to be run and has no result."""

    found: list[Result] = dataclasses.field(default_factory=list)
    lost: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Campaign:
    """Specifications that are run."""

    suite: Suite
    portion: int
    # Seconds after which no portion is begun.
    limit: float
    collect: bool
    show: Callable[[str], None]

    def run(self, kube: Kube, texts: list[str]) -> Outcome:
        """Results are shown at once, and kept after each portion."""
        began, outcome = time.monotonic(), Outcome()
        parts = portions(texts, self.portion)
        for number, part in enumerate(parts, 1):
            if time.monotonic() - began > self.limit:
                self.show(f"the time is over: {sum(map(len, parts[number - 1 :]))} specifications were not run")
                break
            self.show(f"==== portion {number} of {len(parts)}: {len(part)} specifications")
            found = self.run_portion(kube, part)
            outcome.found += found
            outcome.lost += sorted(set(part) - {result.text for result in found})
        return outcome

    def run_portion(self, kube: Kube, texts: list[str]) -> list[Result]:
        """Of an ordered container Ginkgo begins nothing after a failure: that is run again, without what failed."""
        began, left = time.monotonic(), texts
        found: list[Result] = []
        while left:
            try:
                clear(kube)
                specs = self.suite.run(kube, left, self.collect)
            except Failure as failure:
                self.show(f"{len(left)} specifications have no result: {failure}")
                break
            begun = self.keep([spec for spec in specs if not NOT_BEGUN.match(spec.failure)])
            found += begun
            others = {one_line(spec.text) for spec in specs} - {result.text for result in begun}
            left = sorted(others) if begun else []
        self.show(f"{summary(found)} in {time.monotonic() - began:.0f} s")
        return found

    def keep(self, specs: list[Spec]) -> list[Result]:
        """Among the results of all, and shown."""
        today, mine = datetime.now(UTC).date().isoformat(), commit()
        found = [results.of(spec, mine, today) for spec in specs]
        results.save(results.merge(results.load(), found))
        for result in found:
            self.show(line(result))
        return found


def line(result: Result) -> str:
    failure = f"\n                   {result.failure}" if result.state != "passed" and result.failure else ""
    return f"{result.state:9} {result.seconds:4} s  {result.text}{failure}"


def summary(found: list[Result]) -> str:
    counted = collections.Counter(result.state for result in found)
    return ", ".join(f"{number} {state}" for state, number in sorted(counted.items())) or "nothing was run"
