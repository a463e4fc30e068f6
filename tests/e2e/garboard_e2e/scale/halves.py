"""Machines that are started in two halves, so that what one more costs can be compared."""

import collections
import dataclasses
import json
import urllib.request

from ..cluster import audit
from ..cluster.names import CONTROLLER, INSTALLED_IN, Object
from .played import Played, Times
from .requests import Requests
from .usage import Each, Usage, slowest

# A start that takes longer than this, in seconds, is reported step by step (controller/src/vmi/decide.rs).
QUICK = 5
VERBS = {"writes": audit.WRITES, "reads": audit.READS}
COMPONENTS = ("controller", "node")


@dataclasses.dataclass(frozen=True)
class Leader:
    """The controller that leads: its pod, and its process as the host counts."""

    pod: Object
    process: int

    @classmethod
    def found(cls, played: Played) -> "Leader | None":
        lease = ["get", "lease", "garboard-controller", "-o", "jsonpath={.spec.holderIdentity}"]
        holder = played.kube.tried(*lease, namespace=INSTALLED_IN)
        pods = played.kube.controllers()
        pod = next((each for each in pods if each["metadata"]["name"] == holder), None)
        return cls.of(played, pod) if pod else None

    @classmethod
    def of(cls, played: Played, pod: Object) -> "Leader | None":
        processes = played.kube.processes_of(pod["metadata"]["uid"], CONTROLLER)
        return cls(pod, processes[0]) if processes else None

    @classmethod
    def awaited(cls, played: Played) -> "Leader":
        return played.kube.ask_until("a leader", lambda: cls.found(played))

    def reconciles(self) -> collections.Counter[float]:
        """How many reconciliations took how long at most, in microseconds, since it began."""
        address = f"http://{self.pod['status']['podIP']}:8081/debug/reconciles"
        counted: collections.Counter[float] = collections.Counter()
        with urllib.request.urlopen(address, timeout=10) as answer:
            for pairs in json.load(answer).values():
                for end, number in pairs:
                    counted[end] += number
        return counted


def slowest_ms(before: collections.Counter[float], after: collections.Counter[float]) -> str:
    """Within what 99 of 100 reconciliations between two looks were over."""
    return f"{slowest(after - before) / 1000:.1f} ms"


@dataclasses.dataclass(frozen=True)
class Half:
    """What one half has cost."""

    number: int
    times: Times
    requests: Requests
    reconciles: collections.Counter[float]
    each: Each
    # Memory of the controller in the end, KiB.
    whole: float

    @classmethod
    def started(cls, played: Played, prefix: str) -> "Half":
        number, leader = played.options.instances // 2, Leader.awaited(played)
        before, begin, seen = Usage.of(leader.process), played.mark(), leader.reconciles()
        times = played.start_many(prefix, number)
        requests = played.settled(begin, audit.component)
        after = Usage.of(leader.process)
        return cls(number, times, requests, leader.reconciles() - seen, after.since(before, number), after.memory)

    @property
    def quick(self) -> list[str]:
        """Those that ran in less time than is reported step by step."""
        return [name for name, took in self.times.took.items() if took < QUICK - 1]

    def average(self, what: str) -> float:
        """Writes or reads for each, of controller and agent together."""
        return self.requests.sum(VERBS[what], *COMPONENTS) / self.number

    def of_quick(self, what: str) -> list[int]:
        return [self.requests.of(name, VERBS[what], *COMPONENTS) for name in self.quick]

    def quick_average(self, what: str) -> float:
        return sum(self.of_quick(what)) / max(1, len(self.quick))

    def most(self, what: str) -> int:
        return max(self.of_quick(what), default=0)

    def summary(self) -> str:
        return (
            f"{self.number} in {self.times.running:.1f} s, {self.average('writes'):.2f} writes and "
            f"{self.average('reads'):.2f} reads each; {len(self.quick)} quick ones: "
            f"{self.quick_average('writes'):.2f} and {self.quick_average('reads'):.2f}, "
            f"at most {self.most('writes')} and {self.most('reads')}"
        )

    def rows(self, name: str) -> list[tuple[str, str]]:
        quick = f"{self.quick_average('writes'):.2f}, {self.quick_average('reads'):.2f}"
        number = self.reconciles.total() / self.number
        within = slowest_ms(collections.Counter(), self.reconciles)
        return [
            (f"{name} {self.number}: all created after, all Running after", str(self.times)),
            ("… each: half of them, and the last, Running after", self.times.half_and_last()),
            (
                "… writes and reads each, controller and agent together",
                f"{self.average('writes'):.2f}, {self.average('reads'):.2f}",
            ),
            ("… of those that ran within 4 s", f"{len(self.quick)}: {quick}"),
            ("… controller: processor time, memory each", str(self.each)),
            ("… reconciliations each, and 99 of 100 of them within", f"{number:.1f}, {within}"),
            ("… requests a second, by what", self.requests.rates(self.times.running)),
            ("… controller in all, PSS", f"{self.whole / 1024:.1f} MiB"),
        ]
