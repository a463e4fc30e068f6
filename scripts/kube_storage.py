"""Guests that write for ever: what they meet is the end of their own disk, and not their node's or the kubelet's."""

import contextlib
import json
import re

from kube import NAMESPACE, Failure, machine

MIB = 1 << 20
ALLOWED_MIB = 64
# More than is allowed, and more than the kubelet lets a pod have that is allowed so much.
DISK_MIB = 512
# In the guest: the disk with a serial number.
WORD = """disk() { for s in /sys/block/*/serial; do [ "$(cat $s)" != "$1" ] || { s=${s%/serial}; echo /dev/${s##*/}; }; done; }"""


def writer(name, limits=None):
    """A guest with two empty disks: an error on one is the guest's, on the other it stops."""
    disks = [{"name": each, "emptyDisk": {"capacity": f"{DISK_MIB}Mi"}} for each in ("told", "stops")]
    vm = machine(name, "Once", volumes=disks)
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain["devices"]["disks"][0]["errorPolicy"] = "report"
    domain["resources"] = {"limits": limits} if limits else {}
    return vm


def fill(kube, name, disk, **options):
    return kube.shell(name, f"dd if=/dev/zero of=$(disk {disk}) bs=1M count={DISK_MIB} conv=fsync", **options)


def counted(kube, pod):
    """Bytes that the kubelet counts of the pod's layers, once it has looked at them; it does so once a minute."""
    summary = json.loads(kube.kubectl("get", "--raw", f"/api/v1/nodes/{pod['spec']['nodeName']}/proxy/stats/summary", namespace=None))
    stats = next((each for each in summary["pods"] if each["podRef"]["uid"] == pod["metadata"]["uid"]), {})
    volume = next((each for each in stats.get("volume", []) if each["name"] == "garboard-scratch"), {})
    return volume.get("usedBytes", 0)


def meets_the_end(kube):
    name = "writer"
    kube.start(writer(name, {"ephemeral-storage": f"{ALLOWED_MIB}Mi"}))
    try:
        kube.says(name, ":/# ")
        kube.shell(name, "settle")
        kube.shell(name, WORD)
        fill(kube, name, "told", code=1)
        if kube.condition("vmi", name, "Paused"):
            raise Failure("an error that its guest is told has stopped the guest")
        fill(kube, name, "stops", code=None)
        paused = kube.wait("the guest stopped", lambda: kube.condition("vmi", name, "Paused"))
        if paused["reason"] != "PausedIOError" or "No space left" not in paused["message"]:
            raise Failure(f"its instance says {paused}")
        pod = kube.pod(name)
        used = kube.ask_until("what the kubelet counts", lambda: least(counted(kube, pod), ALLOWED_MIB * MIB * 3 // 4))
        if used > ALLOWED_MIB * MIB + MIB:
            raise Failure(f"the kubelet counts {used} bytes of {ALLOWED_MIB} MiB that are allowed")
        if (kube.phase(name), kube.pod(name)["status"]["phase"]) != ("Running", "Running"):
            raise Failure(f"the instance is {kube.phase(name)}, its pod {kube.pod(name)['status']}")
        return f"{used / MIB:.1f} of {ALLOWED_MIB} MiB, {paused['message']}"
    finally:
        kube.remove(name)


def least(value, bound):
    return value if value >= bound else None


@contextlib.contextmanager
def limit_range(kube):
    limits = [{"type": "Container", "default": {"ephemeral-storage": f"{ALLOWED_MIB + 50}Mi"}}]
    kube.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual", "namespace": NAMESPACE}, "spec": {"limits": limits}})
    try:
        yield
    finally:
        kube.kubectl("delete", "limitrange", "usual")


def limits_of_a_namespace_count(kube):
    name = "limited"
    with limit_range(kube):
        kube.start(writer(name))
    try:
        log = kube.kubectl("logs", kube.pod(name)["metadata"]["name"], "-c", "launcher")
        rooms = [int(each) for each in re.findall(r'roomBytes\\*":(\d+)', log)]
        if len(rooms) != 2 or not ALLOWED_MIB * MIB * 3 // 4 < sum(rooms) < (ALLOWED_MIB + 4) * MIB:
            raise Failure(f"a LimitRange of {ALLOWED_MIB + 50} MiB gives layers {rooms} bytes")
        return f"{[room // MIB for room in rooms]} MiB"
    finally:
        kube.remove(name)


SCENES = [("storage: a guest that writes for ever meets the end of its disk", meets_the_end),
          ("storage: a LimitRange of the namespace counts", limits_of_a_namespace_count)]
