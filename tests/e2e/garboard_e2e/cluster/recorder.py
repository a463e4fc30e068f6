"""Writes down what a test cluster shows of its machines, as a history for `history.py`: every QEMU process of its nodes
and the locks it holds, seen from the host, and what the API server reports, by kubectl.

It also keeps the newest state of each object, so that a test can wait for a state without asking again and again."""

import json
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any

from .history import Event
from .names import Kind, Object
from .qemus import Qemu, Qemus

PATHS: dict[Kind, str] = {
    "vm": "/apis/kubevirt.io/v1/virtualmachines",
    "vmi": "/apis/kubevirt.io/v1/virtualmachineinstances",
    "pod": "/api/v1/pods",
}
PERIOD = 0.1


class Recorder:
    """Records from `start` to `stop`; `history` is what was seen so far."""

    def __init__(self, kubectl: str, environment: Mapping[str, str], cluster: str) -> None:
        self.kubectl, self.environment, self.cluster = kubectl, environment, cluster
        self.history: list[Event] = []
        self.objects: dict[Kind, dict[str, Object]] = {kind: {} for kind in PATHS}
        self.running: list[Qemu] = []
        self.longest_gap = 0.0
        self.changed, self.over = threading.Condition(threading.RLock()), False
        self.watches: dict[Kind, subprocess.Popen[bytes]] = {}
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        self.threads = [threading.Thread(target=self.follow, args=(kind,), daemon=True) for kind in PATHS]
        self.threads.append(threading.Thread(target=self.watch_processes, daemon=True))
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.over = True
        for watch in list(self.watches.values()):
            watch.kill()
        for thread in self.threads:
            thread.join(10)

    def note(self, kind: str, **event: Any) -> None:
        with self.changed:
            self.history.append({"at": time.monotonic(), "kind": kind} | event)
            self.changed.notify_all()

    def wait_for_more(self, seen: int, seconds: float = 0.3) -> int:
        """Until there are more events than these, or a moment has passed; how many there are."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.history) > seen, seconds)
            return len(self.history)

    # ---- the API server

    def follow(self, kind: Kind) -> None:
        """Lists, then watches from there, for ever."""
        while not self.over:
            try:
                listed = self.raw(PATHS[kind])
            except (subprocess.SubprocessError, ValueError):
                time.sleep(0.3)  # it does not answer, and there is nothing to wait on
                continue
            with self.changed:
                self.note("listed", type=kind, uids=[item["metadata"]["uid"] for item in listed["items"]])
                self.objects[kind] = {}
                for item in listed["items"]:
                    self.take(kind, "ADDED", item)
            self.watch(kind, listed["metadata"]["resourceVersion"])

    def raw(self, path: str) -> Object:
        command = [self.kubectl, "get", "--raw", path, "--request-timeout=20s"]
        answer = subprocess.run(command, env=self.environment, check=True, capture_output=True).stdout
        listed: Object = json.loads(answer)
        return listed

    def watch(self, kind: Kind, version: str) -> None:
        command = [self.kubectl, "get", "--raw", f"{PATHS[kind]}?watch=1&resourceVersion={version}"]
        watch = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.watches[kind] = watch
        if self.over:
            watch.kill()
        with watch:
            for line in watch.stdout or ():
                event: Object = json.loads(line) if line.endswith(b"\n") else {"type": "ERROR"}
                if event["type"] == "ERROR":
                    break
                self.take(kind, event["type"], event["object"])
            watch.kill()

    def take(self, kind: Kind, what: str, item: Object) -> None:
        metadata, gone = item["metadata"], what == "DELETED"
        uid = metadata["uid"]
        # The namespace of Garboard itself and others have pods too.
        if kind == "pod" and metadata.get("labels", {}).get("kubevirt.io") != "virt-launcher":
            return
        with self.changed:
            if gone:
                self.objects[kind].pop(uid, None)
            else:
                self.objects[kind][uid] = item
            self.note("object", type=kind, uid=uid, gone=gone, **summary(kind, item))

    # ---- the nodes

    def watch_processes(self) -> None:
        last, nodes, first = time.monotonic(), Qemus(self.cluster), True
        while not self.over:
            running = nodes.running()
            now = time.monotonic()
            self.longest_gap, last = max(self.longest_gap, now - last), now
            if first or running != self.running:
                self.running, first = running, False
                self.note("processes", running=running)
            time.sleep(PERIOD)  # the kernel reports no process that comes or goes


def summary(kind: Kind, item: Object) -> Event:
    """What the model needs of an object."""
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    machine = f"{metadata['namespace']}/{metadata['name']}"
    leaving = "deletionTimestamp" in metadata
    if kind == "pod":
        owners = [each for each in metadata.get("ownerReferences", []) if each["kind"] == "VirtualMachineInstance"]
        owner: Object = next(iter(owners), {})
        return {
            "machine": f"{metadata['namespace']}/{owner.get('name', '')}",
            "vmi": owner.get("uid"),
            "phase": status.get("phase", ""),
            "leaving": leaving,
            "node": spec.get("nodeName"),
        }
    if kind == "vmi":
        left = sorted(pod for pod, node in status.get("activePods", {}).items() if not node)
        node = status.get("nodeName")
        return {"machine": machine, "phase": status.get("phase", ""), "leaving": leaving, "node": node, "left": left}
    running = {True: "Always", False: "Halted"}.get(spec.get("running"))
    strategy = spec.get("runStrategy", running)
    return {"machine": machine, "strategy": strategy, "leaving": leaving, "printable": status.get("printableStatus")}
