"""Parts of a machine that only a cluster has: probes, tokens, files of the node, container disks without image volumes."""

import contextlib
import json
import os
import pathlib
import tempfile

from kube import EXAMPLES, HELLO, NAMESPACE, Failure, machine
from kube_examples import volume, with_accelerator
from kube_volumes import QEMU_USER, WORDS

MIB = 1 << 20
OPEN = "open"  # a namespace that lets pods have directories of the node


def is_ready(kube, name):
    return kube.condition("vmi", name, "Ready").get("status") == "True"


def learn(kube, name):
    kube.says(name, ":/# ")
    kube.shell(name, "settle")
    for line in WORDS.splitlines():
        kube.shell(name, line)


def probes_are_followed(kube):
    """What serves pages answers for the guest: an instance is Ready while it does, and no longer."""
    probe = {"httpGet": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 2}
    kube.start(machine("probed", readinessProbe=probe))
    try:
        if is_ready(kube, "probed"):
            raise Failure("it is Ready before the probe was made for the first time")
        kube.wait("Ready by the probe", lambda: is_ready(kube, "probed"))
        kube.says("probed", ":/# ")
        kube.shell("probed", "killall httpd")
        kube.wait("not Ready without the server", lambda: not is_ready(kube, "probed"))
        kube.shell("probed", "httpd -h /www")
        kube.wait("Ready again", lambda: is_ready(kube, "probed"))
    finally:
        kube.remove("probed")


def tokens_and_labels_are_discs(kube):
    network = {"version": 1, "config": [{"type": "physical", "name": "eth0", "subnets": [{"type": "dhcp"}]}]}
    kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wires", "namespace": NAMESPACE},
                "stringData": {"networkdata": json.dumps(network)}})
    kube.start(machine("discs", volumes=[
        {"name": "account", "serviceAccount": {"serviceAccountName": "default"}},
        {"name": "labels", "downwardAPI": {"fields": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n", "networkDataSecretRef": {"name": "wires"}}},
    ]))
    try:
        learn(kube, "discs")
        wanted = {("account", "namespace"): NAMESPACE, ("account", "token"): "ey", ("account", "ca.crt"): "BEGIN CERTIFICATE",
                  ("labels", "labels"): 'app="discs"', ("seed", "network-config"): "physical"}
        for (disc, file), text in wanted.items():
            if text not in (found := kube.shell("discs", f"disc {disc} {file}")):
                raise Failure(f"{file} of {disc} holds {found[:300]!r}")
        mounts = {container["name"]: [mount["mountPath"] for mount in container["volumeMounts"]]
                  for container in kube.pod("discs")["spec"]["containers"]}
        if any("serviceaccount" in path or "account" in path for path in mounts["compute"]):
            raise Failure(f"QEMU's container has the token: {mounts}")
    finally:
        kube.remove("discs")


def firmware_keeps_its_variables(kube):
    """In a claim that is made with the machine, stays while it is stopped, and goes with it."""
    name = "persistent-state-for-efi"
    with volume(kube, name) as directory:
        kube.kubectl("apply", "-f", "-", text=json.dumps(with_accelerator(kube, EXAMPLES / "vm-efi.yaml")))
        first = kube.runs("efi")
        try:
            kube.says("efi", "garboard-hello: address")
            kept = pathlib.Path(directory, "efi-vars.fd").stat()
            kube.patch("vm/efi", {"spec": {"runStrategy": "Halted"}})
            kube.is_gone("efi")
            kube.kubectl("get", "pvc", name)
            kube.patch("vm/efi", {"spec": {"runStrategy": "Always"}})
            kube.runs("efi", not_this=first)
            kube.says("efi", "garboard-hello: address")
            again = pathlib.Path(directory, "efi-vars.fd").stat()
            if (kept.st_ino, kept.st_size) != (again.st_ino, again.st_size):
                raise Failure(f"the variables were {kept} and are {again}")
        finally:
            kube.remove("efi")
        kube.kubectl("wait", "--for=delete", f"pvc/{name}", "--timeout=180s")


def files_of_the_node_are_disks(kube):
    with tempfile.TemporaryDirectory(prefix="gbhost-", dir="/srv") as work, gate(kube, "HostDisk", "featureGates"):
        os.chown(work, QEMU_USER, QEMU_USER)
        volume = {"name": "data", "hostDisk": {"path": f"{work}/disk.img", "type": "DiskOrCreate", "capacity": "8Mi"}}
        vm = machine("hostdisk", node="node-1", volumes=[volume])
        # Where Pod Security forbids directories of the node, the words of the API server are in the status.
        kube.apply(vm)
        kube.wait("a refusal by Pod Security", lambda: "hostPath" in kube.condition("vmi", "hostdisk", "Synchronized").get("message", ""))
        kube.remove("hostdisk")
        vm["metadata"]["namespace"] = OPEN
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPEN}}, namespace=None)
        try:
            kube.apply(vm, namespace=OPEN)
            kube.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "vmi/hostdisk", "--timeout=120s", namespace=OPEN)
            there = pathlib.Path(work, "disk.img").stat()
            if (there.st_size, there.st_uid) != (8 * MIB, QEMU_USER):
                raise Failure(f"the file has {there.st_size} bytes and belongs to {there.st_uid}")
        finally:
            kube.recorder.note("removal", machine=f"{OPEN}/hostdisk")
            kube.kubectl("delete", "vm", "hostdisk", "--ignore-not-found", namespace=OPEN)
            kube.kubectl("delete", "namespace", OPEN)


@contextlib.contextmanager
def gate(kube, name, which):
    """Other settings for a while: a gate in one of the two lists, `featureGates` and `disabledFeatureGates`."""
    def change(gates):
        patch = json.dumps({"spec": {"configuration": {"developerConfiguration": {which: gates}}}})
        kube.kubectl("patch", "kubevirt/kubevirt", "--type", "merge", "-p", patch, namespace="garboard")
        kube.ask_until("settings that are followed", lambda: is_followed(kube))
    change([name])
    try:
        yield
    finally:
        change(None)


def is_followed(kube):
    settings = json.loads(kube.kubectl("get", "kubevirt/kubevirt", "-o", "json", namespace="garboard"))
    return settings["status"].get("observedGeneration") == settings["metadata"]["generation"]


def disks_without_image_volumes(kube):
    """A kernel and a disk out of images, each opened by a program of ours in a container of that image."""
    with gate(kube, "ImageVolume", "disabledFeatureGates"):
        kube.start(machine("helped", volumes=[{"name": "root", "containerDisk": {"image": HELLO}}]))
    try:
        spec = kube.pod("helped")["spec"]
        if any("image" in volume for volume in spec["volumes"]):
            raise Failure("its pod has image volumes")
        helpers = [each["name"] for each in spec["initContainers"] if each["name"] != "launcher"]
        learn(kube, "helped")
        if "serial=root" not in (hardware := kube.shell("helped", "hardware")):
            raise Failure(f"the guest sees\n{hardware}")
        return f"init containers {', '.join(helpers)}"
    finally:
        kube.remove("helped")


SCENES = [
    ("parts: probes", probes_are_followed),
    ("parts: service account, labels, network data on discs", tokens_and_labels_are_discs),
    ("parts: what firmware keeps", firmware_keeps_its_variables),
    ("parts: files of the node, where a namespace allows them", files_of_the_node_are_disks),
    ("parts: container disks without image volumes", disks_without_image_volumes),
]
