"""What a machine costs on a cluster: from its creation to Running beside a bare pod of two containers, writes to the API
server, memory and processor time of controller and agent. Prints markdown for docs/benchmarks.md.

  python3 -B scripts/benchmarks/cluster.py CLUSTER HELLO-LAYOUT [--rounds N] [--many N]

CLUSTER is the program of tests/cluster, HELLO-LAYOUT the directory that scripts/guest-hello prints. Needs root. Rounds are
made in turns: pod, machine, pod, machine. What is timed is between two words of the API server's watch: the object is
there, and it is Ready or Running; kubectl's own time is in neither.
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))

import audit  # noqa: E402
import figures  # noqa: E402
from kube import NAMESPACE, kube, machine  # noqa: E402

# Two containers, one of them a sidecar, like a launcher pod; the program does nothing. Present on every node.
PAUSE = "registry.garboard.dev/cluster-pause:1"
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """The first time at which each object of a kind said each word."""

    def __init__(self, cluster, kind, word):
        command = [cluster.tool, "-n", NAMESPACE, "get", kind, "-w", "-o", f"jsonpath={{.metadata.name}} {{{word}}}{{'\\n'}}"]
        self.process = subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True)
        self.seen, self.changed = {}, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            name, _, word = line.strip().partition(" ")
            with self.changed:
                self.seen.setdefault((name, word), time.monotonic())
                self.seen.setdefault((name, None), time.monotonic())
                self.changed.notify_all()

    def at(self, name, word=None, seconds=300):
        with self.changed:
            if not self.changed.wait_for(lambda: (name, word) in self.seen, seconds):
                sys.exit(f"{name} does not say {word!r} within {seconds} s")
            return self.seen[name, word]


def bare_pod(name, volumes=(), device=None):
    """Two containers of which nothing is expected."""
    container = {"image": PAUSE, "imagePullPolicy": "IfNotPresent", "securityContext": {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 107,
        "seccompProfile": {"type": "RuntimeDefault"}}}
    named = [{"name": f"volume{number}"} | volume for number, volume in enumerate(volumes)]
    sidecar = container | {"name": "sidecar", "restartPolicy": "Always",
                           "volumeMounts": [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in named]}
    if device:
        sidecar["resources"] = {"limits": {device: "1"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "volumes": named,
        "initContainers": [sidecar],
        "containers": [container | {"name": "main", "volumeMounts": sidecar["volumeMounts"][:1]}]}}


# What the two containers of a pod come with. With a volume it is like most pods: those have at least a token. A kubelet looks
# every 300 ms whether volumes are there, and not at all where there are none. A launcher's has three, and a device.
IN_MEMORY = {"emptyDir": {"medium": "Memory"}}
LABELS = {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}
KINDS = {
    "bare": {},
    "sharing": {"volumes": [IN_MEMORY]},
    "shaped": {"volumes": [IN_MEMORY, {"emptyDir": {}}, LABELS], "device": "devices.kubevirt.io/tun"},
}


def halting(name):
    """A machine without a disk: its firmware finds nothing to boot and halts."""
    vm = machine(name, strategy="Always")
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain.pop("firmware")
    domain["memory"] = {"guest": "64Mi"}
    domain["resources"] = {"requests": {"cpu": "10m"}}
    return vm


def in_turns(cluster, rounds):
    pods = Watch(cluster, "pods", '.status.conditions[?(@.type=="Ready")].status')
    vms, vmis = Watch(cluster, "vm", ".status.printableStatus"), Watch(cluster, "vmi", ".status.phase")
    ready = Watch(cluster, "vmi", '.status.conditions[?(@.type=="Ready")].status')
    of_pods, running, is_ready = {kind: [] for kind in KINDS}, [], []
    for number in range(rounds):
        for kind, times in of_pods.items():
            name = f"{kind}-{number}"
            cluster.apply(bare_pod(name, **KINDS[kind]))
            times.append(pods.at(name, "True") - pods.at(name))
            cluster.kubectl("delete", "pod", name)
        name = f"round-{number}"
        cluster.apply(halting(name))
        created = vms.at(name)
        running.append(vmis.at(name, "Running") - created)
        is_ready.append(ready.at(name, "True") - created)
        vms.at(name, "Running")
        cluster.remove(name)
    return of_pods, running, is_ready


def writes_of_starts(cluster, number):
    """What our components wrote for each of so many starts, one after the other."""
    names, counted = [f"written-{each}" for each in range(number + 1)], collections.Counter()
    for name in names:
        cluster.start(halting(name))
        cluster.wait(f"{name} Ready", lambda: cluster.condition("vm", name, "Ready").get("status") == "True")
    # The last one was the time in which the others could be written again.
    for name in names[:-1]:
        counted += audit.writes(cluster.name, NAMESPACE, name)
    cluster.remove(*names)
    return {what: times / number for what, times in counted.items()}


def processes(name):
    """(PSS in KiB, processor seconds) of all processes of a program."""
    memory, processor, number = 0, 0.0, 0
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() != name[:15]:
                continue
            rollup = (entry / "smaps_rollup").read_text()
            memory += int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")))
            fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            processor += (int(fields[11]) + int(fields[12])) / TICKS
            number += 1
        except OSError:
            continue
    return memory, processor, number


def many(cluster, number):
    """Rows about so many machines made at once."""
    before = {part: processes(f"garboard-{part}") for part in ("controller", "node")}
    vmis, pods = Watch(cluster, "vmi", ".status.phase"), Watch(cluster, "pods", '.status.conditions[?(@.type=="Ready")].status')
    names = [f"many-{each}" for each in range(number)]
    began = time.monotonic()
    cluster.apply(*(bare_pod(name, **KINDS["sharing"]) for name in names))
    of_pods = sorted(pods.at(name, "True", 900) - began for name in names)
    cluster.kubectl("delete", "pod", *names)
    before = {part: processes(f"garboard-{part}") for part in before}
    began = time.monotonic()
    cluster.apply(*(halting(name) for name in names))
    times = sorted(vmis.at(name, "Running", 900) - began for name in names)
    rows = [[f"{number} {what} at once: the first, half of them, the last",
             " / ".join(figures.digits(each[place]) for place in (0, number // 2, -1)) + " s"]
            for what, each in (("pods with a volume, Ready,", of_pods), ("machines, Running,", times))]
    for part, (memory, processor, count) in before.items():
        after = processes(f"garboard-{part}")
        rows.append([f"{part}, PSS of {count}: without machines, and for each",
                     f"{figures.digits(memory / 1024)} MiB, {figures.digits((after[0] - memory) / number)} KiB"])
        rows.append([f"{part}: processor time for each start", f"{figures.digits((after[1] - processor) * 1000 / number)} ms"])
    launchers, inits = processes("garboard-launcher"), processes("garboard-init")
    rows.append(["supervisor and PID 1, PSS for each machine",
                 f"{figures.digits((launchers[0] + inits[0]) / number)} KiB"])
    cluster.kubectl("delete", "vm", "--all", "--wait=false")
    for name in names:
        cluster.is_gone(name)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster")
    parser.add_argument("hello")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--many", type=int, default=50)
    options = parser.parse_args()
    with kube(options.cluster, "bench", options.hello) as cluster:
        cluster.install()
        of_pods, running, is_ready = in_turns(cluster, options.rounds)
        counted = writes_of_starts(cluster, 5)
        rows = [
            ["bare pod of two containers: created → Ready", f"{figures.summary(of_pods['bare'])} s"],
            ["the same with a volume that both share: created → Ready", f"{figures.summary(of_pods['sharing'])} s"],
            ["the same with what a launcher pod has, three volumes and a device", f"{figures.summary(of_pods['shaped'])} s"],
            ["machine: created → Running", f"{figures.summary(running)} s"],
            ["… against the bare pod", figures.ratio(running, of_pods["bare"])],
            ["… against the one with a volume", figures.ratio(running, of_pods["sharing"])],
            ["… against the one with what a launcher pod has", figures.ratio(running, of_pods["shaped"])],
            ["machine: created → Ready", f"{figures.summary(is_ready)} s"],
        ]
        if options.many:
            rows += many(cluster, options.many)
        print(figures.table([f"n={options.rounds}", "median (least–most)"], rows))
        print(figures.table(["writes of ours for a start", "each"],
                            [[what, figures.digits(number)] for what, number in sorted(counted.items())]))


main()
