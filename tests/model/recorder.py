"""Writes down what a test cluster shows of its machines, as a history for `history.py`: every QEMU process of its nodes and
the locks it holds, seen from the host, and what the API server says, by kubectl.

It also keeps the newest word of each object, so that a test can wait for a state without asking again and again."""

import contextlib
import json
import os
import pathlib
import re
import stat
import subprocess
import threading
import time

PATHS = {"vm": "/apis/kubevirt.io/v1/virtualmachines", "vmi": "/apis/kubevirt.io/v1/virtualmachineinstances",
         "pod": "/api/v1/pods"}
# Byte of an image that QEMU locks while it may write (RAW_LOCK_PERM_BASE + the bit of BLK_PERM_WRITE).
WRITER = 101
POD_CGROUP = re.compile(r"/gbk-(?P<cluster>[a-z]+)/(?P<node>node-\d+)/kubepods/(?:\w+/)?pod(?P<pod>[0-9a-f-]{36})")
LOCK = re.compile(r"lock:\s+\d+: OFDLCK\s+ADVISORY\s+\w+ +-?\d+ [0-9a-f]+:[0-9a-f]+:\d+ (\d+) (\d+|EOF)")
PERIOD = 0.1


class Recorder:
    """Records from `start` to `stop`; `history` is what was seen so far."""

    def __init__(self, kubectl, environment, cluster):
        self.kubectl, self.environment, self.cluster = kubectl, environment, cluster
        self.history, self.objects = [], {kind: {} for kind in PATHS}
        self.changed, self.over, self.watches = threading.Condition(threading.RLock()), False, {}
        self.threads, self.running, self.longest_gap = [], None, 0.0

    def start(self):
        for target, arguments in [*((self.follow, (kind,)) for kind in PATHS), (self.watch_processes, ())]:
            self.threads.append(threading.Thread(target=target, args=arguments, daemon=True))
            self.threads[-1].start()

    def stop(self):
        self.over = True
        for watch in list(self.watches.values()):
            watch.kill()
        for thread in self.threads:
            thread.join(10)

    def note(self, kind, **event):
        with self.changed:
            self.history.append({"at": time.monotonic(), "kind": kind} | event)
            self.changed.notify_all()

    # ---- the API server

    def follow(self, kind):
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

    def raw(self, path):
        command = [self.kubectl, "get", "--raw", path, "--request-timeout=20s"]
        return json.loads(subprocess.run(command, env=self.environment, check=True, capture_output=True).stdout)

    def watch(self, kind, version):
        command = [self.kubectl, "get", "--raw", f"{PATHS[kind]}?watch=1&resourceVersion={version}"]
        watch = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.watches[kind] = watch
        with watch:
            for line in watch.stdout:
                event = json.loads(line) if line.endswith(b"\n") else {"type": "ERROR"}
                if event["type"] == "ERROR":
                    break
                self.take(kind, event["type"], event["object"])
            watch.kill()

    def take(self, kind, what, item):
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

    def watch_processes(self):
        last, nodes = time.monotonic(), Processes(self.cluster)
        while not self.over:
            running = nodes.running()
            now = time.monotonic()
            self.longest_gap, last = max(self.longest_gap, now - last), now
            if running != self.running:
                self.running = running
                self.note("processes", running=running)
            time.sleep(PERIOD)  # the kernel tells nobody of processes that come and go


def summary(kind, item):
    """What the model wants to know of an object."""
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    machine = f"{metadata['namespace']}/{metadata['name']}"
    leaving = "deletionTimestamp" in metadata
    if kind == "pod":
        owner = next((owner for owner in metadata.get("ownerReferences", []) if owner["kind"] == "VirtualMachineInstance"), {})
        return {"machine": f"{metadata['namespace']}/{owner.get('name', '')}", "vmi": owner.get("uid"),
                "phase": status.get("phase", ""), "leaving": leaving, "node": spec.get("nodeName")}
    if kind == "vmi":
        left = sorted(pod for pod, node in status.get("activePods", {}).items() if not node)
        return {"machine": machine, "phase": status.get("phase", ""), "leaving": leaving, "node": status.get("nodeName"),
                "left": left}
    running = {True: "Always", False: "Halted"}.get(spec.get("running"))
    return {"machine": machine, "strategy": spec.get("runStrategy", running), "leaving": leaving,
            "printable": status.get("printableStatus")}


class Processes:
    """Looks at every process of this host again and again, and as little as possible at each."""

    def __init__(self, cluster):
        self.cluster, self.others, self.known, self.locked = cluster, set(), {}, 0.0

    def running(self):
        """Every QEMU of the cluster's pods, in the order of their names."""
        there = {entry for entry in os.listdir("/proc") if entry.isdigit()}
        self.others &= there
        found = {}
        for entry in there - self.others:
            with contextlib.suppress(OSError):  # it went while it was looked at
                if process := self.look(pathlib.Path("/proc", entry)):
                    found[process["id"]] = process
        # Locks are many files to read: once a second, and whenever a QEMU has come or gone.
        if found.keys() != self.known.keys() or time.monotonic() > self.locked + 1:
            self.locked = time.monotonic()
            for process in found.values():
                with contextlib.suppress(OSError):
                    process["writes"] = sorted(set(disks(pathlib.Path("/proc", str(process["pid"])))))
        self.known = found
        return [dict(found[name]) for name in sorted(found)]

    def look(self, process):
        name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
        if not name.startswith("qemu-system"):
            # PID 1 of a machine becomes QEMU in a child of the same name.
            if not name.startswith("garboard-"):
                self.others.add(process.name)
            return None
        fields = rest.split()
        if fields[0] in "ZX":
            return None
        for known in self.known.values():
            if known["id"].endswith(f":{process.name}:{fields[19]}"):
                return known
        place = POD_CGROUP.search((process / "cgroup").read_text())
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        guest = next((word for word in words if word.startswith("guest=")), "")
        if not place or place["cluster"] != self.cluster or not guest:
            return None
        return {"id": f"{place['node']}:{process.name}:{fields[19]}", "node": place["node"], "pid": int(process.name),
                "pod": place["pod"], "machine": guest.removeprefix("guest=").split(",")[0].replace("_", "/", 1), "writes": []}


def disks(process):
    """What it may write, by its locks: a file by device and inode, a block device by its number, because each container
    has a node of its own for it."""
    for info in (process / "fdinfo").iterdir():
        locks = LOCK.findall(info.read_text())
        if any(int(first) <= WRITER and (last == "EOF" or WRITER <= int(last)) for first, last in locks):
            about = (process / "fd" / info.name).stat()
            is_block = stat.S_ISBLK(about.st_mode)
            yield f"block {os.major(about.st_rdev)}:{os.minor(about.st_rdev)}" if is_block else f"{about.st_dev}:{about.st_ino}"
