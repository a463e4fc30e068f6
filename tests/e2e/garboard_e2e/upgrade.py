"""Machines on a cluster that is taken from one version to another and back."""

import contextlib
import dataclasses
import functools
import re
import statistics
import threading
import time
from collections.abc import Callable

from .cluster.kube import Kube
from .cluster.names import COMPUTE, INSTALLED_IN, NAMESPACE, SIDECAR, Object
from .cluster.objects import SETTINGS, machine
from .outcome import Failure
from .patience import PATIENCE
from .versions import Version

OUTDATED = "kubevirt.io/outdatedLauncherImage"
# One in so many guests writes to its disk all the time: all of them would leave two processors nothing else.
LOAD_EVERY = 4
# How long a supervisor has until it is taken for failed (controller/src/upgrade/names.rs).
UPDATE_SECONDS = 120
# For each machine: the exchange itself, and that it is watched, some at a time.
SECONDS_EACH = 30
# How often is looked for an agent, seconds: an exchange takes several.
PERIOD = 0.3


@dataclasses.dataclass
class Guest:
    """What may not change of a machine while everything around its QEMU does."""

    name: str
    instance: str | None
    compute: str
    qemu: int
    resets: int
    generation: int
    uptime: float

    @classmethod
    def of(cls, kube: Kube, name: str) -> "Guest":
        status = supervisor_status(kube, name)
        container = kube.container(name, COMPUTE)
        assert container["restartCount"] == 0, f"compute of {name} was started again"
        # Beside it the guest prints its load.
        shown = kube.shell(name, "cat /proc/uptime")
        uptime = re.search(r"^(\d+\.\d+) \d+\.\d+\s*$", shown, re.M)
        assert uptime, f"the uptime of {name} is {shown!r}"
        return cls(
            name=name,
            instance=kube.uid(name),
            compute=container["containerID"],
            qemu=kube.qemu(name),
            resets=status["resets"],
            generation=status["generation"],
            uptime=float(uptime[1]),
        )

    def goes_on(self, kube: Kube) -> "Guest":
        """The same guest, a moment later."""
        now = Guest.of(kube, self.name)
        for field in ("instance", "compute", "qemu", "resets"):
            before, after = getattr(self, field), getattr(now, field)
            assert after == before, f"{field} of {self.name} was {before} and is {after}"
        assert now.uptime > self.uptime, f"{self.name} is up for {now.uptime} s, and was for {self.uptime} s"
        assert now.generation >= self.generation, (
            f"generation {now.generation} of {self.name} follows {self.generation}"
        )
        return now


def supervisor_status(kube: Kube, name: str) -> Object:
    """The status of a machine, as soon as its supervisor reports it."""

    def answered() -> Object | None:
        answer = kube.answer(name, "status")
        return answer if answer.get("machine") else None

    return kube.ask_until(f"the supervisor of {name}", answered)


class Exchanges:
    """When each supervisor of a roll-out was replaced: from another image in the pod to the report of the new one."""

    def __init__(self, kube: Kube, names: list[str], image: str) -> None:
        self.kube, self.names, self.image = kube, names, image
        self.reported = {name: started_at(kube, name) for name in names}
        self.begun: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.since = time.monotonic()

    def look(self) -> None:
        now = time.monotonic()
        for name in self.names:
            if sidecar_image(self.kube, name) == self.image:
                self.begun.setdefault(name, now)
                if started_at(self.kube, name) != self.reported[name]:
                    self.ended.setdefault(name, now)

    def are_over(self) -> bool:
        """Whether all have been replaced, and taken for good."""
        self.look()
        marked = [
            name for name in self.names if OUTDATED in self.kube.present("vmi", name)["metadata"].get("labels", {})
        ]
        return len(self.ended) == len(self.names) and not marked

    def summary(self) -> str:
        took = [self.ended[name] - self.begun[name] for name in self.names]
        all_of_them = max(self.ended.values()) - min(self.begun.values())
        each = f"{min(took):.1f} s at least, {statistics.median(took):.1f} s (median), {max(took):.1f} s at most"
        whole = f"{time.monotonic() - self.since:.0f} s from the manifest to the last one that is taken for good"
        return f"{len(took)} supervisors exchanged within {all_of_them:.0f} s, each {each}; {whole}"


def sidecar_image(kube: Kube, name: str) -> str:
    containers = kube.pod(name)["spec"]["initContainers"]
    return str(next(each["image"] for each in containers if each["name"] == SIDECAR))


def started_at(kube: Kube, name: str) -> str:
    """When the supervisor was started that its machine's status is of."""
    return str(kube.status_of("vmi", name).get("supervisor", {}).get("startedAt", ""))


class Upgrade:
    """A cluster, its machines, and the two versions."""

    def __init__(self, kube: Kube, before: Version, today: Version) -> None:
        self.kube, self.before, self.today = kube, before, today
        self.names: list[str] = []
        self.guests: list[Guest] = []

    def install(self, machines: int) -> None:
        """The version before, and machines that run."""
        self.kube.roll_out(self.before.manifest)
        self.kube.apply(SETTINGS, namespace=INSTALLED_IN)
        self.kube.kubectl("create", "namespace", NAMESPACE, namespace=None)
        self.kube.ask_until("nodes that take machines", self.kube.offers_devices)
        self.kube.recorder.start()
        self.names = [f"guest-{number}" for number in range(machines)]
        patience = PATIENCE + SECONDS_EACH * machines
        self.kube.start(*(guest(number, name) for number, name in enumerate(self.names)), seconds=patience)
        for name in self.names:
            self.kube.prints(name, ":/# ", seconds=patience)
        self.guests = [Guest.of(self.kube, name) for name in self.names]

    def roll_out(
        self, version: Version, launcher: str | None = None, meanwhile: Callable[[], object] = lambda: None
    ) -> str:
        """This version, with another image for launchers if there is one: all supervisors are of it in the end."""
        image = launcher or version.images.launcher
        manifest, exchanges = version.manifest_with(image), Exchanges(self.kube, self.names, image)
        # Supervisors begin where the first agents are ready.
        self.kube.kubectl("apply", "-f", "-", text=manifest, namespace=None)
        meanwhile()
        patience = 2 * PATIENCE + SECONDS_EACH * len(self.names)
        self.kube.wait(f"{image} in every pod", exchanges.are_over, seconds=patience)
        self.kube.roll_out(manifest)
        self.kube.ask_until("a KubeVirt object without that message", lambda: not self.why_outdated())
        return exchanges.summary()

    def why_outdated(self) -> str:
        """What the KubeVirt object reports of outdated supervisors."""
        conditions = self.kube.get("kubevirt/kubevirt", namespace=INSTALLED_IN).get("status", {}).get("conditions", [])
        # Versions of before 2026-11-25 have a type without the domain.
        updated = [each for each in conditions if each["type"].endswith("LaunchersUpdated")]
        return "; ".join(f"{each['reason']}: {each['message']}" for each in updated)

    def restarts(self) -> dict[str, int]:
        return {name: self.kube.restarts(name, SIDECAR) for name in self.names}

    def expect_same_guests(self) -> str:
        """No guest has noticed anything, and what happens to each still reaches its status."""
        self.guests = [guest.goes_on(self.kube) for guest in self.guests]
        for request, wanted in (("pause", "True"), ("unpause", "")):
            self.each(f"{request} taken", functools.partial(self.is_taken, request))
            self.each(f"{request} in the status", functools.partial(self.is_paused, wanted))
        return f"up for {min(guest.uptime for guest in self.guests):.0f} s at least"

    def each(self, what: str, holds: Callable[[str], bool]) -> None:
        """Waits until it holds for every machine."""
        for name in self.names:
            self.kube.wait(f"{what}: {name}", functools.partial(holds, name))

    def is_taken(self, request: str, name: str) -> bool:
        return self.kube.answer(name, request).get("answer") in ("queued", "alreadySo")

    def is_paused(self, wanted: str, name: str) -> bool:
        return str(self.kube.condition("vmi", name, "Paused").get("status", "")) == wanted

    def has_image(self, image: str, name: str) -> bool:
        return sidecar_image(self.kube, name) == image

    def has_supervisor(self, name: str) -> bool:
        return "running" in self.kube.container(name, SIDECAR)["state"]

    def is_of(self, version: Version, name: str) -> bool:
        """Whether its supervisor has reported that it is of a version."""
        supervisor = self.kube.status_of("vmi", name).get("supervisor", {})
        return str(supervisor.get("version", "")) == version.name


class AgentAbsence:
    """For the model (`cluster/history.py`): no report of a machine arrives while the agent of its node is exchanged. It
    is looked for beside the test, which may wait for a console just then."""

    def __init__(self, kube: Kube, machine: str) -> None:
        self.kube, self.machine, self.lasts = kube, machine, False
        self.node = str(kube.status_of("vmi", machine)["nodeName"])
        self.over, self.looking = threading.Event(), threading.Thread(target=self.look, daemon=True)

    def __enter__(self) -> "AgentAbsence":
        self.looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.looking.join()
        self.note(False)

    def look(self) -> None:
        while not self.over.wait(PERIOD):
            # Where the API server does not answer in this moment, what was seen last holds.
            with contextlib.suppress(Failure):
                here = [pod for pod in self.kube.agents() if pod["spec"].get("nodeName") == self.node]
                self.note(not any(is_ready(pod) for pod in here))

    def note(self, lasts: bool) -> None:
        if lasts != self.lasts:
            self.lasts = lasts
            name, own = f"the agent of {self.node} is exchanged", [f"{NAMESPACE}/{self.machine}"]
            self.kube.recorder.note("fault", name=name, over=not lasts, mutes=True, of=own, forced=[])


def is_ready(pod: Object) -> bool:
    """Whether a pod serves, and is not asked to end."""
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", [])}
    return "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"


def guest(number: int, name: str) -> Object:
    """Some have load: they write to their disk all the time."""
    if number % LOAD_EVERY:
        return machine(name)
    volume = {"name": "load", "emptyDisk": {"capacity": "16Mi"}}
    return machine(name, tests="httpd,disk-load", volumes=[volume])


def powers_down(kube: Kube, name: str) -> bool:
    """Whether a guest has powered down, as it is asked to by its console, whose supervisor may go at any moment."""
    if kube.phase(name) == "Succeeded":
        return True
    with contextlib.suppress(OSError, StopIteration, ValueError, Failure):
        kube.type(name, "poweroff")
    return False


def expect_stopped(upgrade: Upgrade) -> str:
    """The message of a roll-out that has stopped."""
    message = upgrade.kube.ask_until(
        "a roll-out that has stopped",
        lambda: (why := upgrade.why_outdated()) and "UpdateStopped" in why and why,
        seconds=UPDATE_SECONDS + PATIENCE,
    )
    if "did not come up" not in message or "was put back" not in message:
        raise Failure(f"it reports {message}")
    return message
