"""Guests that write for ever: what they meet is the end of their own disk, and not their node's or the kubelet's."""

import contextlib
import json
import re
from collections.abc import Callable

import pytest

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import MIB, NAMESPACE, SIDECAR, Object
from garboard_e2e.cluster.objects import machine

ALLOWED_MIB = 64
# More than is allowed, and more than the kubelet lets a pod have that is allowed so much.
DISK_MIB = 512


def writer(name: str, limits: Object | None = None) -> Object:
    """A guest with two empty disks: an error on one is the guest's, on the other it stops."""
    disks = [{"name": each, "emptyDisk": {"capacity": f"{DISK_MIB}Mi"}} for each in ("reports", "stops")]
    vm = machine(name, "Once", volumes=disks)
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain["devices"]["disks"][0]["errorPolicy"] = "report"
    domain["resources"] = {"limits": limits} if limits else {}
    return vm


def fill(disk: str) -> str:
    return f"dd if=/dev/zero of=$(disk {disk}) bs=1M count={DISK_MIB} conv=fsync"


def counted(kube: Kube, pod: Object) -> int:
    """Bytes that the kubelet counts of the pod's layers, once it has looked at them; it does so once a minute."""
    path = f"/api/v1/nodes/{pod['spec']['nodeName']}/proxy/stats/summary"
    pods: list[Object] = json.loads(kube.kubectl("get", "--raw", path, namespace=None))["pods"]
    mine = [each for each in pods if each["podRef"]["uid"] == pod["metadata"]["uid"]]
    volumes = [volume for each in mine for volume in each.get("volume", [])]
    used = sum(each.get("usedBytes", 0) for each in volumes if each["name"] == "garboard-scratch")
    return used if used >= ALLOWED_MIB * MIB * 3 // 4 else 0


@pytest.mark.long
def test_a_guest_that_writes_for_ever_meets_the_end_of_its_disk(kube: Kube, note: Callable[[str], None]) -> None:
    name = "writer"
    kube.start(writer(name, {"ephemeral-storage": f"{ALLOWED_MIB}Mi"}))
    volumes.learn(kube, name)
    kube.shell(name, fill("reports"), code=1)
    assert not kube.condition("vmi", name, "Paused"), "an error that is reported to its guest has stopped the guest"
    kube.type(name, fill("stops"))
    paused = kube.becomes("vmi", name, "Paused")
    assert paused["reason"] == "PausedIOError" and "No space left" in paused["message"], f"its instance has {paused}"
    pod = kube.pod(name)
    used = kube.ask_until("what the kubelet counts", lambda: counted(kube, pod))
    assert used <= (ALLOWED_MIB + 1) * MIB, f"the kubelet counts {used} bytes of {ALLOWED_MIB} MiB that are allowed"
    assert (kube.phase(name), kube.pod(name)["status"]["phase"]) == ("Running", "Running")
    note(f"{used / MIB:.1f} of {ALLOWED_MIB} MiB, {paused['message']}")


@pytest.fixture
def limit_range(kube: Kube, held: contextlib.ExitStack) -> None:
    """The usual limit of containers in the namespace."""
    limits = [{"type": "Container", "default": {"ephemeral-storage": f"{ALLOWED_MIB + 50}Mi"}}]
    metadata = {"name": "usual", "namespace": NAMESPACE}
    kube.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}})
    held.callback(kube.kubectl, "delete", "limitrange", "usual")


def test_a_limit_range_of_the_namespace_counts(kube: Kube, limit_range: None, note: Callable[[str], None]) -> None:
    name = "limited"
    kube.start(writer(name))
    log = kube.kubectl("logs", kube.pod_name(name), "-c", SIDECAR)
    limits = [int(each) / MIB for each in re.findall(r'roomBytes\\*":(\d+)', log)]
    is_less = ALLOWED_MIB * 3 / 4 < sum(limits) < ALLOWED_MIB + 4
    assert len(limits) == 2 and is_less, f"a LimitRange of {ALLOWED_MIB + 50} MiB gives layers {limits} MiB"
    note(f"{[int(limit) for limit in limits]} MiB")
