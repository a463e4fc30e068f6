"""What a machine costs on a cluster: from its creation to Running beside a bare pod of two containers, writes to the
API server, memory and processor time of controller and agent. Prints markdown for docs/benchmarks.md.

  PYTHONPATH=tests/e2e python3 -B -m garboard_e2e.bench.cluster CLUSTER [--rounds N] [--many N]

CLUSTER is the program of tests/cluster. Needs root. Rounds are made in turns: pod, machine, pod, machine. What is timed
is between two states that the API server's watch shows: the object is there, and it is Ready or Running; kubectl's own
time is in neither.
"""

import argparse
import collections
import contextlib
import dataclasses
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from ..cluster import audit
from ..cluster.build import Build
from ..cluster.kube import Kube
from ..cluster.names import NAMESPACE, Object
from ..cluster.objects import machine
from ..cluster.shared import Shared
from ..hostile.attackers import PAUSE
from ..outcome import Failure
from ..scale.usage import Usage
from . import figures

READY = '.status.conditions[?(@.type=="Ready")].status'
# Many machines at once take as long as this, in seconds.
SECONDS = 900
Rows = list[tuple[str, str]]


class Watch:
    """The first time at which each object of a kind was in each state."""

    def __init__(self, kube: Kube, kind: str, field: str) -> None:
        path = f"{{.metadata.name}} {{{field}}}{{'\\n'}}"
        command = [kube.tool, "-n", NAMESPACE, "get", kind, "-w", "-o", f"jsonpath={path}"]
        self.process = subprocess.Popen(command, env=kube.environment, stdout=subprocess.PIPE, text=True)
        self.seen: dict[tuple[str, str | None], float] = {}
        self.changed = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout or ():
            name, _, state = line.strip().partition(" ")
            with self.changed:
                self.seen.setdefault((name, state), time.monotonic())
                self.seen.setdefault((name, None), time.monotonic())
                self.changed.notify_all()

    def at(self, name: str, state: str | None = None, seconds: float = 300) -> float:
        with self.changed:
            if not self.changed.wait_for(lambda: (name, state) in self.seen, seconds):
                raise Failure(f"{name} is not {state!r} within {seconds} s")
            return self.seen[name, state]


def bare_pod(name: str, volumes: list[Object], device: str | None = None) -> Object:
    """Two containers of which nothing is expected; present on every node. One of them is a sidecar, as in a launcher
    pod."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 107,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    named = [{"name": f"volume{number}"} | volume for number, volume in enumerate(volumes)]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in named]
    container: Object = {"image": PAUSE, "imagePullPolicy": "IfNotPresent", "securityContext": security}
    limits = {"resources": {"limits": {device: "1"}}} if device else {}
    sidecar = container | {"name": "sidecar", "restartPolicy": "Always", "volumeMounts": mounts} | limits
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "volumes": named,
        "initContainers": [sidecar],
        "containers": [container | {"name": "main", "volumeMounts": mounts[:1]}],
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# What the two containers of a pod come with. With a volume it is like most pods: those have at least a token. A kubelet
# looks every 300 ms whether volumes are there, and not at all where there are none. A launcher's has three, and a
# device.
IN_MEMORY: Object = {"emptyDir": {"medium": "Memory"}}
LABELS: Object = {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}


def pod_of(kind: str, name: str) -> Object:
    if kind == "shaped":
        return bare_pod(name, [IN_MEMORY, {"emptyDir": {}}, LABELS], "devices.kubevirt.io/tun")
    return bare_pod(name, [IN_MEMORY] if kind == "sharing" else [])


def halting(name: str) -> Object:
    """A machine without a disk: its firmware finds nothing to boot and halts."""
    vm = machine(name)
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain.pop("firmware")
    domain |= {"memory": {"guest": "64Mi"}, "resources": {"requests": {"cpu": "10m"}}}
    return vm


@dataclasses.dataclass
class Turns:
    """Seconds of each round: pods by their kind, and a machine."""

    pods: dict[str, list[float]]
    running: list[float]
    ready: list[float]

    @classmethod
    def taken(cls, kube: Kube, rounds: int) -> "Turns":
        pods, vms = Watch(kube, "pods", READY), Watch(kube, "vm", ".status.printableStatus")
        vmis, ready = Watch(kube, "vmi", ".status.phase"), Watch(kube, "vmi", READY)
        turns = cls({"bare": [], "sharing": [], "shaped": []}, [], [])
        for number in range(rounds):
            for kind, times in turns.pods.items():
                name = f"{kind}-{number}"
                kube.apply(pod_of(kind, name))
                times.append(pods.at(name, "True") - pods.at(name))
                kube.kubectl("delete", "pod", name)
            name = f"round-{number}"
            kube.apply(halting(name))
            created = vms.at(name)
            turns.running.append(vmis.at(name, "Running") - created)
            turns.ready.append(ready.at(name, "True") - created)
            vms.at(name, "Running")
            kube.remove(name)
        return turns

    def rows(self) -> Rows:
        bare, sharing, shaped = self.pods["bare"], self.pods["sharing"], self.pods["shaped"]
        three = "the same with what a launcher pod has, three volumes and a device"
        return [
            ("bare pod of two containers: created → Ready", f"{figures.summary(bare)} s"),
            ("the same with a volume that both share: created → Ready", f"{figures.summary(sharing)} s"),
            (three, f"{figures.summary(shaped)} s"),
            ("machine: created → Running", f"{figures.summary(self.running)} s"),
            ("… against the bare pod", figures.ratio(self.running, bare)),
            ("… against the one with a volume", figures.ratio(self.running, sharing)),
            ("… against the one with what a launcher pod has", figures.ratio(self.running, shaped)),
            ("machine: created → Ready", f"{figures.summary(self.ready)} s"),
        ]


def writes_of_starts(kube: Kube, number: int) -> dict[str, float]:
    """What our components wrote for each of so many starts, one after the other."""
    names = [f"written-{each}" for each in range(number + 1)]
    for name in names:
        kube.start(halting(name))
        is_ready(kube, name)
    counted: collections.Counter[str] = collections.Counter()
    # The last one was the time in which the others could be written again.
    for name in names[:-1]:
        counted += audit.writes(audit.events(kube.audit_log), NAMESPACE, name)
    kube.remove(*names)
    return {what: times / number for what, times in counted.items()}


def is_ready(kube: Kube, name: str) -> None:
    kube.wait(f"{name} Ready", lambda: kube.condition("vm", name, "Ready").get("status") == "True")


@dataclasses.dataclass
class Program:
    """All processes of a program: how many, and what they take together."""

    number: int
    usage: Usage

    @classmethod
    def named(cls, name: str) -> "Program":
        memory, processor, number = 0.0, 0.0, 0
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text().strip() == name[:15]:
                    usage = Usage.of(int(entry.name))
                    memory, processor = memory + usage.memory, processor + usage.processor
                    number += 1
        return cls(number, Usage(memory, processor))


def many(kube: Kube, number: int) -> Rows:
    """Rows about so many machines made at once."""
    vmis, pods = Watch(kube, "vmi", ".status.phase"), Watch(kube, "pods", READY)
    names = [f"many-{each}" for each in range(number)]
    began = time.monotonic()
    kube.apply(*(pod_of("sharing", name) for name in names))
    of_pods = sorted(pods.at(name, "True", SECONDS) - began for name in names)
    kube.kubectl("delete", "pod", *names)
    before = {part: Program.named(f"garboard-{part}") for part in ("controller", "node")}
    began = time.monotonic()
    kube.apply(*(halting(name) for name in names))
    times = sorted(vmis.at(name, "Running", SECONDS) - began for name in names)
    rows = [at_once(f"{number} pods with a volume, Ready,", of_pods), at_once(f"{number} machines, Running,", times)]
    for part, program in before.items():
        each = Program.named(f"garboard-{part}").usage.since(program.usage, number)
        whole = figures.digits(program.usage.memory / 1024)
        without = f"{part}, PSS of {program.number}: without machines, and for each"
        rows.append((without, f"{whole} MiB, {figures.digits(each.kib)} KiB"))
        rows.append((f"{part}: processor time for each start", f"{figures.digits(each.milliseconds)} ms"))
    both = sum(Program.named(name).usage.memory for name in ("garboard-launcher", "garboard-init"))
    rows.append(("supervisor and PID 1, PSS for each machine", f"{figures.digits(both / number)} KiB"))
    kube.remove(*names)
    return rows


def at_once(what: str, times: list[float]) -> tuple[str, str]:
    shown = " / ".join(figures.digits(times[place]) for place in (0, len(times) // 2, -1))
    return f"{what} at once: the first, half of them, the last", f"{shown} s"


def show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def cluster(program: pathlib.Path) -> Iterator[Kube]:
    """One of its own, with Garboard."""
    shared = Shared(Build.made(program), "bench", show)
    try:
        with shared.installed() as kube:
            yield kube
    finally:
        shared.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--many", type=int, default=50)
    options = parser.parse_args()
    with cluster(options.cluster) as kube:
        rows = Turns.taken(kube, options.rounds).rows()
        counted = writes_of_starts(kube, 5)
        rows += many(kube, options.many) if options.many else []
        print(figures.table([f"n={options.rounds}", "median (least–most)"], rows))
        each = [[what, figures.digits(number)] for what, number in sorted(counted.items())]
        print(figures.table(["writes of ours for a start", "each"], each))


if __name__ == "__main__":
    main()
