"""A test cluster whose machines are played: one real node, and those of KWOK."""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import time

from ..cluster import audit
from ..cluster.kube import Kube
from ..cluster.names import Object
from ..outcome import Failure
from ..patience import PATIENCE
from .requests import Asker, Requests

# As long without a request is the end of a storm of them, in seconds.
SILENCE = 4
# Nothing takes longer than this, in seconds.
SECONDS = 3 * PATIENCE


@dataclasses.dataclass(frozen=True)
class Options:
    """How machines are started."""

    instances: int
    nodes: int
    # How many may be on their way at once, and how many are created at the same time.
    in_flight: int
    writers: int


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds until all were created, and until all ran; and from the one to the other of each."""

    created: float
    running: float
    took: dict[str, float]

    def __str__(self) -> str:
        return f"{self.created:.1f} s, {self.running:.1f} s"

    def half_and_last(self) -> str:
        took = sorted(self.took.values())
        return f"{took[len(took) // 2]:.1f} s, {took[-1]:.1f} s"


class Played:
    """The cluster, and the program that plays what is not there (tests/scale)."""

    def __init__(self, kube: Kube, player: pathlib.Path, options: Options) -> None:
        self.kube, self.player, self.options = kube, str(player), options
        self.players: list[subprocess.Popen[str]] = []

    def end(self) -> None:
        for player in self.players:
            player.terminate()
            player.wait()

    def equip(self) -> None:
        """What the kubelets and the node agents of the played nodes would report of them."""
        command = [self.player, "nodes", str(self.options.nodes)]
        subprocess.run(command, env=self.kube.environment, check=True)

    def play(self, *arguments: str) -> None:
        """Plays a part until the end."""
        command = [self.player, *arguments]
        player = subprocess.Popen(command, env=self.kube.environment, stdout=subprocess.PIPE, text=True)
        self.players.append(player)
        if player.stdout is None or player.stdout.readline().strip() != "ready":
            raise Failure(f"`{' '.join(arguments)}` cannot be played; it ended with {player.wait()}")

    def start(self, prefix: str, number: int, *options: str) -> subprocess.CompletedProcess[str]:
        """So many machines, and waits for them."""
        command = [self.player, "start", "--prefix", prefix, "--number", str(number), *options]
        return subprocess.run(command, env=self.kube.environment, capture_output=True, text=True)

    def start_many(self, prefix: str, number: int) -> Times:
        load = [f"--in-flight={self.options.in_flight}", f"--writers={self.options.writers}"]
        done = self.start(prefix, number, f"--patience={SECONDS}", *load)
        if done.returncode:
            raise Failure(f"{number} machines were not started: {done.stderr[-600:]}")
        return Times(**json.loads(done.stdout))

    # ---- the API server

    def mark(self) -> int:
        """Now, in the audit log."""
        return self.kube.audit_log.stat().st_size

    def requests(self, begin: int, asker: Asker) -> Requests:
        return Requests(audit.events(self.kube.audit_log, begin), asker)

    def settled(self, begin: int, asker: Asker) -> Requests:
        """All requests since `begin`, when there was none for a while."""
        seen, since, end = None, time.monotonic(), time.monotonic() + SECONDS
        while time.monotonic() < end:
            requests = self.requests(begin, asker)
            if requests.counted != seen:
                seen, since = requests.counted, time.monotonic()
            elif time.monotonic() > since + SILENCE:
                return requests
            time.sleep(1)
        raise Failure(f"there is still something asked after {SECONDS} s: {seen}")

    def everything(self, kind: str) -> list[Object]:
        return self.kube.items(kind)


def condition(item: Object, kind: str) -> str | None:
    """The status of one of its conditions."""
    with contextlib.suppress(KeyError):
        return next((str(each["status"]) for each in item["status"]["conditions"] if each["type"] == kind), None)
    return None


def markdown(columns: list[str], rows: list[tuple[str, str]]) -> str:
    """A table for docs/benchmarks.md."""
    lines = ["| " + " | ".join(columns) + " |", "| --- | ---: |"]
    return "\n".join([*lines, *(f"| {what} | {found} |" for what, found in rows)]) + "\n"
