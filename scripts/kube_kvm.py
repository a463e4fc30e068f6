"""Guests under KVM in pods, with the settings that a new installation has: on each node, stopped, started, restarted, and
with their supervisor killed. The guest is a boot sector, which runs also where KVM interprets guest code."""

import json
import os

from kube import NAMESPACE, Failure, Skipped
from kube_examples import load

NODES = {"kvm-left": "node-1", "kvm-right": "node-2"}
# Where KVM interprets guest code, firmware and boot sector take some ten seconds.
PATIENCE = 300
AGENT_FACTS = "run/garboard-agent/pod/node.json"
INTERPRETED = "KVMInterpretsGuestCode"


def firmware(name, node):
    """The guest of examples/vmi-firmware.yaml as a VirtualMachine; nothing in it speaks of accelerator or CPU model."""
    devices = {"autoattachGraphicsDevice": False, "autoattachMemBalloon": False, "autoattachPodInterface": False,
               "disableHotplug": True, "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    spec = {"domain": {"memory": {"guest": "64Mi"}, "cpu": {"sockets": 1, "maxSockets": 1}, "devices": devices},
            "nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 60,
            "volumes": [{"name": "root", "containerDisk": {"image": "registry.garboard.dev/bootsector:1"}}]}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}}


def need_kvm(kube):
    """The nodes of the test cluster are this machine: without its /dev/kvm no node offers one, which is what must hold."""
    def offered():
        nodes = json.loads(kube.kubectl("get", "nodes", "-o", "json"))["items"]
        return [node["status"]["allocatable"].get("devices.kubevirt.io/kvm", "0") for node in nodes]

    if os.path.exists("/dev/kvm"):
        # A kubelet tells of one kind of device after the other.
        kube.ask_until("nodes that offer /dev/kvm, which is there", lambda: "0" not in offered())
        return
    if set(found := offered()) != {"0"}:
        raise Failure(f"there is no /dev/kvm, and the nodes offer {found}")
    raise Skipped("this machine has no /dev/kvm")


def query_kvm(kube, name):
    """QEMU's answer to `query-kvm`, through the supervisor's broker."""
    connection, answer = kube.ask(name, {"ask": "qmp", "access": "readOnly"})
    with connection:
        if answer.get("answer") != "streaming":
            raise Failure(f"the QMP broker of {name} says {answer}")
        stream = connection.makefile("rwb")
        stream.readline()
        for command in ("qmp_capabilities", "query-kvm"):
            stream.write(json.dumps({"execute": command, "id": command}).encode() + b"\n")
            stream.flush()
            while (found := json.loads(stream.readline())).get("id") != command:
                pass
        return found["return"]


def runs_under_kvm(kube, name):
    kube.ask_until(f"the guest of {name}", lambda: "garboard-boot: counted" in kube.serial(name), PATIENCE)
    if (said := query_kvm(kube, name)) != {"enabled": True, "present": True}:
        raise Failure(f"query-kvm of {name} says {said}")
    container = next(each for each in kube.pod(name)["spec"]["containers"] if each["name"] == "compute")
    if container["resources"]["limits"].get("devices.kubevirt.io/kvm") != "1":
        raise Failure(f"compute of {name} asks for {container['resources']}")


def on_each_node(kube):
    need_kvm(kube)
    load(kube, "bootsector")
    kube.start(*(firmware(name, node) for name, node in NODES.items()))
    for name, node in NODES.items():
        runs_under_kvm(kube, name)
        if (found := kube.there("vmi", name)["status"]["nodeName"]) != node:
            raise Failure(f"{name} is on {found}")


def slowness_is_told(kube):
    """Once as an event, and as a condition, exactly where KVM interprets guest code."""
    need_kvm(kube)
    facts = json.loads((kube.root("node-1") / AGENT_FACTS).read_text())
    interprets = facts["kvm"]["state"] == "emulated"
    for name in NODES:
        reason = kube.condition("vmi", name, "SoftwareEmulation").get("reason")
        if reason != (INTERPRETED if interprets else None):
            raise Failure(f"KVM is {facts['kvm']['state']}, and {name} has the condition {reason}")
        told = json.loads(kube.kubectl("get", "events", "--field-selector", f"reason={INTERPRETED},involvedObject.name={name}", "-o", "json"))
        if len(told["items"]) != int(interprets):
            raise Failure(f"KVM is {facts['kvm']['state']}, and there are {len(told['items'])} events")
    return facts["kvm"]["state"]


def is_stopped_and_started(kube):
    need_kvm(kube)
    name = "kvm-left"
    first = kube.uid(name)
    kube.patch(f"vm/{name}", {"spec": {"runStrategy": "Halted"}})
    kube.is_gone(name)
    kube.wait("the word Stopped", lambda: kube.printed(name) == "Stopped")
    kube.patch(f"vm/{name}", {"spec": {"runStrategy": "Always"}})
    second = kube.runs(name, not_this=first)
    runs_under_kvm(kube, name)
    kube.kubectl("delete", f"vmi/{name}", "--wait=false")
    kube.runs(name, not_this=second)
    runs_under_kvm(kube, name)


def a_supervisor_is_killed(kube):
    need_kvm(kube)
    name = "kvm-right"
    before, qemu = kube.container(name, "launcher")["restartCount"], kube.qemus(name)[0]["pid"]
    kube.kill(name, "garboard-launcher")
    kube.wait("the sidecar again", lambda: kube.container(name, "launcher")["restartCount"] > before)
    kube.ask_until("QMP again", lambda: answers(kube, name))
    if [each["pid"] for each in kube.qemus(name)] != [qemu]:
        raise Failure("it is another QEMU")
    runs_under_kvm(kube, name)


def answers(kube, name):
    try:
        return query_kvm(kube, name)["enabled"]
    except (OSError, Failure, ValueError):
        return False


def they_go(kube):
    kube.remove(*NODES)


SCENES = [
    ("KVM: a guest on each node, by default", on_each_node),
    ("KVM: where it interprets guest code, a condition and one event say so", slowness_is_told),
    ("KVM: stopped, started, restarted", is_stopped_and_started),
    ("KVM: a supervisor that is killed comes back", a_supervisor_is_killed),
    ("KVM: deleted", they_go),
]
